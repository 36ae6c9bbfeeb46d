"""`vpac check`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import tyro

from vpac.cli.output import next_step, show
from vpac.errors import UserError

__all__ = ["Check"]


@dataclass(frozen=True)
class Check:
    """Look whether an environment can be learned from; says what to change if not.

    Example: vpac check my_project.envs:Warehouse --set size=20
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Gymnasium id, package.module:Name-v0, or package.module:Class."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Arguments of the environment, e.g. --set size=20 max_episode_steps=500."""
    wrap: Annotated[tuple[str, ...], tyro.conf.arg(metavar="WRAPPER [KEY=VALUE …]")] = ()
    """Wrappers around it, the innermost first, e.g. --wrap RewardNoise std=2."""
    steps: int = 20_000
    """Take at most so many random steps."""
    seed: int = 0
    """Of resets and actions."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Make it, look it over, tell."""
        from rich.table import Table

        from vpac.cli.reading import key_values, wrappers
        from vpac.envs.checking import look_over
        from vpac.envs.making import make_env
        from vpac.learners.checks import whole

        env = make_env(self.env, wrappers(self.wrap), **key_values(self.set))
        found = look_over(env, whole(self.steps, "steps", 1), seed=whole(self.seed, "seed"))
        spaces = {"observations": str(env.observation_space), "actions": str(env.action_space)}
        table = Table(title=f"{self.env} can be learned from", title_justify="left", show_header=False)
        for name, value in {**spaces, **_summary(found.steps, found.lengths)}.items():
            table.add_row(name, value)
        for remark in found.remarks:
            table.add_row("remark", remark)
        if self.json:
            show({"env": self.env, **spaces, **asdict(found)})
        elif not found.errors:
            show(None, table)
        if found.errors:
            listed = "\n".join(f"  {number}. {error}" for number, error in enumerate(found.errors, 1))
            raise UserError(f"{self.env} cannot be learned from yet:\n{listed}")
        given = [*(["--set", *self.set] if self.set else []), *(["--wrap", *self.wrap] if self.wrap else [])]
        next_step(self.json, "frontier", self.env, *given)
        return 0


def _summary(steps: int, lengths: list[int]) -> dict[str, Any]:
    ended = ", ".join(str(length) for length in lengths) or "none"
    return {"random steps": str(steps), "lengths of episodes": ended}
