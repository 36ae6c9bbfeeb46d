"""`vpac watch`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from vpac.errors import UserError

__all__ = ["Watch"]


@dataclass(frozen=True)
class Watch:
    """Film a learned policy, with or without a display.

    Example: vpac watch results/train/vpac-ppo-Hopper-v5 --out hopper.gif
    """

    run_: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", name="run")]
    """A folder that `vpac train` wrote, or a run of the store by its name (`vpac runs`)."""
    episodes: int = 1
    """How many are shown, one after the other."""
    env: Annotated[str | None, tyro.conf.arg(metavar="ID")] = None
    """Another environment than the one it learned in, with the same spaces; or the same, if only an import path names it."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Arguments of the environment, beside those it learned with."""
    wrap: Annotated[tuple[str, ...], tyro.conf.arg(metavar="WRAPPER [KEY=VALUE …]")] = ()
    """Wrappers instead of those it learned with; none: without."""
    psi: Annotated[float | None, tyro.conf.arg(metavar="PSI")] = None
    """Price of variance, in units of 1/reward, of a policy that was trained with --psi conditioned."""
    deterministic: bool = False
    """Always take the most likely action. Default: act as in training."""
    seed: int = 0
    """Of starts and actions."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .gif file, or an .mp4 file (extra `video`). Default: videos/RUN.gif in the store."""
    store: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Where runs are looked for by name."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Load, play, film."""
        from vpac.cli.output import say, show
        from vpac.cli.reading import wanted
        from vpac.evaluation.play import as_remembered
        from vpac.lab.kinds.agents import find_trained
        from vpac.lab.kinds.watching import make_watched, shots
        from vpac.lab.report.video import film_kind, pace, write_film

        if self.episodes < 1:
            raise UserError(f"--episodes must be a whole number from 1 up, got {self.episodes}")
        if self.seed < 0:
            raise UserError(f"--seed must not be negative, got {self.seed}")
        trained = find_trained(self.run_, self.store)[0]
        recipe, remark = trained.settle(wanted("watch", self.run_, self.env, self.set, self.wrap))
        if remark:
            say(remark, quiet=True)
        path = self.out or self.store / "videos" / f"{Path(trained.name).parts[0]}.gif"
        kind, made = film_kind(path), make_watched(recipe)
        every, fps = pace(float(made.metadata.get("render_fps") or 30), kind)
        played: list[dict[str, Any]] = []
        try:
            agent = self._priced(trained.load(made, recipe), trained.name)
            moments = shots(as_remembered(made, agent), agent, self.episodes, self.seed, self.deterministic, every)
            frames = write_film(path, _noting(moments, played), fps)
        finally:
            made.close()
        about = {"file": str(path), "run": trained.name, "env": recipe.env, "frames": frames, "fps": fps}
        show({**about, "episodes": played} if self.json else None, _table(recipe.env, played))
        say(f"wrote {path}", quiet=self.json)
        return 0

    def _priced(self, agent: Any, name: str) -> Any:
        """The agent or, of a conditioned one, its policy at the price."""
        if self.psi is None:
            return agent
        if not hasattr(agent, "at"):
            raise UserError(f"{name} was trained for one price of variance: leave --psi out")
        return agent.at(self.psi)


def _noting(moments: Any, played: list[dict[str, Any]]) -> Any:
    """Pass the moments on, and note how each episode ended."""
    for moment in moments:
        if moment.ended:
            played.append({"score": moment.score, "steps": moment.step, "ended": moment.ended})
        yield moment


def _table(env: str, played: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    shown = Table(title=f"episodes in {env}", title_justify="left")
    for heading in ("episode", "score", "steps", "ended"):
        shown.add_column(heading, justify="right")
    for number, episode in enumerate(played, 1):
        shown.add_row(str(number), f"{episode['score']:.5g}", str(episode["steps"]), episode["ended"])
    return shown
