"""`vpac solve`."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from vpac.cli.arguments import EnvName, Pairs, Verb, env_arguments
from vpac.cli.output import show_summary
from vpac.errors import UserError, suggestion
from vpac.files import read_input
from vpac.typing import FloatArray

if TYPE_CHECKING:
    from vpac.envs.finite_mdp import FiniteMDP

POLICIES = ("uniform", "greedy")
LARGEST = 2**28
"""Bytes of a policy file."""


@dataclass(frozen=True)
class Solve(Verb):
    """Exact mean and variance of the return of a policy; nothing is sampled.

    Example: vpac solve vpac/FourRooms-v0 --policy greedy --plot rooms.png
    """

    env: EnvName
    """Environment with a transition table: its Gymnasium id (`vpac list` shows some) or package.module:Class."""
    policy: Annotated[str, tyro.conf.arg(metavar="uniform|greedy|FILE")] = "uniform"
    """uniform, greedy (the risk-neutral optimum), or a file with π[s, a]: .npy, .json or .csv."""
    gamma: float = 0.99
    """Discount factor, 0 to 1."""
    horizon: Annotated[int | None, tyro.conf.arg(metavar="H")] = None
    """Cut episodes off after this many steps, as a time limit does."""
    set: Pairs = ()
    """Arguments of the environment, e.g. --set slip=0.1 goal=5."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw value, variance and visitation maps into this .png, .svg or .pdf file."""

    def run(self) -> int:
        """Make the process, evaluate the policy, show and draw."""
        from vpac.envs.finite_mdp import FiniteMDP
        from vpac.envs.make import make_env
        from vpac.files import make_folder
        from vpac.lab.report.draw import figure_kind, save
        from vpac.lab.report.explorer import Solution
        from vpac.oracle import evaluate

        if self.plot:
            figure_kind(self.plot)
            make_folder(self.plot.parent, self.plot)
        arguments = env_arguments(self.set)
        if "max_episode_steps" in arguments:
            raise UserError(
                "a time limit is no part of the process: use --horizon instead of --set max_episode_steps=…"
            )
        mdp = FiniteMDP.from_gymnasium(make_env(self.env, **arguments))
        moments = evaluate(mdp, read_policy(self.policy, mdp, self.gamma), self.gamma, self.horizon)
        summary = Solution(moments, self.env, self.policy)
        show_summary(summary, self.json)
        if self.plot:
            save(summary.charts()[0], self.plot)
            self.say(f"drew {self.plot}")
        return 0


def read_policy(name: str, mdp: FiniteMDP, gamma: float) -> FloatArray:
    """A policy by name (uniform, greedy) or from a file that holds π[s, a]."""
    from vpac.oracle import optimal_policy, uniform
    from vpac.oracle.policies import check_policy

    if name == "uniform":
        return uniform(mdp)
    if name == "greedy":
        return optimal_policy(mdp, gamma)
    path = Path(name)
    if not path.suffix and not path.exists():
        raise UserError(f"unknown policy {name!r}: expected uniform, greedy or a file{suggestion(name, POLICIES)}")
    found = _read_array(path)
    if np.ndim(found) != 2:
        raise UserError(f"{path} must hold one policy [states, actions], got an array of shape {list(np.shape(found))}")
    return check_policy(mdp, found, f"the policy in {path}")


def _read_array(path: Path) -> Any:
    if path.suffix not in (".npy", ".json", ".csv"):
        raise UserError(f"cannot read a policy from {path}: expected a .npy, .json or .csv file")
    content = read_input(path, LARGEST)
    try:
        if path.suffix == ".npy":
            return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        text = content.decode("utf-8")
        if path.suffix == ".csv":
            return np.array([[float(x) for x in line.split(",")] for line in text.splitlines() if line.strip()])
        return np.asarray(json.loads(text), np.float64)
    except (TypeError, ValueError, EOFError, RecursionError, MemoryError) as error:
        raise UserError(f"{path} does not hold an array of numbers: {error}") from None
