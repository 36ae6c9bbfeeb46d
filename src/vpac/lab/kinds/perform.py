"""What a run does: its task and its seed become numbers. Nothing else goes in, so any process on any machine may run it."""

from __future__ import annotations

import importlib

from vpac.envs.check import skip_checks
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result

KINDS = {
    "training": "tabular", "deep": "deep", "prediction": "prediction", "convergence": "convergence", "frontier": "frontier",
    "theorems": "theorems",
}  # fmt: skip
"""Kinds of tasks, and the module of each, whose `perform` does it."""


def perform(run: Run, scratch: Scratch) -> Result:
    """Do it; a long run leaves checkpoints in `scratch`, and goes on from those that it finds there."""
    module = importlib.import_module(f"vpac.lab.kinds.{KINDS[run.task['kind']]}")
    with skip_checks():
        result: Result = module.perform(run, scratch)
    return result
