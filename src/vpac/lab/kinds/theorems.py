"""The trial of the theorems: relative error and cosine of every formula in every environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from vpac import oracle
from vpac.envs.finite_mdp import FiniteMDP
from vpac.envs.make import make_env
from vpac.lab.experiments.theorems import SEED, TRIAL_WORLDS, TrialWorld
from vpac.lab.store.backend import Scratch
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result
from vpac.oracle.complex_step import complex_step_gradient
from vpac.oracle.gradient import Form
from vpac.typing import FloatArray

HOLDS = 1e-8
"""A formula holds if its relative error is below this."""
LARGEST_RADIUS = 0.995
"""Limit of the spectral radius of γ² E_b[ρ²]: off-policy, targets are moved towards the behaviour policy until it is below."""
GRADIENT_FORMS: tuple[tuple[Form, str], ...] = (("published", "published"), ("exact", "corrected"))


def perform(run: Run, _: Scratch) -> Result:
    """Compare every formula of the paper with the derivative itself, in one environment."""
    world = next(world for world in TRIAL_WORLDS if world.name == run.task["settings"]["world"])
    rows = [
        (verdict.world, verdict.formula, verdict.form, policy, error, cosine)
        for verdict in try_world(world, seed_of(world))
        for policy, (error, cosine) in enumerate(zip(verdict.relative_errors, verdict.cosines, strict=True))
    ]
    names = ("world", "formula", "form", "policy", "error", "cosine")
    return Result({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}, {}, {})


@dataclass(frozen=True)
class GradientVerdict:
    """One formula, in one form, in one environment: its errors over the tested policies."""

    world: str
    formula: str
    form: str
    """`published` or `corrected`; identities have only the published form."""
    relative_errors: tuple[float, ...]
    """‖formula − truth‖ / ‖truth‖ for each policy, of the variance term alone."""
    cosines: tuple[float, ...]
    """Cosine of the angle between formula and truth for each policy."""

    @property
    def holds(self) -> bool:
        """Whether the formula is right at every tested policy."""
        return max(self.relative_errors) < HOLDS


def seed_of(world: TrialWorld) -> np.random.SeedSequence:
    """Seed of the policies that are tried in a world."""
    return np.random.SeedSequence(SEED).spawn(len(TRIAL_WORLDS))[TRIAL_WORLDS.index(world)]


def try_world(world: TrialWorld, seed: np.random.SeedSequence) -> list[GradientVerdict]:
    """Every formula in one world."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for mdp, theta in _cases(world, np.random.default_rng(seed)):
        for key, form, value, truth in _compare(mdp, theta, world.gamma):
            found.setdefault((key, form), []).append((relative_error(value, truth), cosine(value, truth)))
    return [
        GradientVerdict(world.name, key, form, tuple(e for e, _ in pairs), tuple(c for _, c in pairs))
        for (key, form), pairs in found.items()
    ]


def relative_error(value: FloatArray, truth: FloatArray) -> float:
    """‖value − truth‖ / ‖truth‖."""
    return float(np.linalg.norm(value - truth) / np.linalg.norm(truth))


def cosine(value: FloatArray, truth: FloatArray) -> float:
    """Cosine of the angle between two arrays; 0 if one of them is zero."""
    size = float(np.linalg.norm(value) * np.linalg.norm(truth))
    return float(np.vdot(value, truth)) / size if size > 0.0 else 0.0


def _cases(world: TrialWorld, rng: np.random.Generator) -> Iterator[tuple[FiniteMDP, FloatArray]]:
    for _ in range(world.policies):
        if world.env is None:
            mdp = random_process(rng, **world.kwargs)
        else:
            mdp = FiniteMDP.from_gymnasium(make_env(world.env, **world.kwargs))
        yield mdp, rng.normal(scale=0.5, size=(mdp.n_states, mdp.n_actions))


CurvePair = tuple[str, str, FloatArray, FloatArray]


