"""`vpac check`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from vpac.cli.arguments import EnvName, EnvOptions, Verb, as_words, flat
from vpac.cli.output import next_step, show

if TYPE_CHECKING:
    from vpac.envs.check import Findings

AVERSIONS = (0.1, 3.0)
"""Risk aversions between which policies usually change."""


@dataclass(frozen=True)
class Check(Verb):
    """Test whether an environment can be learned from; says what to change if not.

    Example: vpac check my_project.envs:Warehouse --set size=20
    """

    env: EnvName
    """Gymnasium id, package.module:Name-v0, or package.module:Class."""
    environment: EnvOptions = field(default_factory=EnvOptions)
    steps: int = 20_000
    """Number of random steps."""
    seed: int = 0
    """Seed of resets and actions."""

    def run(self) -> int:
        """Make the environment, test it, report."""
        from rich.table import Table

        from vpac.checks import whole
        from vpac.envs.check import look_over, refuse

        env = self.environment.make(self.env)
        found = look_over(env, whole(self.steps, "steps", 1), seed=whole(self.seed, "seed"))
        spaces = {"observations": str(env.observation_space), "actions": str(env.action_space)}
        table = Table(title=f"{self.env} can be learned from", title_justify="left", show_header=False)
        scales = _scales(found)
        for name, value in {**spaces, **_summary(found), **_prices(scales)}.items():
            table.add_row(name, value)
        for remark in found.remarks:
            table.add_row("remark", remark)
        if self.json:
            show({"env": self.env, **spaces, **asdict(found), "random_play": scales})
        elif not found.errors:
            show(None, table)
        refuse(self.env, found.errors)
        given = [word for name, values, _ in flat(self.environment) for word in as_words(f"--{name}", values)]
        next_step(self.json, "frontier", self.env, *given)
        return 0


def _summary(found: Findings) -> dict[str, str]:
    ends = sorted({min(found.lengths), max(found.lengths)}) if found.lengths else []
    episodes = f"{len(found.lengths)}, of {' to '.join(map(str, ends))} steps" if ends else "none"
    return {"random steps": str(found.steps), "episodes": episodes}


def _scales(found: Findings) -> list[dict[str, Any]]:
    """Mean and standard deviation of returns for each γ, and ψ at the two `AVERSIONS`; no ψ if returns do not vary."""
    from statistics import fmean, stdev

    from vpac.envs.check import GAMMA
    from vpac.risk.frontier import psi_of

    scales = list[dict[str, Any]]()
    for gamma, returns in ((1.0, found.returns), (GAMMA, found.discounted)):
        if len(returns) > 1 and all(map(isfinite, returns)):
            std = stdev(returns)
            varies = std > 1e-9 * max(map(abs, returns))
            psi = [psi_of(aversion, std) for aversion in AVERSIONS] if varies else None
            scales.append({"gamma": gamma, "mean": fmean(returns), "std": std, "psi": psi})
    return scales


def _prices(scales: list[dict[str, Any]]) -> dict[str, str]:
    """Rows of the scales; the discounted one only if its standard deviation differs by more than a tenth."""
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
