"""Where a number comes from: versions, machine, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from vpac._version import __version__

__all__ = ["provenance"]

NAMED = ("gymnasium", "numba", "numpy", "polars", "scipy")


@cache
def provenance() -> dict[str, Any]:
    """Versions, machine and commit of this process."""
    return {
        "versions": {
            "vpac": __version__, "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in NAMED},
        },
        "machine": {"system": platform.platform(terse=True), "processor": _processor(), "cores": os.cpu_count()},
        "commit": _commit(),
    }  # fmt: skip


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _commit() -> str | None:
    """Of the checkout that vpac runs from, `+` if it was changed since; None for an installed package."""
    source = Path(__file__).resolve().parents[3]
    if not (source / ".git").exists():
        return None
    try:
        commit = _git(source, "rev-parse", "HEAD")
        return commit + ("+" if _git(source, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(source: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(source), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
