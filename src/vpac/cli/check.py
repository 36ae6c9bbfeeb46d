"""`vpac check` and `vpac solve`."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from vpac.algorithms import DEFAULT_GAMMA
from vpac.checks import whole
from vpac.cli.arguments import EnvName, EnvOptions, Pairs, Verb, env_arguments
from vpac.cli.output import as_rich, next_step, show, show_summary
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import make_env
from vpac.errors import UserError, suggestion
from vpac.files import make_folder, read_input
from vpac.typing import FloatArray

if TYPE_CHECKING:
    from vpac.envs.check import Findings
    from vpac.oracle.moments import Moments

AVERSIONS = (0.1, 3.0)
"""Risk aversions between which policies usually change."""


@dataclass(frozen=True)
class Check(Verb):
    """Check whether an environment can be learned from, and what to change if not.

    Example: vpac check my_project.envs:Warehouse --set size=20
    """

    env: EnvName
    environment: EnvOptions = field(default_factory=EnvOptions)
    steps: int = 20_000
    """Number of random steps."""
    seed: int = 0
    """Seed of resets and actions."""

    def run(self) -> int:
        """Make the environment, check it, report."""
        from vpac.envs.check import look_over, refuse
        from vpac.lab.report.chart import Table

        env = self.environment.make(self.env)
        found = look_over(env, whole(self.steps, "steps", 1), seed=whole(self.seed, "seed"))
        seen, acts = (getattr(env, f"{what}_space", None) for what in ("observation", "action"))
        spaces = {"observations": str(seen), "actions": str(acts)}
        scales = _scales(found)
        ends = " to ".join(map(str, sorted({min(found.lengths), max(found.lengths)}))) if found.lengths else ""
        episodes = f"{len(found.lengths)}, of {ends} steps" if ends else "none"
        rows = [*spaces.items(), ("random steps", str(found.steps)), ("episodes", episodes)]
        rows += [*_prices(scales, found.returns).items(), *(("remark", remark) for remark in found.remarks)]
        if self.json:
            show({"env": self.env, **spaces, **asdict(found), "random_play": scales})
        elif not found.errors:
            show(None, as_rich(Table.of(("", ""), rows, f"{self.env} can be learned from"), ()))
        refuse(self.env, found.errors)
        next_step(self.json, "frontier", self.env, *self.environment.words)
        return 0


def _scales(found: Findings) -> list[dict[str, Any]]:
    """Mean and standard deviation of returns for each γ, and ψ at the two `AVERSIONS`; no ψ if returns do not vary."""
    from statistics import fmean, stdev

    from vpac.risk.frontier import psi_of

    scales = list[dict[str, Any]]()
    for gamma, returns in ((1.0, found.returns), (DEFAULT_GAMMA, found.discounted)):
        if len(returns) > 1 and all(map(isfinite, returns)):
            std = stdev(returns)
            varies = std > 1e-9 * max(map(abs, returns))
            psi = [psi_of(aversion, std) for aversion in AVERSIONS] if varies else None
            scales.append({"gamma": gamma, "mean": fmean(returns), "std": std, "psi": psi})
    return scales


def _prices(scales: list[dict[str, Any]], returns: list[float]) -> dict[str, str]:
    """Rows of the scales; the discounted one only if its standard deviation differs by more than a tenth."""
    if len(returns) == 1:
        advice = (
            "of one episode, which does not show how returns vary; vpac frontier --risk-aversion 0.1,0.5,3 needs no ψ"
        )
        return {"return": f"{returns[0]:.4g}, {advice}"}
    shown = {f"return, γ = {scale['gamma']:g}": scale for scale in scales}
    if scales and abs(scales[-1]["std"] - scales[0]["std"]) <= 0.1 * scales[0]["std"]:
        shown = {"return": scales[0]}
    rows = {}
    for name, scale in shown.items():
        at = [f"{psi:.2g} (R = {r:g})" for psi, r in zip(scale["psi"] or (), AVERSIONS, strict=False)]
        price = f"try ψ from {at[0]} to {at[1]}" if at else "without variance there is no ψ to suggest"
        rows[name] = f"mean {scale['mean']:.4g}, standard deviation {scale['std']:.4g}; {price}"
    if any(scale["psi"] for scale in scales):
        rows["R"] = (
            "R = ψ · standard deviation, the risk aversion without a unit. Random play shows the scale only; "
            "vpac frontier --risk-aversion 0.1,0.5,3 takes the standard deviation of a trained policy"
        )
    return rows


POLICIES = ("uniform", "greedy")
LARGEST_POLICY_BYTES = 2**28
"""Largest size of a policy file, in bytes."""


@dataclass(frozen=True)
class Solve(Verb):
    """Exact mean and variance of the return of a policy; nothing is sampled.

    The environment needs a transition table; `vpac list` shows some.

    Example: vpac solve vpac/FourRooms-v0 --policy greedy --plot rooms.png
    """

    env: EnvName
    policy: Annotated[str, tyro.conf.arg(metavar="uniform|greedy|FILE")] = "uniform"
    """uniform, greedy (the risk-neutral optimum), or a file with π[s, a]: .npy, .json or .csv."""
    psi: Annotated[float | None, tyro.conf.arg(metavar="PSI")] = None
    """Find the best policy for this price of variance instead, and bound what any stationary policy can reach."""
    gamma: float = DEFAULT_GAMMA
    """Discount factor, 0 to 1."""
    horizon: Annotated[int | None, tyro.conf.arg(metavar="H")] = None
    """Truncate episodes after this many steps, as a time limit does."""
    set: Pairs = ()
    """Arguments of the environment, e.g. --set slip=0.1 goal=5."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw value, variance and visitation maps into this .png, .svg or .pdf file."""

    def run(self) -> int:
        """Make the MDP, evaluate the policy, show and draw."""
        from vpac.lab.report.chart import Table
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
        if self.psi is None:
            moments = evaluate(mdp, read_policy(self.policy, mdp, self.gamma), self.gamma, self.horizon)
            summary = Solution(moments, self.env, self.policy)
            show_summary(summary, self.json)
        else:
            if self.policy != "uniform" or self.horizon is not None:
                raise UserError(
                    "--psi looks for the policy itself, without a horizon: leave out --policy and --horizon"
                )
            moments, rows = best_of(mdp, self.psi, self.gamma)
            summary = Solution(moments, self.env, f"best (ψ = {self.psi:g})")
            table = Table.of(
                ("", ""), [(name, f"{number:.6g}") for name, number in rows.items()], "mean − ψ · variance"
            )
            names = {name.replace(" ", "_"): number for name, number in rows.items()}
            show(summary.as_dict() | names if self.json else None, *map(as_rich, [*summary.tables(), table]))
        if self.plot:
            save(summary.charts()[0], self.plot)
            self.say(f"drew {self.plot}")
        return 0