def _compare(mdp: FiniteMDP, theta: FloatArray, gamma: float) -> Iterator[CurvePair]:
    """(formula, form, its value, the truth) for one policy."""
    policy, behaviour = oracle.softmax(theta), oracle.uniform(mdp)
    moments = oracle.evaluate(mdp, policy, gamma)
    indirect = moments.action_second_moment - moments.action_value**2
    yield "theorem-1", "published", moments.action_variance, indirect

    near = nearer_target(mdp, theta, gamma)
    off_policy = oracle.evaluate_off_policy(mdp, oracle.softmax(near), behaviour, gamma)
    indirect = _importance_variance(mdp, oracle.softmax(near), behaviour, gamma)
    yield "theorem-3", "published", off_policy.action_variance, indirect
    truth = _of_variance(partial(complex_step_gradient, mdp, near, gamma, behaviour=behaviour))
    for form, name in GRADIENT_FORMS:
        value = _of_variance(partial(oracle.gradient, mdp, near, gamma, form=form, behaviour=behaviour))
        yield "theorem-4", name, value, truth

    truth = _of_variance(partial(complex_step_gradient, mdp, theta, gamma, variance_of="action"))
    state_truth = _of_variance(partial(complex_step_gradient, mdp, theta, gamma, variance_of="state"))
    for form, name in GRADIENT_FORMS:
        yield "theorem-2", name, _of_variance(partial(oracle.gradient, mdp, theta, gamma, form=form)), truth
        vaac = _of_variance(
            partial(oracle.gradient, mdp, theta, gamma, form=form, variance_of="state", algorithm="vaac")
        )
        yield "vaac", name, vaac, state_truth
    yield from _compare_state_critics(mdp, theta, gamma, state_truth)


def nearer_target(mdp: FiniteMDP, theta: FloatArray, gamma: float) -> FloatArray:
    """θ, halved until the importance-weighted return has a variance under the uniform behaviour policy.

    Long episodes need this: already for θ ~ N(0, 1/4) the squared ratios grow faster than γ² shrinks in most environments.
    """
    uniform = oracle.uniform(mdp)
    while oracle.evaluate_off_policy(mdp, oracle.softmax(theta), uniform, gamma).spectral_radius >= LARGEST_RADIUS:
        theta = theta / 2.0
    return theta


def _compare_state_critics(
    mdp: FiniteMDP, theta: FloatArray, gamma: float, state_truth: FloatArray
) -> Iterator[CurvePair]:
    """PPO's form: from the start if episodes end, averaged over visited states if they do not."""
    weighting: Literal["start", "uniform"] = "start" if mdp.terminal.any() else "uniform"
    truth = state_truth
    if weighting == "uniform":
        shares = oracle.stationary_distribution(mdp, oracle.softmax(theta))
        settled = mdp.with_start(shares / shares.sum())
        truth = (1.0 - gamma) * _of_variance(partial(complex_step_gradient, settled, theta, gamma, variance_of="state"))
    for form, name in GRADIENT_FORMS:
        value = _of_variance(partial(oracle.state_critic_gradient, mdp, theta, gamma, form=form, weighting=weighting))
        yield "ppo", name, value, truth


def _of_variance(direction: Callable[..., FloatArray]) -> FloatArray:
    """The part of a direction that multiplies −ψ; every direction is affine in ψ."""
    return direction(psi=0.0) - direction(psi=1.0)


def _importance_variance(mdp: FiniteMDP, policy: FloatArray, behaviour: FloatArray, gamma: float) -> FloatArray:
    """Variance of the importance-weighted return from its second moment, over states and actions."""
    pairs = mdp.n_states * mdp.n_actions
    state = mdp.successor

    def step(weights: FloatArray, entries: FloatArray) -> FloatArray:
        matrix = np.zeros((pairs, mdp.n_states, mdp.n_actions))
        np.add.at(matrix, (mdp.row, state), entries[:, None] * weights[state])
        return matrix.reshape(pairs, pairs)

    twice = policy**2 / behaviour
    mean = np.bincount(mdp.row, mdp.probability * mdp.reward, pairs)
    action_value = np.linalg.solve(np.eye(pairs) - gamma * step(policy, mdp.probability), mean)
    square = np.bincount(mdp.row, mdp.probability * (mdp.reward**2 + mdp.noise), pairs)
    square = square + 2.0 * gamma * step(policy, mdp.probability * mdp.reward) @ action_value
    moment = np.linalg.solve(np.eye(pairs) - gamma**2 * step(twice, mdp.probability), square)
    return (moment - action_value**2).reshape(mdp.n_states, mdp.n_actions)


def random_process(
    rng: np.random.Generator, n_states: int = 6, n_actions: int = 3, noise: float = 0.0, ends: bool = True
) -> FiniteMDP:
    """Dirichlet transitions, normal mean rewards, gamma-distributed reward variances of the given mean."""
    shape = (n_states, n_actions, n_states)
    transition = rng.dirichlet(np.full(n_states, 0.7), size=(n_states, n_actions))
    terminal = np.arange(n_states) == (n_states - 1 if ends else -1)
    start = np.append(rng.dirichlet(np.ones(n_states - 1)), 0.0) if ends else rng.dirichlet(np.ones(n_states))
    return FiniteMDP(transition, rng.normal(size=shape), noise * rng.gamma(1.0, size=shape), start, terminal)
