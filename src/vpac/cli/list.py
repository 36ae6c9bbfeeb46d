"""`vpac list` and `vpac doctor`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from vpac._version import __version__
from vpac.algorithms import ALGORITHMS
from vpac.cli.arguments import Verb
from vpac.cli.output import note, plain_table, show
from vpac.errors import one_of
from vpac.portable import cores

GYMNASIUM_WORLDS = {
    "CliffWalking-v1": "Gymnasium's cliff",
    "CliffWalkingSlippery-v1": "Gymnasium's cliff on slippery ground",
    "FrozenLake-v1": "Gymnasium's frozen lake, 4 × 4",
    "FrozenLake8x8-v1": "Gymnasium's frozen lake, 8 × 8",
    "Taxi-v4": "Gymnasium's taxi",
}


def environments() -> list[dict[str, Any]]:
    """Environments of vpac, and those of Gymnasium with a transition table."""
    import gymnasium

    from vpac.envs.registration import NOISY_TASKS, SIDED_TASKS, WORLDS

    exact = {world.id for world in WORLDS if "Continuous" not in world.id} | GYMNASIUM_WORLDS.keys()
    about = {world.id: world.about for world in (*WORLDS, *NOISY_TASKS, *SIDED_TASKS)} | GYMNASIUM_WORLDS
    return [
        {"name": name, "exact": name in exact, "limit": gymnasium.registry[name].max_episode_steps, "about": words}
        for name, words in about.items()
        if name in gymnasium.registry
    ]


def algorithms() -> list[dict[str, Any]]:
    """Names for `vpac train`."""
    return [{"name": algorithm.name, "about": algorithm.about} for algorithm in ALGORITHMS.values()]


def penalties() -> list[dict[str, Any]]:
    """Names for `vpac train --penalty`."""
    from vpac.risk.measures import penalty_rows

    return penalty_rows()


def experiments() -> list[dict[str, Any]]:
    """Names for `vpac reproduce`."""
    from vpac.lab.experiments.catalogue import EXPERIMENTS
    from vpac.lab.workers.study import plan

    return [
        {"name": e.name, "paper": e.paper or "ours", "runs": len(plan(e, full=True).all()), "about": e.title}
        for e in EXPERIMENTS.values()
    ]


LISTS = {"environments": environments, "algorithms": algorithms, "penalties": penalties, "experiments": experiments}


@dataclass(frozen=True)
class List(Verb):
    """Show environments, algorithms, penalties and experiments.

    Example: vpac list environments
    """

    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[WHAT]")] = "all"
    """all, environments, algorithms, penalties or experiments."""

    def run(self) -> int:
        """Collect the rows and show them."""
        one_of(self.what, ("all", *LISTS), "list")
        found = {name: rows() for name, rows in LISTS.items() if self.what in ("all", name)}
        show(found if self.json else None, *(plain_table(title, _in_words(rows)) for title, rows in found.items()))
        return 0


def _in_words(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows for people."""
    words = {"True": "yes", "False": "no", "None": "none"}
    return [
        {"solvable" if key == "exact" else key: words.get(str(value), value) for key, value in row.items()}
        for row in rows
    ]


@dataclass(frozen=True)
class Doctor(Verb):
    """Show versions, the machine, and which extras are present or missing.

    Example: vpac doctor
    """

    def run(self) -> int:
        """Examine and show; 1 if a required package is missing."""
        found = examine()
        machine = {
            "vpac": found["vpac"], "Python": found["python"], "system": found["system"], "cores": found["cores"],
            "memory": f"{found['memory_gib']:.1f} GiB" if found["memory_gib"] else "unknown",
            **{name: _fit(name, version or "missing", found["unfit"]) for name, version in found["packages"].items()},
        }  # fmt: skip
        rows = [{"what": name, "found": value} for name, value in machine.items()]
        extras = []
        for extra in found["extras"]:
            missing, packages = None in extra["packages"].values(), extra["packages"].items()
            words = ", ".join(f"{name} {_fit(name, version or '–', extra['unfit'])}" for name, version in packages)
            state = "missing" if missing else "other versions" if extra["unfit"] else "present"
            advice = "" if state == "present" else extra["install"]
            extras.append({"extra": extra["name"], "state": state, "packages": words, "install with": advice})
        show(found if self.json else None, plain_table("vpac doctor", rows), plain_table("extras", extras))
        wrong = [name for name, version in found["packages"].items() if version is None or name in found["unfit"]]
        if wrong:
            note(f"vpac needs {', '.join(wrong)}: {_install('vpac')}")
        if all(map(_version, ("pygame", "pygame-ce"))):
            again = _install("--force-reinstall --no-deps pygame-ce")
            note(
                f"pygame and pygame-ce are both installed, and one writes over the other: uninstall pygame, then {again}"
            )
        return 1 if wrong else 0


def _install(what: str) -> str:
    """The command that installs a package in addition to vpac; environments made by uv have no pip."""
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {sys.executable} --upgrade {what}"
    return f"{sys.executable} -m pip install --upgrade {what}"


def _fit(name: str, version: str, unfit: dict[str, str]) -> str:
    """A version and, if it is outside, the bounds that vpac was tested with."""
    return f"{version} (needs {unfit[name]})" if name in unfit else version


def _version(package: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def examine() -> dict[str, Any]:
    """Python, the machine, the required packages and the extras, as the installed metadata name them; None: missing."""
    from packaging.requirements import Requirement

    extras: dict[str, dict[str, str | None]] = {"": {}}
    """Versions of packages by extra; "" for required packages."""
    unfit: dict[str, dict[str, str]] = {}
    for line in importlib.metadata.requires("vpac") or ():
        needed, extra = Requirement(line), re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        name, version = extra.group(1) if extra else "", _version(needed.name)
        extras.setdefault(name, {})[needed.name] = version
        if version is not None and not needed.specifier.contains(version, prereleases=True):
            unfit.setdefault(name, {})[needed.name] = str(needed.specifier)
    return {
        "vpac": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": cores(),
        "memory_gib": _memory_gib(),
        "packages": extras.pop(""),
        "unfit": {package: bounds for each in reversed(unfit.values()) for package, bounds in each.items()},
        "extras": [
            {"name": name, "packages": packages, "unfit": unfit.get(name, {}), "install": _install(f'"vpac[{name}]"')}
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