def best_of(mdp: FiniteMDP, psi: float, gamma: float) -> tuple[Moments, dict[str, float]]:
    """The best policy found for a price, U, its certificate, and an upper bound of U with the gap to it."""
    from vpac.oracle import evaluate, upper_bound
    from vpac.oracle.frontier import certify
    from vpac.oracle.occupancy import without_unmet

    mdp = without_unmet(mdp) if gamma == 1.0 else mdp
    found = upper_bound(mdp, psi, gamma)
    moments = evaluate(mdp, found.policy, gamma)
    certificate = certify(moments, psi)
    return moments, {
        "psi": psi, "objective": found.objective, "upper bound": found.bound, "gap": found.gap,
        "gradient": certificate.gradient, "improvement": certificate.improvement,
        "changes checked": certificate.checked,
    }  # fmt: skip


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
    content = read_input(path, LARGEST_POLICY_BYTES)
    try:
        if path.suffix == ".npy":
            return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        text = content.decode("utf-8")
        if path.suffix == ".csv":
            return np.array([[float(x) for x in line.split(",")] for line in text.splitlines() if line.strip()])
        return np.asarray(json.loads(text), np.float64)
    except (TypeError, ValueError, EOFError, RecursionError, MemoryError) as error:
        raise UserError(f"{path} does not hold an array of numbers: {error}") from None
