"""Verbs about trained policies: `vpac evaluate`, `vpac watch`, `vpac export` and `vpac offline`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from vpac.checks import real, whole
from vpac.cli.arguments import Discount, Folder, PolicyEnv, Seed, Verb, as_words
from vpac.cli.output import note, plain_table, show
from vpac.envs.make import env_to_record, wrapper_words
from vpac.errors import UserError
from vpac.files import make_folder

if TYPE_CHECKING:
    from vpac.evaluation.importance import OfflineEstimate
    from vpac.lab.kinds.saved_agents import Trained

_PRICE_HELP = "ψ, in units of 1/reward, for a policy that was trained with --psi conditioned."
Price = Annotated[float | None, tyro.conf.arg(metavar="PSI", help=_PRICE_HELP)]
StoreFolder = Annotated[Path, tyro.conf.arg(metavar="DIR", help="Folder of the stored runs.")]


def file_name(name: str) -> str:
    """A name that is safe as the name of a file."""
    return re.sub(r"[^\w.-]+", "-", name.replace("ψ = ", "psi-")).strip("-.") or "sample"


def check_levels(levels: tuple[float, ...]) -> None:
    """Reject values that are not shares of worst episodes."""
    for alpha in levels:
        if not 0.0 < alpha <= 1.0:
            raise UserError(f"--levels must be above 0 and at most 1, got {alpha:g}")


def is_conditioned(agent: Any) -> bool:
    """Whether ψ is an input of its policy."""
    options = getattr(agent, "options", None)  # a policy alone has none, but the range of its prices
    return bool(getattr(agent, "prices", None) if options is None else getattr(options, "conditioned", False))


def price_of(facts: Mapping[str, Any]) -> float | None:
    """The ψ of an agent, if it has learned mean − ψ · variance of the return with a constant ψ in units of 1/reward."""
    options = facts.get("options") or {}
    plain = {"penalty": "variance", "psi_units": "raw", "variance_gamma": None, "budget": None}
    if "mvpi" in str(facts.get("algorithm")).lower() or any(options.get(k, v) != v for k, v in plain.items()):
        return None
    psi = options.get("psi")
    return float(psi) if isinstance(psi, int | float) and psi > 0.0 else None


def at_price(agent: Any, psi: float | None, name: str) -> Any:
    """The agent or, if it was trained with --psi conditioned, its policy at this ψ."""
    if psi is None:
        return agent
    if not hasattr(agent, "at"):
        raise UserError(f"{name} was trained for one price of variance: leave --psi out")
    return agent.at(psi)


@dataclass(frozen=True)
class Playing:
    """Options for playing episodes, and the folder of the results."""

    seed: Seed = 0
    gamma: Discount = None
    """Discount factor. Default: the agent's own, of several the first one's."""
    deterministic: bool = False
    """Measure the policy of the most likely actions instead of the sampled ones."""
    undiscounted: bool = False
    """Measure the sum of rewards instead of the discounted return."""
    out: Folder = None
    """Output folder. Default: results/VERB/RUN, for several RUN-vs-RUN."""


@dataclass(frozen=True)
class SavedPolicy:
    """A trained policy, ready to act."""

    trained: Trained
    agent: Any
    env: Any
    recipe: Any
    psi: float | None

    @classmethod
    def find(
        cls, run: str, store: Path, place: PolicyEnv, verb: str, psi: float | None, **how: Callable[[Any], Any]
    ) -> SavedPolicy:
        """The only policy under this name; `how` may be `make`, which makes the environment of its recipe."""
        from vpac.lab.kinds.saved_agents import find_trained

        found = find_trained(run, store)
        if len(found) > 1 and verb != "watch":  # watch shows the first
            some = ", ".join(one.where for one in found[:3])
            raise UserError(f"{run} holds {len(found)} policies: name one, {some} …")
        agent, made, recipe = found[0].load(place.wanted(verb, run), note, **how)
        return cls(found[0], at_price(agent, psi, found[0].name), made, recipe, psi)

    def identity(self) -> dict[str, Any]:
        """A description of the policy, as plain data."""
        price = {} if self.psi is None else {"psi": self.psi}
        return {"name": self.trained.name, "run": self.trained.where, **self.trained.facts()} | price

    def world(self) -> dict[str, Any]:
        """A description of its environment, as plain data."""
        return env_to_record(self.recipe.env, self.recipe)


@dataclass(frozen=True, kw_only=True)
class PolicyVerb(Verb):
    """A verb about one policy."""

    run_: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", name="run")]
    """A folder that `vpac train` or `policy.save` wrote, or a run of the store by its name (`vpac runs`)."""
    psi: Price = None
    store: StoreFolder = Path("results")

    def flags(self, place: PolicyEnv) -> list[str]:
        """Flags with which another verb takes the same policy to the same place."""
        found = ["--env", place.env] if place.env else []
        found += as_words("--set", place.set) + as_words("--wrap", place.wrap)
        found += ["--psi", repr(self.psi)] if self.psi is not None else []
        return found + (["--store", str(self.store)] if not Path(self.run_).is_dir() else [])


@dataclass(frozen=True, kw_only=True)
class Watch(PolicyVerb):
    """Film a learned policy, with or without a display.

    Example: vpac watch results/train/vpac-ppo-Hopper-v5 --out hopper.gif
    """

    episodes: int = 1
    """Number of episodes, shown one after the other."""
    deterministic: bool = False
    """Always take the most likely action. Default: act as in training."""
    seed: int = 0
    """Seed of starts and actions."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .gif file, or an .mp4 file (extra `video`). Default: videos/RUN.gif in the store."""
    policy_env: PolicyEnv = field(default_factory=PolicyEnv)

    def run(self) -> int:
        """Load, play, film."""
        from vpac.evaluation.actors import as_seen
        from vpac.lab.report.video import film_kind, make_watched, pace, shots, write_film

        whole(self.episodes, "--episodes", 1)
        whole(self.seed, "--seed")
        kind = film_kind(self.out or Path("film.gif"))
        policy = SavedPolicy.find(self.run_, self.store, self.policy_env, "watch", self.psi, make=make_watched)
        made, agent, name = policy.env, policy.agent, policy.trained.name
        path = self.out or self.store / "videos" / f"{Path(name).parts[0]}.gif"
        every, fps = pace(float(made.metadata.get("render_fps") or 30), kind)
        played: list[dict[str, Any]] = []

        def noted() -> Iterator[Any]:
            for moment in shots(as_seen(made, agent), agent, self.episodes, self.seed, self.deterministic, every):
                if moment.ended:
                    played.append({"score": moment.score, "steps": moment.step, "ended": moment.ended})
                yield moment

        try:
            frames = write_film(path, noted(), fps)
        finally:
            made.close()
        about = {"file": str(path), "run": name, "env": policy.recipe.env, "frames": frames, "fps": fps}
        rows = [{"episode": i, **episode, "score": f"{episode['score']:.5g}"} for i, episode in enumerate(played, 1)]
        table = plain_table(f"episodes in {policy.recipe.env}", rows, ("episode", "score", "steps", "ended"))
        show({**about, "episodes": played} if self.json else None, table)
        self.say(f"wrote {path}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Export(PolicyVerb):
    """Write a learned policy for other programs: an ONNX file or a C header.

    If it was trained with --psi conditioned, ψ is an input of the file.

    --psi chooses one value instead.

    Example: vpac export results/train/vpac-ppo-CartPole-v1 policy.onnx
    """

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """The file: .onnx (extra `export`), or .h for C."""
    policy_env: PolicyEnv = field(default_factory=PolicyEnv)

    def run(self) -> int:
        """Load and write."""
        from vpac.deep.policy import NOTE, load_policy
        from vpac.lab.kinds.saved_agents import find_trained

        found = find_trained(self.run_, self.store)
        where = [one.where for one in found]
        if len(where) == 1 and (Path(where[0]) / NOTE).is_file():  # of the PPO family: it needs no environment
            agent = at_price(load_policy(where[0]), self.psi, self.run_)
        else:
            agent = SavedPolicy.find(self.run_, self.store, self.policy_env, "export", self.psi).agent
        path = agent.export(self.out)
        show({"file": str(path), "bytes": path.stat().st_size, "run": self.run_} if self.json else None)
        self.say(f"wrote {path}, which gives the most likely action")
        recipe = found[0].recipe
        if recipe is not None and recipe.wrappers:
            around = " and ".join(" ".join(words) for words in map(wrapper_words, recipe.wrappers))
            note(
                f"it observes and acts inside {around}, which are not in the file: do to observations and actions what they do"
            )
        return 0


@dataclass(frozen=True)
class Offline(Verb):
    """Evaluate a policy from logs of another one: mean, variance, CVaR.

    `vpac evaluate --log` writes logs with the probability of every action.

    Example: vpac offline log.parquet --policy results/train/vpac-FourRooms-v0
    """

    log: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="LOG")]
    """A .parquet file (docs/offline.md has its columns), or minari:NAME, a data set of Minari."""
    policy: Annotated[str, tyro.conf.arg(metavar="RUN")]
    """The policy: a folder that `vpac train` wrote, or a stored run, by name (`vpac runs`) or folder."""
    methods: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME …")] = ()
    """Some of per-decision, doubly-robust, weighted, fitted, marginalised. Default: all."""
    gamma: Discount = None
    """Discount factor. Default: the policy's own."""
    levels: Annotated[tuple[float, ...], tyro.conf.arg(metavar="SHARE …")] = (0.05,)
    """Shares of worst episodes for CVaR."""
    least: Annotated[float, tyro.conf.arg(metavar="N")] = 30.0
    """Methods with fewer effective episodes are rejected."""
    lowest: Annotated[float | None, tyro.conf.arg(metavar="G")] = None
    """The lower bound assumes that no return is below this. Default: the lowest in the log."""
    psi: Price = None
    seed: int = 0
    """Random seed of the bootstrap."""
    policy_env: PolicyEnv = field(default_factory=PolicyEnv)
    store: StoreFolder = Path("results")

    def run(self) -> int:
        """Read, estimate, show."""
        from vpac.evaluation.importance import METHODS, offline, refusals
        from vpac.evaluation.log import load_log

        log = load_log(self.log)
        asked = shlex.join(["offline", self.log, "--policy"])
        report = offline(
            log, SavedPolicy.find(self.policy, self.store, self.policy_env, asked, self.psi).agent, gamma=self.gamma,
            methods=self.methods or METHODS, alphas=self.levels, least=self.least, lowest=self.lowest, seed=self.seed,
            progress=not self.json,
        )  # fmt: skip
        level = f"{100 * report.level:g} %"
        title = f"{report.episodes} episodes of another policy, gamma {report.gamma:g}, {level} intervals"
        rows = [row for one in report.estimates for row in _rows(one)]
        table = plain_table(title, rows, ("estimate", "interval", "effective episodes"))
        show(report.as_dict() if self.json else None, table)
        mean, variance = report.behaviour
        self.say(f"returns in the log: mean {mean:.5g}, variance {variance:.5g}")
        assumed = "if no return is below" if self.lowest is not None else "if no return is below the lowest in the log,"
        bound = f"the mean is at least {report.lower:.5g} ({level} sure, {assumed} {report.lowest:.5g})"
        self.say(bound if report.lower >= report.lowest else "the lower bound is unknown: wrong probabilities")
        for remark in (*refusals(report.estimates), *report.notes):
            self.say(f"note: {remark}")
        return 0


