"""Mean and variance of the return of a policy, exactly.

Theorem 1 of the paper, on-policy:

    Q(s,a) = E[R + γ V(S')]            V(s) = Σ_a π(a|s) Q(s,a)
    σ(s,a) = E[δ² + γ² σ(S',A')],      δ = R + γ Q(S',A') − Q(s,a)

E[δ² | s,a] is an average over the next state and action. The action's part is the spread of Q(S', ·) around V(S'), so

    E[δ²] = E[(R + γ V(S') − Q(s,a))² + γ² Σ_a' π(a'|S') (Q(S',a') − V(S'))²]

and both equations become linear systems over states. If episodes are cut off after H steps the recursion goes backwards: with
h steps to go, V_0 = 0, Var_0 = 0, M_0 = 0 and

    V_h(s)   = E[R + γ V_{h−1}(S')]
    Var_h(s) = E[(R + γ V_{h−1}(S') − V_h(s))² + γ² Var_{h−1}(S')]
    M_h(s)   = E[R² + 2γ R V_{h−1}(S') + γ² M_{h−1}(S')]

The last step of the recursion is also taken given the action, which gives Q, σ and M by state and action.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vpac.envs.finite_mdp import FiniteMDP, row_sums
from vpac.errors import UserError, one_of
from vpac.oracle import occupancy
from vpac.oracle.linear import Chain, backup, look_ahead
from vpac.oracle.policies import check_policy
from vpac.typing import BoolArray, FloatArray

VarianceOf = Literal["action", "state", "return"]
VARIANCES: tuple[VarianceOf, ...] = ("action", "state", "return")
LONGEST_HORIZON = 100_000
"""Steps of a horizon, each of which is computed."""


@dataclass(frozen=True, repr=False)
class Moments:
    """Exact moments of the return of a policy, by state, by state and action, and over the start distribution.

    For a batch of policies [..., S, A] every array has the same leading axes. With γ = 1, states that the start never
    leads to and from which the policy may never end have no moments: they hold NaN.
    """

    mdp: FiniteMDP
    """The process."""
    policy: FloatArray
    """π[..., S, A]."""
    gamma: float
    """Discount factor."""
    horizon: int | None
    """Episodes are cut off after this many steps; None: never."""
    value: FloatArray
    """V(s) = E[G | s], [..., S]."""
    action_value: FloatArray
    """Q(s,a) = E[G | s, a], [..., S, A]."""
    action_variance: FloatArray
    """σ(s,a) = Var(G | s, a), [..., S, A]."""

    def __repr__(self) -> str:
        numbers = f"{self.mean.size} policies"
        if self.mean.ndim == 0:
            numbers = f"mean={self.mean:.6g}, total_variance={self.total_variance:.6g}"
        return f"Moments({numbers}, gamma={self.gamma:g}, {self.mdp!r})"

    @cached_property
    def variance(self) -> FloatArray:
        """Var(G | s): the variance after each action and the spread between actions, [..., S]."""
        return average(self.policy, self.action_variance + (self.action_value - self.value[..., None]) ** 2)

    @cached_property
    def mean(self) -> FloatArray:
        """E[G] over the start distribution; a number, or one for each policy of a batch."""
        return self._over_start(self.value)

    @cached_property
    def total_variance(self) -> FloatArray:
        """Var(G), the start state's share included."""
        return self._over_start(self.variance + (self.value - self.mean[..., None]) ** 2)

    @property
    def std(self) -> FloatArray:
        """Standard deviation of the return."""
        return np.sqrt(self.total_variance)

    @property
    def sharpe(self) -> FloatArray:
        """Mean over standard deviation; ±inf where the return does not vary."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.divide(self.mean, self.std)

    def variance_of(self, kind: VarianceOf) -> FloatArray:
        """The variance that is penalised: E[σ(S0,A0)] ("action"), E[Var(G|S0)] ("state"), Var(G) ("return")."""
        one_of(kind, VARIANCES, "variance_of")
        if kind == "return":
            return self.total_variance
        return self._over_start(self.variance if kind == "state" else average(self.policy, self.action_variance))

    @cached_property
    def action_second_moment(self) -> FloatArray:
        """M(s,a) = E[G² | s, a] by its own Bellman equation, not from σ: E[R² + 2γ R V(S') + γ² M(S')]."""
        if self.horizon is not None:
            return action_second_moment_to_go(self.mdp, self.policy, self.gamma, self.horizon)
        mdp, gamma, kept = self.mdp, self.gamma, _defined(self.mdp, self.policy, self.gamma)
        next_value = self.value[..., mdp.successor]
        immediate = backup(mdp, mdp.reward**2 + mdp.noise + 2.0 * gamma * mdp.reward * next_value)
        moment = Chain(mdp, self.policy).accumulate(gamma**2, average(self.policy, immediate, kept), kept)
        return immediate + gamma**2 * look_ahead(mdp, moment)

    @cached_property
    def second_moment(self) -> FloatArray:
        """M(s) = E[G² | s], [..., S]."""
        return average(self.policy, self.action_second_moment)

    @cached_property
    def visitation(self) -> FloatArray:
        """Σ_k γ^k P(S_k = s): discounted number of visits to each state, [..., S]."""
        return occupancy.visits(self.mdp, self.policy, self.gamma, self.horizon)

    @cached_property
    def visits(self) -> FloatArray:
        """Σ_k P(S_k = s): expected number of visits to each state; inf where the policy may stay forever."""
        return occupancy.visits(self.mdp, self.policy, 1.0, self.horizon)

    @cached_property
    def goal_probability_by_state(self) -> FloatArray:
        """Probability of ever (within the horizon) reaching the goal from each state, [..., S]."""
        return occupancy.goal_probability(self.mdp, self.policy, self.horizon)

    @cached_property
    def goal_probability(self) -> FloatArray:
        """Probability of reaching the goal over the start distribution."""
        return self._over_start(self.goal_probability_by_state)

    def _over_start(self, by_state: FloatArray) -> FloatArray:
        starts = np.flatnonzero(self.mdp.start > 0.0)
        return np.asarray(by_state[..., starts] @ self.mdp.start[starts], np.float64)


def evaluate(mdp: FiniteMDP, policy: ArrayLike, gamma: float, horizon: int | None = None) -> Moments:
    """Mean and variance of the return of a policy, or of a batch of policies [..., S, A].

    Args:
        mdp: the process.
        policy: π[s, a]; see `softmax`, `greedy` and `uniform`. Leading axes are a batch.
        gamma: discount factor in [0, 1].
        horizon: cut episodes off after this many steps, as a time limit does; None: never.
    """
    gamma = check_gamma(gamma)
    policy = check_policy(mdp, policy)
    if horizon is not None:
        action_value, action_variance = action_moments_to_go(mdp, policy, gamma, check_horizon(horizon))
        return Moments(mdp, policy, gamma, horizon, average(policy, action_value), action_value, action_variance)
    return moments_of(Chain(mdp, policy), gamma)


def moments_of(chain: Chain, gamma: float) -> Moments:
    """The moments of the policy that is the weights of a chain; a caller that keeps it can solve more with its factors."""
    mdp, policy = chain.mdp, chain.weights
    kept, reward = _defined(mdp, policy, gamma), backup(mdp, mdp.reward)
    value = chain.accumulate(gamma, average(policy, reward, kept), kept)
    action_value = reward + gamma * look_ahead(mdp, value)
    surprise = mean_squared_error(mdp, policy, policy, value, action_value, gamma)
    variance = chain.accumulate(gamma**2, average(policy, surprise, kept), kept)
    action_variance = surprise + gamma**2 * look_ahead(mdp, variance)
    if kept is not None and not kept.all():
        value = np.where(kept, value, np.nan)
        lost = backup(mdp, (~kept[..., mdp.successor]).astype(np.float64)) > 0.0
        action_value, action_variance = (np.where(lost, np.nan, x) for x in (action_value, action_variance))
    return Moments(mdp, policy, gamma, None, value, action_value, action_variance)


def mean_squared_error(
    mdp: FiniteMDP, first: FloatArray, second: FloatArray, value: FloatArray, action_value: FloatArray, gamma: float
) -> FloatArray:
    """E[δ² | s, a], [..., S, A], δ = R + γ ρ' Q(S',A') − Q(s,a)."""
    if second is first:
        spread = (first * (action_value - value[..., None]) ** 2).sum(axis=-1)
    else:
        spread = np.maximum((second * action_value**2).sum(axis=-1) - value**2, 0.0)
    here = action_value.reshape(*action_value.shape[:-2], -1)[..., mdp.row]
    error = mdp.reward + gamma * value[..., mdp.successor] - here
    return backup(mdp, error**2 + mdp.noise) + gamma**2 * look_ahead(mdp, spread)


