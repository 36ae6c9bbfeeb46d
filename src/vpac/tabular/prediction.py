"""Policy evaluation: errors of the direct and the indirect variance critic during learning.

Sherstan et al. (2018) found the direct critic better behaved: with a noisy value, with traces, off-policy. The paper relies on
it; here it is measured. The policy is fixed. One walk of the behaviour policy trains Q̂ and, from it, both critics:

    Q̂ ← Q̂ + α_w δ e          δ = R + γ ρ' Q̂' − Q̂
    σ̂ ← σ̂ + α_z δ̄ ē          δ̄ = δ² + γ² ρ'² σ̂' − σ̂                     direct, VPAC
    M̂ ← M̂ + α_z δ̄ ē          δ̄ = R² + 2 γ R ρ' Q̂' + γ² ρ'² M̂' − M̂       indirect, VAAC_TD: M̂ − Q̂² is the variance

The errors are those of the learners (`update.td_errors`). Traces accumulate; at step t, before α is applied,

    e ← γ λ_w c e + 1[S_t, A_t]       ē ← γ² λ_z c̄ ē + 1[S_t, A_t]

σ and M are sums discounted by γ², hence ē's decay. As their errors contain ρ and ρ², the traces contain c = ρ_t and c̄ = ρ_t²;
with expected critics both are min(1, ρ_t), as in Retrace(λ) (Munos et al., 2016). A trace depends on the past only, and at the
fixed point the mean error of every pair is zero, so the fixed point does not depend on λ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vpac.algorithms import DEFAULT_GAMMA
from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError, one_of
from vpac.oracle.gradient import stationary_distribution
from vpac.oracle.occupancy import visits
from vpac.oracle.off_policy import CRITICS, Critics, check_behaviour, evaluate_off_policy, variance_given_value
from vpac.oracle.policies import check_policy
from vpac.risk.schedules import Schedule, as_schedule
from vpac.tabular import arrays as codes
from vpac.tabular.arrays import EXPECTED, Settings
from vpac.tabular.environment import World, compile_mdp, move, observe, reset
from vpac.tabular.kernel.generator import RngState, generator, pick
from vpac.tabular.kernel.jit import compiled, inlined
from vpac.tabular.options import OffPolicyOptions
from vpac.tabular.update import Choice, Transition, ratios, td_errors
from vpac.typing import FloatArray, IntArray


class Walk(NamedTuple):
    """Estimates, traces, and the position of the walk between two measurements."""

    value: FloatArray
    """Q̂, [S, A]."""
    variance: FloatArray
    """σ̂, direct."""
    moment: FloatArray
    """M̂, indirect."""
    trace: FloatArray
    """e."""
    trace_bar: FloatArray
    """ē, for both σ̂ and M̂."""
    position: FloatArray
    here: IntArray
    there: IntArray
    clock: IntArray
    """The next action, and the steps of the episode so far; 0 steps: a new episode begins."""

    @classmethod
    def make(cls, shape: tuple[int, ...]) -> Walk:
        """All zero, before the first episode."""
        value, variance, moment, trace, trace_bar = np.zeros((5, *shape))
        here, there = np.zeros(1, np.int64), np.zeros(1, np.int64)
        return cls(value, variance, moment, trace, trace_bar, np.zeros(2), here, there, np.zeros(2, np.int64))


@compiled
def walk_on(
    world: World, direct: Settings, indirect: Settings, policy: FloatArray, behaviour: FloatArray, lambda_w: float,
    lambda_z: float, alpha_w: FloatArray, alpha_z: FloatArray, walk: Walk, rng: RngState,
) -> None:  # fmt: skip
    """Take as many steps as there are step sizes."""
    q, sigma, moment = walk.value, walk.variance, walk.moment
    position, here, there = walk.position, walk.here, walk.there
    action, age = walk.clock[0], walk.clock[1]
    for step in range(len(alpha_w)):
        if age == 0:
            reset(world, position, rng)
            observe(world, position, here)
            action = pick(behaviour[here[0]], rng)
            _fade(walk.trace, lambda_w, 0.0)
            _fade(walk.trace_bar, lambda_z, 0.0)
        state = here[0]
        rho = ratios(direct, policy[state], behaviour[state], action).rho
        reward, terminated = move(world, position, action, rng)
        observe(world, position, there)
        next_policy, next_choice = policy[there[0]], Choice(action, 1.0, 1.0, 0.0)
        if not terminated:
            next_behaviour = behaviour[there[0]]
            next_choice = ratios(direct, next_policy, next_behaviour, pick(next_behaviour, rng))
        t = Transition(here, policy[state], action, reward, terminated, there, next_policy, next_choice)
        before = q[state, action]
        delta, delta_direct = td_errors(direct, q, sigma, before, sigma[state, action], t)
        _, delta_indirect = td_errors(indirect, q, moment, before, moment[state, action], t)
        expected = direct.ratios == EXPECTED
        kept, kept_bar = (min(1.0, rho), min(1.0, rho)) if expected else (rho, rho * rho)
        _fade(walk.trace, lambda_w, direct.gamma * kept)
        _fade(walk.trace_bar, lambda_z, direct.gamma * direct.gamma * kept_bar)
        walk.trace[state, action] += 1.0
        walk.trace_bar[state, action] += 1.0
        _move(q, walk.trace, lambda_w, state, action, alpha_w[step] * delta)
        _move(sigma, walk.trace_bar, lambda_z, state, action, alpha_z[step] * delta_direct)
        _move(moment, walk.trace_bar, lambda_z, state, action, alpha_z[step] * delta_indirect)
        age += 1
        if terminated or age == direct.limit:
            age = 0
        here[0], action = there[0], next_choice.action
    walk.clock[0], walk.clock[1] = action, age


@inlined
def _fade(trace: FloatArray, lam: float, factor: float) -> None:
    """trace ← λ · factor · trace; skipped if λ = 0."""
    if lam > 0.0:
        flat = trace.reshape(trace.size)  # one loop, for vector instructions
        for pair in range(len(flat)):
            flat[pair] *= lam * factor


@inlined
def _move(estimate: FloatArray, trace: FloatArray, lam: float, state: int, action: int, amount: float) -> None:
    """estimate ← estimate + amount · trace; with λ = 0 only for the current pair."""
    if lam > 0.0:
        every, each = estimate.reshape(estimate.size), trace.reshape(trace.size)
        for pair in range(len(every)):
            every[pair] += amount * each[pair]
    else:
        estimate[state, action] += amount


MOMENT_ROUNDING = 1e-9
"""A variance below −MOMENT_ROUNDING times the largest second moment counts as negative; above it may be rounding."""


@dataclass(frozen=True)
class Truth:
    """Exact values that the critics are compared with."""

    action_value: FloatArray
    """Exact fixed point Q(s,a) of these critics, [S, A]."""
    action_variance: FloatArray
    """σ(s,a) likewise."""
    shares: FloatArray
    """Weight of each pair, [S, A]; they add up to one."""

    def rms(self, error: FloatArray) -> float:
        """Weighted root mean square; inf if something is not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = float(np.sqrt((self.shares * error**2)[self.shares > 0.0].sum()))
        return found if np.isfinite(found) else np.inf


