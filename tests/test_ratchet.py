"""The size of the package may only fall.

A commit that adds a capability raises a number in `CEILING`, and says why in its message. One that removes lines or files
lowers it: what has fallen far below the table fails as well, so that the gain is kept.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "vpac"
FILES = sorted(SRC.rglob("*.py"))

CEILING = {"lines": 37_230, "files": 176, "files in one folder": 18}
"""`python benchmarks/account.py` prints what the lines are for (docs/architecture.md#size). Raised on 18 and 19 November 2026:

- by 100: logs with masks, certificates that resume, advice where training stopped short;
- by 250 and 9 files: a file for each measure, learning rates that fall twice, intervals from logs, checks of logs;
- by 100: training as a run like any other, the mean error of V with uniform weighting, U of conditioned policies;
- by 100: different rewards to one state in the exact distribution, Brax, `vpac solve --psi`, checks of functional environments;
- by 50: compiled trainings refuse classes that override parts of PPO, `vpac check` looks at `info["critic"]`;
- by 100, after a stranger's trial: U in `vpac evaluate`, Ctrl-C after the iteration under way, wrappers of exported policies
  and of Gymnasium, ranges of actions.
"""
SLACK = 0.03
"""How far below its ceiling a number may be, as a share of it, before the ceiling has to be lowered."""
REPEATED_MODULES = {
    "budget",
    "check",
    "frontier",
    "options",
    "sources",
    "theorems",
}
"""Modules of different packages that are the same idea."""
REPEATED_CLASSES = {"Array", "VPACPPO"}
"""Public classes and names of types of different modules that are the same idea: JAX's arrays, and vpac-ppo, here and inside
Stable-Baselines3."""
REPEATED_CONSTANTS = {"AC", "ACTIVATIONS", "EXPERIMENTS", "STROKES", "VAAC", "VPAC"}
"""Public constants of different modules that are the same idea: the experiments of a module and their arms, activations in JAX
and in NumPy, and marks upon a map in files and on pages. What has one value is defined once and imported."""


def measured() -> dict[str, int]:
    folders = Counter(path.parent for path in FILES if path.name != "__init__.py")
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in FILES)
    return {"lines": lines, "files": len(FILES), "files in one folder": max(folders.values())}


def repeated_modules() -> set[str]:
    counts = Counter(path.stem for path in FILES if path.stem not in ("__init__", "__main__"))
    return {name for name, times in counts.items() if times > 1}


def assigned(path: Path) -> set[str]:
    """Names that a module assigns, without leading underscores; those of one letter are type variables."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found |= {part.id.lstrip("_") for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return {name for name in found if len(name) > 1}


def classes_of(path: Path) -> set[str]:
    """Public classes of a module, and names of types such as `Count = Annotated[…]`."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    classes = {node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}
    return classes | {name for name in assigned(path) if name[0].isupper() and not name.isupper()}


def repeated_classes() -> set[str]:
    counts = Counter(name for path in FILES for name in classes_of(path))
    return {name for name, times in counts.items() if times > 1}


def repeated_constants() -> set[str]:
    counts = Counter(name for path in FILES for name in assigned(path) if name.isupper())
    return {name for name, times in counts.items() if times > 1}


@pytest.mark.parametrize("what", CEILING)
def test_size_only_falls(what):
    found, ceiling = measured()[what], CEILING[what]
    assert found <= ceiling, f"{found} {what}, the ceiling is {ceiling}: remove some, or raise it and say why"
    assert found >= (1.0 - SLACK) * ceiling, f"{found} {what}: lower the ceiling of {ceiling} in {__file__}"


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        (repeated_modules, REPEATED_MODULES),
        (repeated_classes, REPEATED_CLASSES),
        (repeated_constants, REPEATED_CONSTANTS),
    ],
    ids=["modules", "classes", "constants"],
)
def test_one_name_for_one_idea(found, allowed):
    names = found()
    assert names <= allowed, f"names that are taken already: {sorted(names - allowed)}"
    gone = allowed - names
    assert len(gone) <= SLACK * len(allowed), f"no longer repeated, remove them from {__file__}: {sorted(gone)}"
