"""`vpac.certify`: measure a policy so that others can check it.

Every episode has its own seed and is the one that `vpac.evaluate(agent, env, 1, seed=seed)` plays. So the worst ones can be
repeated and filmed one by one, and a baseline gets the same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from vpac.checks import whole
from vpac.deep.spaces import Interface
from vpac.envs.make import name_of
from vpac.envs.observations import MASK, allowed_action, arranged, has_masks
from vpac.errors import UserError, one_of
from vpac.evaluation.actors import gamma_of
from vpac.evaluation.play import agent_name, episode_seeds, evaluate, evaluate_each, is_users, one_environment
from vpac.evaluation.sources import variance_sources
from vpac.files import jsonable
from vpac.oracle.moments import check_gamma
from vpac.risk.budget import Limit, check_kinds
from vpac.risk.certificate import CERTIFICATE_FORMAT, PolicyCertificate, episodes_of
from vpac.risk.compare import compare_paired
from vpac.risk.intervals import Interval, probability_below, uniform_margin, uniform_probability_below
from vpac.risk.monitoring import delay_rows, monitor
from vpac.risk.sample import ReturnSample

WORST = 5
"""Episodes that are shown and repeated."""
CVAR_SHARES = (0.01, 0.05, 0.1, 0.25, 0.5)
"""Quantiles of the sample at which P(G < c) is always bounded."""
Progress = bool | Callable[[int, int], object]


def certify(
    agent: Any, env: Any, episodes: int = 1000, *, seed: int = 0, gamma: float | None = None, deterministic: bool = False,
    undiscounted: bool = False, level: float = 0.95, alphas: Sequence[float] = (0.05,), below: Sequence[float] = (),
    limits: Sequence[Limit] = (), baseline: Any = None, baseline_name: str = "", sources: int = 100,
    stress: Mapping[str, Any] | None = None, policy: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None, about: Mapping[str, Any] | None = None,
    commands: Callable[[int], Mapping[str, str]] = lambda seed: {},
    measured: Callable[[str, Callable[..., ReturnSample]], ReturnSample] = lambda name, play: play(),
    progress: Progress = False,
) -> PolicyCertificate:  # fmt: skip
    """Measure a policy and record which limits it keeps.

    Args:
        agent: as for `evaluate`.
        env: as for `evaluate`, but not a vector environment.
        episodes: number of episodes.
        seed: seed of all randomness.
        gamma: discount factor; default: the agent's own, or 0.99.
        deterministic: certify the policy of the most likely actions instead of the sampled ones.
        undiscounted: certify the sum of rewards instead of the discounted return.
        level: the confidence of each interval.
        alphas: shares of worst episodes for VaR and CVaR.
        below: returns c at which P(G < c) is bounded.
        limits: limits that the policy should keep.
        baseline: another agent, which plays the same seeds; "random": random actions.
        baseline_name: its name.
        sources: starts for the sources of the variance, up to ten episodes each; 0: leave them out.
        stress: the result of `vpac.evaluation.stress` (`StressTest.as_dict`) for the same policy.
        policy: description of the policy for readers: its name, files and hashes.
        environment: description of the environment for readers: its arguments and wrappers.
        about: versions, machine, time.
        commands: commands that repeat the episode with a seed, by their purpose.
        measured: called with the name of a sample and a function that measures it, which takes `before` and `keep` as
            `evaluate_each` does, to store it or to load it.
        progress: as for `evaluate`.
    """
    check_kinds(limits, baseline is not None)
    gamma = gamma_of(agent) if gamma is None else check_gamma(gamma)
    how: dict[str, Any] = {"gamma": gamma, "deterministic": deterministic}
    seeds, sources = episode_seeds(seed, whole(episodes, "episodes", 10)), whole(sources, "sources")

    def sample_of(name: str, who: Any) -> ReturnSample:
        found = measured(name, partial(evaluate_each, who, env, seeds, progress=progress, **how))
        return found.undiscounted if undiscounted else found

    sample = sample_of("policy", agent)
    rival, called = baseline, baseline_name
    if isinstance(baseline, str):
        one_of(baseline, ("random",), "baseline")
        rival, called = RandomActions(env), called or "random actions"
    other = None if rival is None else sample_of("baseline", rival)
    notes, found_sources = [*sample.notes()], None
    if sources:
        given = how | {"seed": seed, "level": level, "progress": progress, "gamma": 1.0 if undiscounted else gamma}
        try:
            found = variance_sources(agent, env, sources, measured=measured, **given)
            found_sources = asdict(found) | {"exact": None if found.exact is None else found.exact._asdict()}
        except UserError as error:
            notes.append(f"where the variance comes from was not measured: {error}")
    order = np.argsort(sample.returns, kind="stable")
    worst = [_worst(agent, env, sample, int(number), seeds, how, commands) for number in order[:WORST]]
    if not all(one["repeats"] for one in worst):
        notes.append("some of the worst episodes did not repeat themselves: the environment does not obey its seed")
    data = {
        "format": CERTIFICATE_FORMAT, "about": dict(about or {}), "policy": {"name": agent_name(agent)} | dict(policy or {}),
        "environment": {"env": name_of(env)} | dict(environment or {}),
        "measurement": {"episodes": len(sample), "seed": seed, "kind": sample.kind, "level": level, **how},
        "episodes": {"seed": seeds, **episodes_of(sample)},
        "metrics": _metrics(sample, level, alphas) | {"unseen": sample.unseen(level)},
        "below": _below(sample, sorted({*below, *(limit.at for limit in limits if limit.kind == "max-ruin")}), level),
        "worst": worst, "sources": found_sources,
        "baseline": None if other is None else _compared(sample, other, called or agent_name(rival), level),
        "limits": [limit.judge(sample, level, other) for limit in limits], "stress": None if stress is None else dict(stress),
        "monitor": delay_rows(monitor(sample), trials=100), "notes": notes,
    }  # fmt: skip
    return PolicyCertificate(jsonable(data))


class RandomActions:
    """Random actions, uniform over all actions or over those that masks allow.

    Args:
        env: the environment, as for `evaluate`.
    """

    def __init__(self, env: Any) -> None:
        made = one_environment(env, True)
        self._space = deepcopy(made.action_space)
        if has_masks(made, reset=True):
            self.interface = Interface.of(arranged(made, True).observation_space, self._space, name_of(env))
        if not is_users(made, env):
            made.close()

    def act(self, observations: Any, generator: np.random.Generator, deterministic: bool = False) -> Any:
        """An action for each observation."""
        if isinstance(observations, dict) and MASK in observations:
            return np.stack([allowed_action(self._space, row.astype(bool), generator) for row in observations[MASK]])
        self._space.seed(int(generator.integers(2**31)))
        return np.stack([np.asarray(self._space.sample()) for _ in observations])


def _worst(
    agent: Any, env: Any, sample: ReturnSample, number: int, seeds: Sequence[int], how: Mapping[str, Any],
    commands: Callable[[int], Mapping[str, str]],
) -> dict[str, Any]:  # fmt: skip
    again = evaluate(agent, env, 1, seed=seeds[number], **how)
    same = again.undiscounted_returns[0] == sample.undiscounted_returns[number]
    return {
        "episode": number, "seed": seeds[number], "return": sample.discounted_returns[number],
        "undiscounted": sample.undiscounted_returns[number], "length": sample.lengths[number],
        "ended": "terminated" if sample.terminated[number] else "truncated", "repeats": same,
        "commands": dict(commands(seeds[number])),
    }  # fmt: skip


def _metrics(sample: ReturnSample, level: float, alphas: Sequence[float]) -> dict[str, Any]:
    return {
        kind: {row.name: asdict(row.interval) for row in getattr(sample, kind).rows(level, alphas)}
        for kind in ("discounted", "undiscounted")
    }


def _below(sample: ReturnSample, named: Sequence[float], level: float) -> list[dict[str, Any]]:
    """Bounds of P(G < c): Clopper–Pearson's only for thresholds that were named before the sample was seen."""
    rows = []
    for c in sorted({*named, *(sample.quantile(share) for share in CVAR_SHARES)}):
        bounds = uniform_probability_below(sample.returns, c, level=level).tolist()
        exact = asdict(probability_below(sample.returns, c, level=level)) if c in named else None
        rows.append({
            "threshold": float(c), "named": c in named, "uniform": asdict(Interval(*bounds)),
            "count": int(np.count_nonzero(sample.returns < c)), "episodes": len(sample),
            "margin": uniform_margin(len(sample), level=level), "clopper_pearson": exact,
        })  # fmt: skip
    return rows


def _compared(sample: ReturnSample, other: ReturnSample, name: str, level: float) -> dict[str, Any]:
    return {
        "name": name,
        "comparison": compare_paired(sample.returns, other.returns, level=level).as_dict(),
        "metrics": _metrics(other, level, (0.05,))[sample.kind],
        "episodes": episodes_of(other),
    }