@dataclass(frozen=True)
class Prediction:
    """Settings of a policy evaluation."""

    gamma: float = DEFAULT_GAMMA
    """Discount factor."""
    alpha_w: float | str | Schedule = 0.1
    """Step size of Q̂: a number, or a schedule whose t counts steps, e.g. "robbins-monro:0.5:0.8:1000"."""
    alpha_z: float | str | Schedule = 0.1
    """Step size of σ̂ and of M̂."""
    lambda_w: float = 0.0
    """λ of the value's traces; 0: none."""
    lambda_z: float = 0.0
    """λ of the traces of σ̂ and M̂."""
    critics: Critics = "importance"
    """The kind of critics, off-policy; on-policy "importance" and "clipped" are Algorithm 1's and "expected" averages over
    the next action."""
    value_noise: float | None = None
    """None: Q̂ is learned. A number: Q̂ is held at the exact Q plus normal noise of this standard deviation, drawn once a run."""
    steps: int = 100_000
    """Steps of a run, over all its episodes."""
    points: int = 60
    """Number of measurements, evenly spaced in the logarithm of the number of steps."""
    max_episode_steps: int | None = None
    """Truncate episodes after this many steps; None: never, and an MDP without an end is one long episode."""
    weighting: Literal["visits", "uniform"] = "visits"
    """Weight errors by the behaviour policy's share of time in each pair (exact), or equally over non-terminal pairs."""

    def __post_init__(self) -> None:
        for name in ("gamma", "lambda_w", "lambda_z"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"{name} must be a number from 0 to 1, got {getattr(self, name)!r}")
        for name in ("alpha_w", "alpha_z"):
            as_schedule(getattr(self, name), name)
        for name in ("steps", "points", "max_episode_steps"):
            if (count := getattr(self, name)) is not None and count < 1:
                raise UserError(f"{name} must be a whole number from 1 up, got {count!r}")
        if self.value_noise is not None and not (np.isfinite(self.value_noise) and self.value_noise >= 0.0):
            raise UserError(f"value_noise must be a finite number that is not negative, got {self.value_noise!r}")
        one_of(self.critics, CRITICS, "kind of critics")
        one_of(self.weighting, ("visits", "uniform"), "weighting")

    def run(
        self, mdp: FiniteMDP, policy: ArrayLike, seed: int = 0, behaviour: ArrayLike | None = None,
        truth: Truth | None = None,
    ) -> dict[str, FloatArray]:  # fmt: skip
        """One run: columns of `points` numbers (fewer if `steps` is small).

        `steps`; root mean square errors `value_error`, `direct_error`, `indirect_error`; mean errors `direct_bias`,
        `indirect_bias`; shares of negative variances `direct_negative`, `indirect_negative`. A diverged estimate has the error
        inf and the mean error NaN. Pass `truth` (of `self.truth(mdp, policy, behaviour)`) to avoid computing it for each run;
        `behaviour` is the target policy by default.
        """
        target = check_policy(mdp, policy)
        table = target if behaviour is None else check_behaviour(mdp, target, behaviour)
        truth = truth or self.truth(mdp, target, table)
        walk = Walk.make(target.shape)
        alpha_w = as_schedule(self.alpha_w)
        if self.value_noise is not None:
            walk.value[:], alpha_w = self._noisy(truth, seed), as_schedule(0.0)
        rng, alpha_z = generator(_streams(seed)[1]), as_schedule(self.alpha_z)
        world, direct, indirect = compile_mdp(mdp), self._settings(codes.DIRECT), self._settings(codes.INDIRECT)
        lambdas = float(self.lambda_w), float(self.lambda_z)
        rows, done = [], 0
        for until in log_spaced(self.steps, self.points):
            rates = alpha_w.values(until - done, done), alpha_z.values(until - done, done)
            with np.errstate(all="ignore"):
                walk_on(world, direct, indirect, target, table, *lambdas, *rates, walk, rng)
                rows.append((float(until), *_measured(walk, truth)))
            done = until
        return dict(zip(PREDICTION_COLUMNS, np.array(rows).T, strict=True))

    def limits(
        self, mdp: FiniteMDP, policy: ArrayLike, seed: int = 0, behaviour: ArrayLike | None = None,
        truth: Truth | None = None,
    ) -> dict[str, float]:  # fmt: skip
        """Exact `direct_error` and `indirect_error` at the fixed points of a run with the same noise."""
        target = check_policy(mdp, policy)
        truth = truth or self.truth(mdp, target, behaviour)
        found = variance_given_value(mdp, target, self._noisy(truth, seed), self.gamma, behaviour, self.critics)
        direct, indirect = (truth.rms(variance - truth.action_variance) for variance in found)
        return {"direct_error": direct, "indirect_error": indirect}

    def truth(self, mdp: FiniteMDP, policy: ArrayLike, behaviour: ArrayLike | None = None) -> Truth:
        """The fixed points of the critics, and the weight of each pair."""
        table = check_policy(mdp, policy if behaviour is None else behaviour)
        exact = evaluate_off_policy(mdp, policy, table, self.gamma, self.critics)
        shares = np.where(mdp.terminal[:, None], 0.0, 1.0) * np.ones_like(table)
        if self.weighting == "visits":
            shares = shares * table * self._time(mdp, table)[:, None]
        counted = shares > 0.0
        if not (np.isfinite(exact.action_value[counted]).all() and np.isfinite(exact.action_variance[counted]).all()):
            raise UserError(
                f"{self.critics} critics have no finite variance here: the spectral radius of γ² E_b[ρ²] is "
                f"{exact.spectral_radius:.3g}; take a behaviour policy nearer to the target, or critics='expected'"
            )
        return Truth(exact.action_value, exact.action_variance, shares / shares.sum())

    def _time(self, mdp: FiniteMDP, behaviour: FloatArray) -> FloatArray:
        if self.max_episode_steps is None and not mdp.terminal.any():
            return stationary_distribution(mdp, behaviour)
        time = visits(mdp, behaviour, 1.0, self.max_episode_steps)
        if not np.isfinite(time).all():
            raise UserError("the behaviour policy may never end: pass max_episode_steps=…")
        return time

    def _noisy(self, truth: Truth, seed: int) -> FloatArray:
        noise = np.random.default_rng(_streams(seed)[0]).standard_normal(truth.action_value.shape)
        return truth.action_value + (self.value_noise or 0.0) * noise

    def _settings(self, critic: int) -> Settings:
        options = OffPolicyOptions(gamma=self.gamma, critics=self.critics)
        return options.compile(critic, self.max_episode_steps or np.iinfo(np.int64).max)