def check_horizon(horizon: int) -> int:
    """A whole number of steps, at least one."""
    if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer) or not 1 <= horizon <= LONGEST_HORIZON:
        expected = f"a whole number from 1 to {LONGEST_HORIZON:,}"
        raise UserError(f"horizon must be {expected}, got {horizon!r}; without one it has no end")
    return int(horizon)


def check_gamma(gamma: float) -> float:
    """A discount factor in [0, 1]."""
    if not isinstance(gamma, int | float | np.integer | np.floating) or not 0.0 <= gamma <= 1.0:
        raise UserError(f"gamma must be a number from 0 to 1, got {gamma!r}")
    return float(gamma)


def _defined(mdp: FiniteMDP, policy: FloatArray, gamma: float) -> BoolArray | None:
    """States that have moments: None (all of them) below γ = 1; at γ = 1 those from which the policy surely ends."""
    return occupancy.surely_ends(mdp, policy) if gamma == 1.0 else None


def average(weights: FloatArray, by_action: FloatArray, kept: BoolArray | None = None) -> FloatArray:
    """Σ_a w(s,a) x(s,a); actions of weight zero do not count, even where x is not defined; zero outside `kept`."""
    counted = np.multiply(weights, by_action, out=np.zeros(np.broadcast(weights, by_action).shape), where=weights > 0.0)
    by_state = counted.sum(axis=-1)
    return np.asarray(by_state if kept is None else np.where(kept, by_state, 0.0), np.float64)