def _rows(one: OfflineEstimate) -> Iterator[dict[str, str]]:
    from vpac.lab.report.measured import interval_ends

    found = {"mean": one.mean, "variance": one.variance, **{f"CVaR {a:g}": x for a, x in one.cvar.items()}}
    if one.refused:
        yield {"name": one.method, "metric": "mean", "estimate": "unknown", "interval": "", "effective episodes": ""}
    for what, interval in found.items():
        if interval is not None:
            yield {
                "name": one.method, "metric": what, "estimate": f"{interval.estimate:.5g}",
                "interval": interval_ends(interval), "effective episodes": f"{one.effective:.0f}",
            }  # fmt: skip


@dataclass(frozen=True)
class Evaluate(Verb):
    """Measure trained policies: mean, variance, tails, each with an interval.

    Several runs are compared.

    Example: vpac evaluate results/train/vpac-FourRooms-v0 --episodes 1000
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN …")]
    """Folders of `vpac train`, or stored runs, by name (`vpac runs` shows them) or folder."""
    episodes: int = 1000
    """Episodes of each policy."""
    policy_env: PolicyEnv = field(default_factory=PolicyEnv)
    psi: Annotated[tuple[float, ...], tyro.conf.arg(metavar="PSI …")] = ()
    """Price ψ, in units of 1/reward: U = mean − ψ · variance is shown, too. Default: that of training, if the policies
    share one. Policies that were trained with --psi conditioned are measured at each of these ψ."""
    levels: Annotated[tuple[float, ...], tyro.conf.arg(metavar="SHARE …")] = (0.05,)
    """Shares of worst episodes for VaR and CVaR, e.g. --levels 0.01 0.05 0.1."""
    sources: bool = False
    """Also show the sources of the variance: start, policy and environment. Takes about five times as long."""
    log: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write every step with the probability of its action to a .parquet file, for `vpac offline`. One policy only."""
    store: StoreFolder = Path("results")
    playing: Playing = field(default_factory=Playing)

    def run(self) -> int:
        """Load, measure, compare, write, show."""
        from vpac.evaluation import evaluate, variance_sources
        from vpac.evaluation.actors import gamma_of
        from vpac.lab.report.measured import Evaluation

        if not self.runs:
            raise UserError("expected at least one RUN: a folder of `vpac train`, or a name that `vpac runs` shows")
        play = self.playing
        whole(play.seed, "seed")
        check_levels(self.levels)
        for psi in self.psi:
            real(psi, "--psi", "a number that is not negative, in units of 1/reward", 0.0)
        agents = self._agents()
        if self.log is not None and len(agents) > 1:
            raise UserError(f"--log is for the episodes of one policy, got {len(agents)}: name one RUN")
        folder = play.out or Path("results") / "evaluate" / self._folder_name()
        make_folder(folder)
        gamma = gamma_of(next(iter(agents.values()))[0]) if play.gamma is None else play.gamma
        shared: dict[str, Any] = {"gamma": gamma, "deterministic": play.deterministic, "progress": not self.json}
        samples, sources = {}, {}
        others = np.random.SeedSequence(play.seed).generate_state(len(agents))
        seeds = [play.seed, *map(int, others[1:])]  # the samples are independent
        for seed, (name, (agent, env, _)) in zip(seeds, agents.items(), strict=True):
            samples[name] = evaluate(agent, env, self.episodes, seed=seed, log=self.log, **shared)
            samples[name].save(folder / f"{file_name(name)}.parquet")
            if self.sources:
                sources[name] = variance_sources(agent, env, max(self.episodes // 2, 10), seed=seed, **shared)
        chosen = {name: s.undiscounted if play.undiscounted else s for name, s in samples.items()}
        worlds = {name: _world(env) for name, (_, env, _) in agents.items()}
        price = self._price({price_of(facts) for *_, facts in agents.values()} - {None})
        summary = Evaluation(chosen, sources, worlds, 0.95, self.levels, play.seed, price)
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

    def _price(self, learned: set[float | None]) -> float | None:
        """ψ of U: the one that was asked for or, of the policies that have one, the one that they share."""
        if self.psi:
            return self.psi[0] if len(self.psi) == 1 else None
        return learned.pop() if len(learned) == 1 else None

    def _folder_name(self) -> str:
        """A folder named after all runs and how they are measured, so that one measurement does not overwrite another."""
        from vpac.lab.kinds.saved_agents import short_name

        names = [file_name(short_name(Path(run)) if Path(run).is_dir() else run)[:60] for run in self.runs]
        how = "-deterministic" * self.playing.deterministic + "-undiscounted" * self.playing.undiscounted
        return "-vs-".join(names[:3]) + (f"-and-{len(names) - 3}-more" if len(names) > 3 else "") + how

    def _agents(self) -> dict[str, tuple[Any, Any, Mapping[str, Any]]]:
        """Each agent, or its policy at each ψ, with its environment and its facts, by a name that is also that of a file."""
        from vpac.lab.kinds.saved_agents import find_trained

        found: dict[str, tuple[Any, Any, Mapping[str, Any]]] = {}
        for run in self.runs:
            where = self.policy_env.wanted("evaluate", run)
            for one in find_trained(run, self.store):
                short, (agent, env, _) = one.name, one.load(where, note)
                if len(self.psi) > 1 and not is_conditioned(agent):
                    raise UserError(f"{short} was trained for one price of variance: give one --psi, the ψ of its U")
                for psi in (self.psi or (None,)) if is_conditioned(agent) else (None,):
                    name = short if psi is None else f"{short}, ψ = {psi:g}"
                    unique, number = name, 2
                    while file_name(unique) in map(file_name, found):
                        unique, number = f"{name} ({number})", number + 1
                    found[unique] = (agent if psi is None else agent.at(psi)), env, one.facts()
        return found


def _world(env: Any) -> dict[str, Any]:
    """The environment of a policy: its name, arguments, step limit and wrappers."""
    spec = env.spec
    if spec is None:
        return {"env": type(env.unwrapped).__name__}
    around = spec.additional_wrappers
    wrappers = [[one.entry_point, {k: repr(v) for k, v in (one.kwargs or {}).items()}] for one in around]
    plain = int | float | str | bool
    arguments = {name: value if isinstance(value, plain) else repr(value) for name, value in spec.kwargs.items()}
    return {"env": spec.id, "arguments": arguments, "max_episode_steps": spec.max_episode_steps, "wrappers": wrappers}