def log_spaced(total: int, points: int) -> list[int]:
    """Whole numbers from 10 to `total`, at most `points`, evenly spaced in their logarithm."""
    spaced = np.geomspace(min(10, total), total, points)[:-1].round().astype(int)
    return [int(point) for point in np.unique(np.append(spaced, total))]


def _streams(seed: int) -> list[np.random.SeedSequence]:
    """Random streams of the value's noise and of the walk: the walk is the same for every noise."""
    return np.random.SeedSequence(seed).spawn(2)


PREDICTION_COLUMNS = (
    "steps", "value_error", "direct_error", "indirect_error", "direct_bias", "indirect_bias", "direct_negative",
    "indirect_negative",
)  # fmt: skip


def _measured(walk: Walk, truth: Truth) -> tuple[float, ...]:
    """The columns after `steps`."""
    found = walk.variance, walk.moment - walk.value**2
    largest = np.abs(truth.action_variance + truth.action_value**2)[truth.shares > 0.0].max()
    errors = [variance - truth.action_variance for variance in found]
    return (
        truth.rms(walk.value - truth.action_value),
        *(truth.rms(error) for error in errors),
        *(float((truth.shares * error)[truth.shares > 0.0].sum()) for error in errors),
        *(float(truth.shares[variance < -MOMENT_ROUNDING * largest].sum()) for variance in found),
    )
