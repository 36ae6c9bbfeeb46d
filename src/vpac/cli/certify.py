"""`vpac certify` and `vpac stress`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vpac.checks import whole
from vpac.cli.arguments import Pairs, PolicyEnv, Wrappers, env_arguments, read_value
from vpac.cli.output import may_be_closed, next_step, note, show_summary
from vpac.cli.trained import Playing, PolicyVerb, SavedPolicy, check_levels, file_name
from vpac.errors import UserError
from vpac.files import jsonable, make_folder, sealed, write_bytes, write_text
from vpac.progress import steps

if TYPE_CHECKING:
    from vpac.risk.budget import Limit
    from vpac.risk.sample import ReturnSample

NumberList = Annotated[str, tyro.conf.arg(metavar="V,V,…")]
Fraction = Annotated[float | None, tyro.conf.arg(metavar="X")]
NOT_HELD = 3
"""Exit code of a certificate with a limit that does not hold or is undecided."""
Two = Annotated[str | None, tyro.conf.arg(metavar="P:C")]


def episode_cache(folder: Path, about: Mapping[str, Any]) -> Callable[[str, Callable[..., ReturnSample]], ReturnSample]:
    """Cache that stores episodes in a folder and loads those that were played in the same way: a stopped command continues."""
    from vpac.evaluation.sources import NUMBERS
    from vpac.risk.sample import ReturnSample

    kept: dict[str, int] = {}

    def measured(name: str, play: Callable[..., ReturnSample]) -> ReturnSample:
        path, wanted, before = folder / f"{file_name(name)}.parquet", {**about, "of": name}, None
        if path.is_file():
            try:
                before = ReturnSample.load(path)
            except UserError as error:
                note(f"measured again: {error}")
        if before is not None and dict(before.about) != wanted:
            before = None
        kept[name] = 0 if before is None else len(before)

        def keep(sample: ReturnSample) -> None:
            replace(sample, about=wanted).save(path)
            kept[name] = len(sample)

        try:
            return replace(play(before=before, keep=keep), about=wanted)
        except KeyboardInterrupt:
            starts = kept.pop("sources", 0) // NUMBERS
            what = f"{sum(kept.values())} episodes" + f" and {starts} starts" * (starts > 0)
            note(f"stopped; {what} are kept in {folder}. To go on: the same command")
            raise

    return measured


@dataclass(frozen=True)
class Measuring(Playing):
    """Options for playing and measuring episodes."""

    level: float = 0.95
    """Confidence of each interval."""

    def flags(self) -> list[str]:
        """Flags with which another verb measures the same return of the same policy."""
        found = [f"--{name}" for name in ("deterministic", "undiscounted") if getattr(self, name)]
        return found if self.gamma is None else [*found, "--gamma", repr(self.gamma)]

    def open(
        self, verb: Certify | Stress, name: str, place: PolicyEnv
    ) -> tuple[SavedPolicy, Path, dict[str, Any], dict[str, Any]]:
        """The policy of a verb, the folder of its results, and the options of playing and of measuring episodes."""
        from vpac.evaluation.actors import gamma_of

        whole(self.seed, "--seed")
        whole(verb.episodes, "--episodes", 10)
        if not 0.0 < self.level < 1.0:
            raise UserError(f"--level must be between 0 and 1, got {self.level:g}")
        policy = SavedPolicy.find(verb.run_, verb.store, place, name, verb.psi)
        folder = self.out or Path("results") / name / file_name(policy.trained.name)
        make_folder(folder)
        gamma = gamma_of(policy.agent) if self.gamma is None else self.gamma
        how = {"seed": self.seed, "gamma": gamma, "deterministic": self.deterministic}
        return policy, folder, how, {"undiscounted": self.undiscounted, "level": self.level}


@dataclass(frozen=True, kw_only=True)
class Certify(PolicyVerb):
    """Measure a policy and certify which limits it keeps, on one page and as JSON.

    `vpac.monitor` raises an alarm when the policy no longer does what it says.

    Exit code 3: a limit does not hold, or is undecided.

    Example: vpac certify results/train/vpac-ppo-Shop --max-ruin 0.05:0
    """

    episodes: int = 1000
    """Number of episodes."""
    keep_mean: Fraction = None
    """Limit: the mean is at least this share of the baseline's."""
    min_mean: Fraction = None
    """Limit: the mean is at least this."""
    max_std: Fraction = None
    """Limit: the standard deviation is at most this."""
    max_variance: Fraction = None
    """Limit: the variance is at most this."""
    min_cvar: Two = None
    """Limit: the worst share P of the episodes averages at least C, e.g. 0.1:100."""
    max_ruin: Two = None
    """Limit: a return below C has at most probability P, e.g. 0.05:0."""
    below: Annotated[tuple[float, ...], tyro.conf.arg(metavar="C …")] = ()
    """Returns C for which P(G < C) is bounded."""
    baseline: Annotated[str | None, tyro.conf.arg(metavar="RUN|random")] = None
    """A policy to compare with, on the same seeds; random: random actions."""
    sources: int = 100
    """Starts for the sources of the variance, up to ten episodes each; 0: leave them out."""
    stress: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A file that `vpac stress` wrote for the same policy, to be included."""
    levels: Annotated[tuple[float, ...], tyro.conf.arg(metavar="SHARE …")] = (0.05,)
    """Shares of worst episodes for VaR and CVaR."""
    measuring: Measuring = field(default_factory=Measuring)
    policy_env: PolicyEnv = field(default_factory=PolicyEnv)

    def run(self) -> int:
        """Load, measure, write, show."""
        from vpac.evaluation.certification import certify
        from vpac.lab.report.measured import CertificateSummary, write_certificate
        from vpac.lab.workers.worker import provenance

        limits = self._limits()
        check_levels(self.levels)
        policy, folder, how, measured = self.measuring.open(self, "certify", self.policy_env)
        identity, world = policy.identity(), policy.world()
        baseline, facts = self._baseline(policy)
        about = {"policy": identity, "environment": world, "baseline": facts, **how}
        made_with = provenance(any(kind.__module__.startswith("vpac.deep") for kind in type(policy.agent).__mro__))
        certificate = certify(
            policy.agent, policy.env, self.episodes, **how, **measured, alphas=self.levels, below=self.below,
            limits=limits, baseline=baseline, baseline_name=str(facts.get("name", "")), sources=self.sources,
            policy=identity, environment=world, stress=self._stress(identity, how | measured),
            about={"time": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), **made_with},
            commands=lambda seed: self._commands(seed, how["gamma"], policy, folder),
            measured=episode_cache(folder / "episodes", about), progress=not self.json,
        )  # fmt: skip
        paths = write_certificate(certificate, folder)
        with may_be_closed():
            show_summary(CertificateSummary(certificate), self.json)
            for remark in certificate.data["notes"]:
                self.say(f"note: {remark}")
            if any(one["verdict"] == "undecided" for one in certificate.data["limits"]):
                self.say(f"note: more episodes decide what is undecided, e.g. --episodes {4 * self.episodes}")
            for path in paths:
                self.say(f"wrote {path}")
        return 0 if certificate.holds else NOT_HELD

    def _limits(self) -> list[Limit]:
        from vpac.risk.budget import LIMIT_KINDS, Limit, check_kinds

        given = {kind: getattr(self, kind.replace("-", "_")) for kind in LIMIT_KINDS}
        limits = [Limit.read(kind, text) for kind, text in given.items() if text is not None]
        check_kinds(limits, self.baseline is not None)
        return limits

    def _baseline(self, policy: SavedPolicy) -> tuple[Any, dict[str, Any]]:
        """The baseline, in the environment of the policy, and its description."""
        if self.baseline in (None, "random"):
            return self.baseline, {"name": "random actions"} if self.baseline else {}
        path = policy.recipe.env if ":" in policy.recipe.env else None
        place = replace(self.policy_env, env=self.policy_env.env or path)
        other = SavedPolicy.find(str(self.baseline), self.store, place, "certify", None)
        return other.agent, other.identity()

    def _stress(self, identity: Mapping[str, Any], how: Mapping[str, Any]) -> dict[str, Any] | None:
        if self.stress is None:
            return None
        from vpac.lab.report.measured import STRESS_FORMAT, STRESS_PARTS
        from vpac.risk.certificate import read_checked

        found = read_checked(self.stress, "a stress test", STRESS_FORMAT, STRESS_PARTS)
        if (other := found["policy"]).get("files") != identity.get("files"):
            raise UserError(f"{self.stress} is of another policy, {other.get('name')!r:.80}: its files differ")
        for name in ("deterministic", "gamma", "undiscounted"):
            if (other := found["measurement"].get(name, how[name])) != how[name]:
                raise UserError(
                    f"{self.stress} was measured with {name} = {other!r:.80}, this certificate is with {how[name]!r}: give "
                    "`vpac stress` and `vpac certify` the same --deterministic, --gamma and --undiscounted"
                )
        return found

    def _commands(self, seed: int, gamma: float, policy: SavedPolicy, folder: Path) -> dict[str, str]:
        """Commands that repeat an episode and, if the environment can render, film it."""
        flags = ["--seed", str(seed), *(["--deterministic"] if self.measuring.deterministic else [])]
        flags += self.flags(self.policy_env)
        again = ["vpac", "evaluate", self.run_, "--episodes", "1", "--gamma", repr(gamma), *flags]
        found = {"replay": shlex.join([*again, "--out", str(folder / f"episode-{seed}")])}
        if "rgb_array" in policy.env.metadata.get("render_modes", ()):
            film = str(folder / f"episode-{seed}.gif")
            found["film"] = shlex.join(["vpac", "watch", self.run_, *flags, "--out", film])
        return found


@dataclass(frozen=True, kw_only=True)
class Stress(PolicyVerb):
    """Measure a policy in environments that differ from the one of training.

    Every arm plays the seeds of a control arm.

    With two options also all combinations, as a heat map.

    Example: vpac stress results/train/vpac-ppo-Shop --set demand=4,6 --noise 0.3
    """

    set: Pairs = ()
    """Arguments of the environment and the values to try, e.g. --set demand=4,5,6 price=8,10."""
    noise: NumberList = ""
    """Noise on observations, in standard deviations of each number; if discrete, the probability of observing another."""
    action_noise: NumberList = ""
    """Noise on actions, in units of half their range; if discrete, the probability of taking another."""
    delay: NumberList = ""
    """Steps by which observations are delayed."""
    drop: NumberList = ""
    """Share of observations that are lost; the previous one is repeated."""
    first_steps: NumberList = ""
    """Other start states: up to this many random actions before the policy takes over."""
    episodes: int = 200
    """Episodes of each arm."""
    env: Annotated[str | None, tyro.conf.arg(metavar="ID")] = None
    """The environment, if it was named by an import path, or another one with the same spaces."""
    wrap: Wrappers = ()
    """Wrappers instead of those of training, the innermost first; none: no wrappers."""
    measuring: Measuring = field(default_factory=Measuring)

    def run(self) -> int:
        """Load, measure every arm, write, show."""
        from vpac.evaluation.stressing import WATCHED, arms_of, stress
        from vpac.lab.report import draw
        from vpac.lab.report.measured import STRESS_FORMAT, StressSummary, heat_map

        axes = self._axes()
        policy, folder, played, measured = self.measuring.open(self, "stress", PolicyEnv(self.env, (), self.wrap))
        identity, world, how = policy.identity(), policy.world(), {**played, "episodes": self.episodes}
        about = {"policy": identity, "environment": world, "watched": min(self.episodes, WATCHED)}
        kept = episode_cache(folder / "episodes", {**about, **played})
        with steps("arms", len(arms_of(axes)), self.json) as tell:
            found = stress(
                policy.agent, lambda given: policy.recipe.make(**given), axes, **how, **measured, measured=kept, tell=tell
            )  # fmt: skip
        found = replace(found, about={"policy": identity, "environment": world, "measurement": how | measured})
        data = {"format": STRESS_FORMAT, **jsonable(found.as_dict())}
        path = write_text(folder / "stress.json", sealed(data, indent=1, allow_nan=False) + "\n")
        summary = StressSummary(data)
        draw.write(summary.charts()[0], folder)
        if len(axes) == 2:
            write_bytes(folder / "heat-map.png", heat_map(data, "png"))
        show_summary(summary, self.json)
        self.say(f"wrote {path}")
        again = self.measuring.flags() + self.flags(PolicyEnv(self.env, (), self.wrap))
        next_step(self.json, "certify", self.run_, "--stress", path, *again)
        return 0

    def _axes(self) -> list[Any]:
        from vpac.evaluation.stressing import DISTURBANCES, Axis

        found = []
        for pair in self.set:
            name, equals, text = pair.partition("=")
            if not equals or not name.isidentifier() or not text:
                raise UserError(f"cannot read {pair!r}: expected KEY=VALUE,VALUE,…, for example demand=4,5,6")
            env_arguments([pair])
            if name in DISTURBANCES:
                raise UserError(f"--set {name} could also mean --{name}: wrap the environment under another argument")
            found.append(Axis(name, tuple(map(read_value, split_values(text)))))
        for name in DISTURBANCES:
            text = getattr(self, name.replace("-", "_"))
            if text:
                found.append(Axis(name, tuple(_number(name, one) for one in text.split(","))))
        if not found:
            raise UserError("nothing to change: give --set, --noise, --action-noise, --delay, --drop or --first-steps")
        return found


def split_values(text: str) -> list[str]:
    """ "4,5,[1,2]" → ["4", "5", "[1,2]"]: commas inside brackets, also nested ones, and quotes belong to the value."""
    return re.findall(r'(?:"[^"]*"|\[(?:[^][]|\[[^]]*\])*\]|\{[^}]*\}|[^,])+', text)


def _number(name: str, text: str) -> float | int:
    value = read_value(text)
    counted = name in ("delay", "first-steps")
    if isinstance(value, bool) or not isinstance(value, int if counted else int | float) or value < 0:
        kind = "whole numbers" if counted else "numbers that are not negative"
        raise UserError(f"cannot read --{name} {text}: expected {kind} with commas between them, e.g. 1,2")
    return value
