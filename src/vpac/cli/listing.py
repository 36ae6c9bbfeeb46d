"""What `vpac list` and `vpac doctor` show."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vpac._version import __version__
from vpac.algorithms import ALGORITHMS

__all__ = [
    "Extra",
    "Health",
    "algorithms",
    "environments",
    "examine",
    "experiments",
    "health_tables",
    "runs_table",
    "tables",
]

OTHERS = {
    "CliffWalking-v1": "Gymnasium's cliff",
    "CliffWalkingSlippery-v1": "Gymnasium's cliff on slippery ground",
    "FrozenLake-v1": "Gymnasium's frozen lake, 4 × 4",
    "FrozenLake8x8-v1": "Gymnasium's frozen lake, 8 × 8",
    "Taxi-v4": "Gymnasium's taxi",
}


def environments() -> list[dict[str, Any]]:
    """Our worlds and noisy tasks, and those of Gymnasium that have a transition table."""
    import gymnasium

    from vpac.envs.registration import NOISY_TASKS, WORLDS

    ours = [
        {"name": w.id, "exact": "Continuous" not in w.id, "limit": w.max_episode_steps, "about": w.about}
        for w in WORLDS
    ]
    ours += [{"name": task.id, "exact": False, "limit": 1000, "about": task.about} for task in NOISY_TASKS]
    others = [
        {"name": name, "exact": True, "limit": gymnasium.registry[name].max_episode_steps, "about": about}
        for name, about in OTHERS.items()
        if name in gymnasium.registry
    ]
    return ours + others


def algorithms() -> list[dict[str, Any]]:
    """What `vpac train` can train."""
    return [{"name": algorithm.name, "about": algorithm.about} for algorithm in ALGORITHMS.values()]


def experiments() -> list[dict[str, Any]]:
    """What `vpac reproduce` can run."""
    from vpac.lab.experiments.catalogue import EXPERIMENTS
    from vpac.lab.workers.study import plan

    return [
        {"name": e.name, "paper": e.paper or "ours", "runs": len(plan(e, full=True).all()), "about": e.title}
        for e in EXPERIMENTS.values()
    ]


def tables(found: Mapping[str, list[dict[str, Any]]]) -> Iterator[Any]:
    """Each list as a table."""
    from rich.table import Table

    for title, rows in found.items():
        shown = Table(title=title, title_justify="left")
        for heading in rows[0]:
            shown.add_column({"exact": "solvable", "limit": "limit"}.get(heading, heading), no_wrap=heading == "name")
        for row in rows:
            shown.add_row(*({"True": "yes", "False": "no", "None": "none"}.get(str(x), str(x)) for x in row.values()))
        yield shown


def runs_table(rows: Sequence[Mapping[str, Any]], title: str, width: int | None = None) -> tuple[Any, list[str]]:
    """A table of runs, and the columns that it leaves out so that names stay whole and can be copied.

    Args:
        rows: of the index.
        title: above it.
        width: of the terminal; default: this one's.
    """
    from rich.console import Console
    from rich.table import Table

    width = Console().width if width is None else width
    cells = {"name": [row["name"] for row in rows], "status": [row["status"] for row in rows]}
    for key in ("mean", "variance", "seconds"):
        cells[key] = ["" if row[key] is None else f"{row[key]:.4g}" for row in rows]
    hidden = []
    finished = ["status"] if set(cells["status"]) <= {"finished"} else []
    for heading in (*finished, "seconds", "variance", "mean"):
        if sum(max(map(len, [key, *column])) + 3 for key, column in cells.items()) + 1 > width:
            del cells[heading]
            hidden.append(heading)
    shown = Table(title=title, title_justify="left")
    for heading in cells:
        words = heading in ("name", "status")
        shown.add_column(heading, overflow="fold", no_wrap=heading == "name", justify="left" if words else "right")
    for row in zip(*cells.values(), strict=True):
        shown.add_row(*row)
    return shown, hidden


def health_tables(health: Health) -> Iterator[Any]:
    """The findings of `vpac doctor`."""
    from rich.table import Table

    machine = Table(title="vpac doctor", title_justify="left", show_header=False)
    machine.add_row("vpac", health.vpac)
    machine.add_row("Python", health.python)
    machine.add_row("system", health.system)
    machine.add_row("cores", str(health.cores))
    machine.add_row("memory", f"{health.memory_gib:.1f} GiB" if health.memory_gib else "unknown")
    for package, version in health.packages.items():
        machine.add_row(package, version or "missing")
    yield machine
    extras = Table(title="extras", title_justify="left")
    for heading in ("extra", "state", "packages", "install with"):
        extras.add_column(heading, overflow="fold")
    for extra in health.extras:
        packages = ", ".join(f"{name} {version or '–'}" for name, version in extra.packages.items())
        state, command = ("present", "") if extra.present else ("missing", extra.install)
        extras.add_row(extra.name, state, packages, command)
    yield extras


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
