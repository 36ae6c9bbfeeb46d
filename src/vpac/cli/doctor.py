"""What this installation has and lacks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from vpac._version import __version__

__all__ = ["Extra", "Health", "examine"]


@dataclass(frozen=True)
class Extra:
    """An optional part of the installation."""

    name: str
    """As in `pip install "vpac[name]"`."""
    packages: dict[str, str | None]
    """Versions of the packages it consists of; None where one is missing."""
    install: str
    """The command that installs it."""

    @property
    def present(self) -> bool:
        """Whether every package of it is installed."""
        return None not in self.packages.values()


@dataclass(frozen=True)
class Health:
    """The findings of `vpac doctor`."""

    vpac: str
    python: str
    system: str
    cores: int
    memory_gib: float
    packages: dict[str, str | None]
    extras: tuple[Extra, ...]

    @property
    def well(self) -> bool:
        """Whether every package that is not optional is installed."""
        return None not in self.packages.values()


def examine() -> Health:
    """Look at Python, the machine, the required packages and the extras, as the installed metadata name them."""
    required: dict[str, str | None] = {}
    extras: dict[str, dict[str, str | None]] = {}
    for package, extra in _requirements():
        (required if extra is None else extras.setdefault(extra, {}))[package] = _version(package)
    return Health(
        vpac=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gib=_memory_gib(),
        packages=required,
        extras=tuple(Extra(name, packages, _install(name)) for name, packages in sorted(extras.items())),
    )


def _requirements() -> Iterator[tuple[str, str | None]]:
    """(package, extra or None) for each requirement of the installed distribution."""
    for line in importlib.metadata.requires("vpac") or ():
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if name:
            yield name.group(), extra.group(1) if extra else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _install(extra: str) -> str:
    return f'{sys.executable} -m pip install "vpac[{extra}]"'


def _memory_gib() -> float:
    """Physical memory, or the limit of the control group we run in if that is smaller; 0 if it cannot be told."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0.0
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            limit = file.read().strip()
        total = min(total, int(limit)) if limit.isdigit() else total
    except OSError:
        pass
    return total / 2**30
