"""`vpac watch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from vpac.checks import whole
from vpac.cli.arguments import Elsewhere, Verb, at_price
from vpac.cli.output import note, plain_table, show

NUMBERS = ("episode", "score", "steps", "ended")


@dataclass(frozen=True)
class Watch(Verb):
    """Film a learned policy, with or without a display.

    Example: vpac watch results/train/vpac-ppo-Hopper-v5 --out hopper.gif
    """

    run_: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", name="run")]
    """A folder that `vpac train` wrote, or a run of the store by its name (`vpac runs`)."""
    episodes: int = 1
    """Number of episodes, shown one after the other."""
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    psi: Annotated[float | None, tyro.conf.arg(metavar="PSI")] = None
    """Price of variance, in units of 1/reward, of a policy that was trained with --psi conditioned."""
    deterministic: bool = False
    """Always take the most likely action. Default: act as in training."""
    seed: int = 0
    """Seed of starts and actions."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .gif file, or an .mp4 file (extra `video`). Default: videos/RUN.gif in the store."""
    store: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """The store in which runs are found by name."""

    def run(self) -> int:
        """Load, play, film."""
        from vpac.evaluation.actors import as_seen
        from vpac.lab.kinds.agents import find_trained
        from vpac.lab.kinds.watching import make_watched, shots
        from vpac.lab.report.video import film_kind, pace, write_film

        whole(self.episodes, "--episodes", 1)
        whole(self.seed, "--seed")
        trained = find_trained(self.run_, self.store)[0]
        recipe, remark = trained.settle(self.elsewhere.wanted("watch", self.run_))
        if remark:
            note(remark)
        path = self.out or self.store / "videos" / f"{Path(trained.name).parts[0]}.gif"
        kind, made = film_kind(path), make_watched(recipe)
        every, fps = pace(float(made.metadata.get("render_fps") or 30), kind)
        played: list[dict[str, Any]] = []
        try:
            agent = at_price(trained.load(made, recipe), self.psi, trained.name)
            moments = shots(as_seen(made, agent), agent, self.episodes, self.seed, self.deterministic, every)
            frames = write_film(path, _noting(moments, played), fps)
        finally:
            made.close()
        about = {"file": str(path), "run": trained.name, "env": recipe.env, "frames": frames, "fps": fps}
        rows = [{"episode": i, **episode, "score": f"{episode['score']:.5g}"} for i, episode in enumerate(played, 1)]
        table = plain_table(f"episodes in {recipe.env}", rows, NUMBERS)
        show({**about, "episodes": played} if self.json else None, table)
        self.say(f"wrote {path}")
        return 0


def _noting(moments: Any, played: list[dict[str, Any]]) -> Any:
    """Pass the moments on; append how each episode ended to `played`."""
    for moment in moments:
        if moment.ended:
            played.append({"score": moment.score, "steps": moment.step, "ended": moment.ended})
        yield moment
