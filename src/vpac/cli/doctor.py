"""`vpac doctor`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from vpac._version import __version__
from vpac.cli.output import plain_table, show


@dataclass(frozen=True)
class Doctor:
    """Show versions, the machine, and which extras are present or missing.

    Example: vpac doctor
    """

    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> int:
        """Examine and show; 1 if a required package is missing."""
        found = examine()
        machine = {name: found[key] for name, key in (("vpac", "vpac"), ("Python", "python"), ("system", "system"))}
        machine["cores"] = found["cores"]
        machine["memory"] = f"{found['memory_gib']:.1f} GiB" if found["memory_gib"] else "unknown"
        machine |= {name: version or "missing" for name, version in found["packages"].items()}
        extras = [
            {
                "extra": extra["name"],
                "state": "missing" if None in extra["packages"].values() else "present",
                "packages": ", ".join(f"{name} {version or '–'}" for name, version in extra["packages"].items()),
                "install with": extra["install"] if None in extra["packages"].values() else "",
            }
            for extra in found["extras"]
        ]
        rows = [{"what": name, "found": value} for name, value in machine.items()]
        show(found if self.json else None, plain_table("vpac doctor", rows), plain_table("extras", extras))
        return 1 if None in found["packages"].values() else 0


def examine() -> dict[str, Any]:
    """Python, the machine, the required packages and the extras, as the installed metadata name them; None: missing."""
    required: dict[str, str | None] = {}
    extras: dict[str, dict[str, str | None]] = {}
    for line in importlib.metadata.requires("vpac") or ():
        (package,) = re.findall(r"^[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        packages = extras.setdefault(extra.group(1), {}) if extra else required
        packages[package] = None
        with suppress(importlib.metadata.PackageNotFoundError):
            packages[package] = importlib.metadata.version(package)
    return {
        "vpac": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gib": _memory_gib(),
        "packages": required,
        "extras": [
            {"name": name, "packages": packages, "install": f'{sys.executable} -m pip install "vpac[{name}]"'}
            for name, packages in sorted(extras.items())
        ],
    }


def _memory_gib() -> float:
    """Physical memory, or the limit of the control group if that is smaller; 0 if it is unknown."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0.0
    with suppress(OSError), open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
        limit = file.read().strip()
        total = min(total, int(limit)) if limit.isdigit() else total
    return total / 2**30