def action_moments_to_go(
    mdp: FiniteMDP, policy: FloatArray, gamma: float, horizon: int
) -> tuple[FloatArray, FloatArray]:
    """Q[..., S, A] and σ[..., S, A] of the return of the next `horizon` steps."""
    value, variance = _zeros(mdp, policy), _zeros(mdp, policy)
    for _ in range(horizon - 1):
        target = mdp.reward + gamma * value[..., mdp.successor]
        value = _under(mdp, policy, target)
        error = target - value[..., mdp.row // mdp.n_actions]
        variance = _under(mdp, policy, error**2 + mdp.noise + gamma**2 * variance[..., mdp.successor])
    target = mdp.reward + gamma * value[..., mdp.successor]
    action_value = backup(mdp, target)
    error = target - action_value.reshape(*action_value.shape[:-2], -1)[..., mdp.row]
    return action_value, backup(mdp, error**2 + mdp.noise + gamma**2 * variance[..., mdp.successor])


def action_second_moment_to_go(mdp: FiniteMDP, policy: FloatArray, gamma: float, horizon: int) -> FloatArray:
    """M[..., S, A] of the return of the next `horizon` steps."""

    def target() -> FloatArray:
        next_value, square = value[..., mdp.successor], moment[..., mdp.successor]
        return mdp.reward**2 + mdp.noise + 2.0 * gamma * mdp.reward * next_value + gamma**2 * square

    value, moment = _zeros(mdp, policy), _zeros(mdp, policy)
    for _ in range(horizon - 1):
        new_moment = _under(mdp, policy, target())
        value = _under(mdp, policy, mdp.reward + gamma * value[..., mdp.successor])
        moment = new_moment
    return backup(mdp, target())


def _zeros(mdp: FiniteMDP, policy: FloatArray) -> FloatArray:
    return np.zeros((*policy.shape[:-2], mdp.n_states))


def _under(mdp: FiniteMDP, policy: FloatArray, entries: FloatArray) -> FloatArray:
    """The mean over actions and transitions of each state, [..., S]."""
    share = policy.reshape(*policy.shape[:-2], -1)[..., mdp.row] * mdp.probability
    return row_sums(mdp.indptr[:: mdp.n_actions], share * entries)


class StepReward(NamedTuple):
    """Moments of the reward of a step."""

    mean: float
    """y = (1 − γ) · mean return."""
    variance: float
    """Var(R), the volatility of the reward, squared."""


def step_reward(mdp: FiniteMDP, policy: FloatArray, gamma: float) -> StepReward:
    """Mean and variance of the reward of a step: what MVPI trades.

    A step is drawn from the normalised discounted occupancy: the k-th step with probability (1 − γ) γ^k; an episode that has
    ended goes on with rewards of 0. So y = E[R] = (1 − γ) E[G]. With the visits D(s) = Σ_k γ^k P(S_k = s) of states that are
    not terminal, and the transitions' mean rewards m and variances v,

        Var(R) = (1 − γ) Σ_s D(s) Σ_a π(a|s) E[(m − y)² + v]  +  (1 − (1 − γ) Σ_s D(s)) y²

    the last term being the steps after the end.

    Args:
        mdp: the process.
        policy: π[s, a].
        gamma: discount factor, below 1: with 1 all that counts is what comes after the end.
    """
    gamma = check_gamma(gamma)
    if gamma == 1.0:
        raise UserError("the reward of a step has no distribution with gamma = 1: use gamma below 1")
    pi = check_policy(mdp, policy)
    often = (1.0 - gamma) * occupancy.visits(mdp, pi, gamma, None)
    by_action = (often[:, None] * pi).reshape(-1)
    weight = by_action[mdp.row] * mdp.probability  # of transitions: none begins in a terminal state
    mean = float((weight * mdp.reward).sum())
    after = max(0.0, 1.0 - float(weight.sum()))
    variance = float((weight * ((mdp.reward - mean) ** 2 + mdp.noise)).sum()) + after * mean**2
    return StepReward(mean, variance)
