"""`vpac evaluate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from vpac.checks import whole
from vpac.cli.arguments import Discount, Elsewhere, Folder, Verb
from vpac.cli.output import note
from vpac.cli.trained import StoreFolder, at_price, check_levels, file_name
from vpac.errors import UserError


@dataclass(frozen=True)
class Evaluate(Verb):
    """Measure what was trained: mean, variance, tails, each with an interval.

    Several runs are compared.

    Example: vpac evaluate results/train/vpac-FourRooms-v0 --episodes 1000
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN …")]
    """Folders of `vpac train`, or stored runs, by name (`vpac runs` shows them) or folder."""
    episodes: int = 1000
    """Episodes of each policy."""
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    psi: Annotated[tuple[float, ...], tyro.conf.arg(metavar="PSI …")] = ()
    """Prices of variance, in units of 1/reward, to measure policies at that were trained with --psi conditioned."""
    seed: int = 0
    """Random seed."""
    gamma: Discount = None
    """Discount factor. Default: the first agent's own."""
    deterministic: bool = False
    """The most preferred actions instead of drawn ones."""
    undiscounted: bool = False
    """Show the sums of rewards instead of the discounted returns."""
    levels: Annotated[tuple[float, ...], tyro.conf.arg(metavar="SHARE …")] = (0.05,)
    """Shares of worst episodes that VaR and CVaR look at, e.g. --levels 0.01 0.05 0.1."""
    sources: bool = False
    """Also say where the variance comes from: start, policy or environment. Takes about five times as long."""
    log: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write every step with the probability of its action to a .parquet file, for `vpac offline`. Of one policy."""
    out: Folder = None
    """Where samples, summary and picture are written. Default: results/evaluate/RUN, of several RUN-vs-RUN."""
    store: StoreFolder = Path("results")
    """Where stored runs are."""

    def run(self) -> int:
        """Load, measure, compare, write, show."""
        from vpac.evaluation import evaluate, variance_sources
        from vpac.evaluation.actors import gamma_of
        from vpac.files import make_folder
        from vpac.lab.report.measured import Evaluation

        if not self.runs:
            raise UserError("expected at least one RUN: a folder of `vpac train`, or a name that `vpac runs` shows")
        whole(self.seed, "seed")
        check_levels(self.levels)
        agents = self._agents()
        if self.log is not None and len(agents) > 1:
            raise UserError(f"--log is for the episodes of one policy, got {len(agents)}: name one RUN")
        folder = self.out or Path("results") / "evaluate" / self._folder_name()
        make_folder(folder)
        gamma = gamma_of(next(iter(agents.values()))[0]) if self.gamma is None else self.gamma
        shared: dict[str, Any] = {"gamma": gamma, "deterministic": self.deterministic, "progress": not self.json}
        samples, sources = {}, {}
        others = np.random.SeedSequence(self.seed).generate_state(len(agents))
        seeds = [self.seed, *map(int, others[1:])]  # the samples are independent
        for seed, (name, (agent, env)) in zip(seeds, agents.items(), strict=True):
            samples[name] = evaluate(agent, env, self.episodes, seed=seed, log=self.log, **shared)
            samples[name].save(folder / f"{file_name(name)}.parquet")
            if self.sources:
                sources[name] = variance_sources(agent, env, max(self.episodes // 2, 10), seed=seed, **shared)
        chosen = {name: s.undiscounted if self.undiscounted else s for name, s in samples.items()}
        worlds = {name: _world(env) for name, (_, env) in agents.items()}
        summary = Evaluation(chosen, sources, worlds, 0.95, self.levels, self.seed)
        self.present(summary, folder)
        unseen = f"{100 * summary.first.unseen():.2g} %"
        self.say(f"below the minimum and above the maximum lie at most {unseen} of episodes each (95 % sure)")
        for remark in summary.notes():
            self.say(f"note: {remark}")
        if any(place != next(iter(worlds.values())) for place in worlds.values()):
            self.say(
                "note: these policies act in different environments, so that differences of their returns are those of the "
                "environments, too; --set and --wrap name one for all"
            )
        self.say(f"wrote {folder}{'' if self.log is None else f' and {self.log}'}")
        return 0

    def _folder_name(self) -> str:
        """Named after the runs, so that a comparison does not overwrite the measurement of one of them."""
        from vpac.lab.kinds.agents import short_name

        names = [file_name(short_name(Path(run)) if Path(run).is_dir() else run)[:60] for run in self.runs]
        return "-vs-".join(names[:3]) + (f"-and-{len(names) - 3}-more" if len(names) > 3 else "")

    def _agents(self) -> dict[str, tuple[Any, Any]]:
        from vpac.lab.kinds.agents import find_agents

        found: dict[str, tuple[Any, Any]] = {}
        for run in self.runs:
            where = self.elsewhere.wanted("evaluate", run)
            agents = find_agents(run, self.store, where, note)
            for name, one in self._at_prices(agents):
                unique, number = name, 2
                while file_name(unique) in map(file_name, found):
                    unique, number = f"{name} ({number})", number + 1
                found[unique] = one
        return found

    def _at_prices(self, found: dict[str, tuple[Any, Any]]) -> Iterator[tuple[str, tuple[Any, Any]]]:
        """Each agent or, of conditioned ones, its policy at each price."""
        for name, (agent, env) in found.items():
            if not self.psi:
                yield name, (agent, env)
            for psi in self.psi:
                yield f"{name}, ψ = {psi:g}", (at_price(agent, psi, name), env)


def _world(env: Any) -> dict[str, Any]:
    """Where a policy acts: what the environment is called, its arguments, its limit of steps and its wrappers."""
    spec = env.spec
    if spec is None:
        return {"env": type(env.unwrapped).__name__}
    around = spec.additional_wrappers
    wrappers = [[one.entry_point, {k: repr(v) for k, v in (one.kwargs or {}).items()}] for one in around]
    plain = int | float | str | bool
    arguments = {name: value if isinstance(value, plain) else repr(value) for name, value in spec.kwargs.items()}
    return {"env": spec.id, "arguments": arguments, "max_episode_steps": spec.max_episode_steps, "wrappers": wrappers}
