"""The distribution of the return of a policy: CVaR, quantiles and P(G < c), with a bound of their error.

Probability is propagated forward, step by step, over pairs of a state and a collected return on a grid of width Δ. All paths
in state s after k steps share an offset b(s): their collected return is b(s) + jΔ. A transition adds γ^k r, which moves it to
another grid, and the offset of a state is the middle of what arrives there. Other returns are rounded by at most Δ/2; e(s), the
largest total rounding of a path to s, is tracked. So there is no error if rewards lie on a grid, if they are the same on all
paths to a state, or if only one path leads to it.

Different rewards of transitions to the same state are different outcomes (`FiniteMDP.outcomes`), although `FiniteMDP.sample`
draws normal noise with their mean and variance. Noise that is given as a variance is normal. Its variance is tracked per state
like the offset: the part that all arriving paths have in common is kept and exact at the end, and the rest of a path's noise is
spread over the grid, which rounds it by at most Δ/2.

Every path of the computed return is then within `error` of a path of the true one with the same probability, except for a
probability `lost`, about 1e-9, of paths that were rounded more or not followed to their end. So quantiles and CVaR are wrong by
at most `error`, and P(G < c) lies between below(c − error) and below(c + error), except for `lost`. The mean rounding,
`average_error`, gives a sharper bound of the CVaR if few paths were rounded often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vpac.checks import real, share, whole
from vpac.envs.finite_mdp import FiniteMDP
from vpac.errors import UserError
from vpac.oracle.linear import OracleError
from vpac.oracle.moments import check_gamma, check_horizon, evaluate
from vpac.oracle.policies import check_policy
from vpac.typing import FloatArray, IntArray

SPAN = 16.0
"""Standard deviations of the return that `points` cover."""
UNIT = 1e6
"""Rewards that are multiples of 1 / UNIT have a common grid."""
MOST_LAYERS, MOST_ENTRIES = 200_000, 2e8
LOST_PROBABILITY = 1e-10
"""Probability of paths that may be dropped at the end, or rounded by more than the error."""
LEAST_PROBABILITY = 1e-17
"""Smaller probabilities are dropped."""
REACH = 8.0
"""Standard deviations of the noise that are covered."""
MERGED_BELOW = 1e-9
"""Returns that differ by less, relative to Δ, are merged."""


@dataclass(frozen=True)
class ReturnDistribution:
    """A mixture of points, or of normal distributions where rewards are noisy."""

    value: FloatArray
    """Centres, ascending."""
    probability: FloatArray
    """Probability of each."""
    deviation: FloatArray
    """Standard deviation of each; zero: a point."""
    error: float
    """Quantiles and CVaR are wrong by at most this; P(G < c) lies between below(c − error) and below(c + error)."""
    average_error: float
    """E|computed − true return| is at most this: often far below `error`. The CVaR is wrong by at most this / α."""
    lost: float
    """Probability of paths that were rounded more, or were not followed to their end."""

    @property
    def mean(self) -> float:
        """E[G]."""
        return float(self.probability @ self.value)

    @property
    def variance(self) -> float:
        """Var(G)."""
        return float(self.probability @ ((self.value - self.mean) ** 2 + self.deviation**2))

    def below(self, threshold: float) -> float:
        """P(G < threshold)."""
        return float(self.probability @ self._below(real(threshold, "threshold", "a finite number"))[0])

    def quantile(self, q: float = 0.5) -> float:
        """min {x : P(G ≤ x) ≥ q}; by default the median."""
        return self._quantile(share(q, "q"))

    def cvar(self, alpha: float = 0.05) -> float:
        """The mean of the worst α share, max_v v − E[max(v − G, 0)] / α."""
        if not share(alpha, "alpha"):
            raise UserError("alpha must be above 0")
        edge = self._quantile(alpha)
        under, density = self._below(edge)
        shortfall = under * (edge - self.value) + self.deviation * density
        return edge - float(self.probability @ shortfall) / alpha

    def _below(self, threshold: float) -> tuple[FloatArray, FloatArray]:
        """Φ and φ at the threshold, of each part."""
        from scipy.special import ndtr

        noisy = self.deviation > 0.0
        z = np.divide(threshold - self.value, self.deviation, out=np.zeros_like(self.value), where=noisy)
        density = np.where(noisy, np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi), 0.0)
        return np.where(noisy, ndtr(z), self.value < threshold), density

    def _quantile(self, q: float) -> float:
        sums = np.cumsum(self.probability)
        if not self.deviation.any():
            return float(self.value[min(int(np.searchsorted(sums, q * sums[-1] - 1e-12)), len(sums) - 1)])
        from scipy.optimize import brentq

        reach = 40.0 * float(self.deviation.max())
        low, high = self.value[0] - reach, self.value[-1] + reach
        if q in (0.0, 1.0):
            return float(low if q == 0.0 else high)
        return float(brentq(lambda c: self.below(c) - q * sums[-1], low, high, xtol=1e-12 * (high - low)))


def distribution(
    mdp: FiniteMDP, policy: ArrayLike, gamma: float, horizon: int | None = None, *, points: int = 4000
) -> ReturnDistribution:
    """The distribution of the return of a policy over the start distribution, with a bound of its error.

    Args:
        mdp: the process. A reward that is given by its mean and variance is normal; different rewards of transitions that
            are listed one by one are kept apart.
        policy: π[s, a].
        gamma: discount factor in [0, 1]; with 1 the policy must terminate with probability 1.
        horizon: truncate episodes after this many steps; None: never.
        points: grid points over 16 standard deviations of the return; more make `error` smaller. With γ = 1 and rewards that
            are multiples of a common number the grid is theirs, and the error is zero.
    """
    gamma, pi = check_gamma(gamma), check_policy(mdp, policy)
    whole(points, "points", 10)
    if pi.ndim != 2:
        raise UserError(f"a distribution is of one policy at a time, got a batch of shape {list(pi.shape)}")
    steps = MOST_LAYERS if horizon is None else check_horizon(horizon)
    moments = evaluate(mdp, pi, gamma, horizon)  # raises if the return does not exist
    _, _, _, reward, noise = mdp.outcomes
    unit, width = _common_unit(reward) if gamma == 1.0 else None, max(SPAN * float(moments.std), 1e-12) / points
    if unit is not None and unit * points >= float(moments.std):
        width = unit / np.ceil(unit / width) if noise.any() else unit
    return _Forward(mdp, pi, gamma, width).run(steps, horizon is not None)


def _common_unit(rewards: FloatArray) -> float | None:
    """The largest number of which all rewards are multiples, if it can be found."""
    whole = np.rint(rewards * UNIT)
    if np.abs(whole).max(initial=0.0) > 2**53 or np.abs(whole - rewards * UNIT).max(initial=0.0) > 1e-6:
        return None
    unit = int(np.gcd.reduce(np.abs(whole).astype(np.int64))) if len(whole) else 0
    return unit / UNIT if unit else 1.0


class _Forward:
    """Probabilities of (state, collected return), and their propagation."""

    def __init__(self, mdp: FiniteMDP, policy: FloatArray, gamma: float, width: float) -> None:
        self.mdp, self.gamma, self.width = mdp, gamma, width
        row, successor, probability, reward, noise = mdp.outcomes
        chance = policy.reshape(-1)[row] * probability
        used = chance > 0.0
        columns = row[used] // mdp.n_actions, successor[used], reward[used], noise[used]
        keys, place = np.unique(np.stack(columns), axis=1, return_inverse=True)
        self.tail, self.head = keys[0].astype(np.int64), keys[1].astype(np.int64)
        self.reward, self.noise = keys[2], keys[3]
        self.chance = np.bincount(place.ravel(), chance[used], keys.shape[1])
        size = mdp.n_states
        self.mass, self.first = mdp.start[:, None].copy(), np.zeros(size, np.int64)
        self.offset, self.error, self.variance = np.zeros(size), np.zeros(size), np.zeros(size)
        self.ended: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        self.errors: list[tuple[float, float]] = []
        self.dropped = self.moved = 0.0

    def run(self, steps: int, cut: bool) -> ReturnDistribution:
        """Follow all paths to their ends, or until later rewards no longer matter."""
        largest = float(np.abs(self.reward).max(initial=0.0)) + REACH * float(np.sqrt(self.noise.max(initial=0.0)))
        rest, left = largest / (1.0 - self.gamma) if self.gamma < 1.0 else np.inf, 1.0
        for k in range(steps):
            rest_now = self.gamma**k * rest
            if left <= LOST_PROBABILITY or rest_now <= 0.01 * self.width:
                break
            self._step(self.gamma**k)
            left = float(self.mass.sum())
        else:
            rest_now = 0.0 if cut else np.inf
        if left > LOST_PROBABILITY and rest_now == np.inf:
            raise OracleError(f"episodes are too long: {left:.1e} of them have not ended after {steps:,} steps")
        for state in np.flatnonzero(self.mass.any(axis=1)):
            self._keep(int(state), 1.0, 0.0, self.variance[state], rest_now)
        value, mass, deviation = (np.concatenate(parts) for parts in zip(*self.ended, strict=True))
        # The largest error, except for those of the least probability.
        errors, weights = np.array(self.errors).T
        order = np.argsort(-errors)
        past = np.cumsum(weights[order])
        worst = int(np.searchsorted(past, LOST_PROBABILITY, side="right"))
        error = float(errors[order[min(worst, len(order) - 1)]])
        lost = self.dropped + (float(past[worst - 1]) if worst else 0.0)
        value, mass, deviation = _merged(value, mass, deviation, self.width)
        average = min(error, self.moved + (left * rest_now if left > LOST_PROBABILITY else 0.0))
        return ReturnDistribution(value, mass, deviation, error, average, lost)

    def _step(self, discount: float) -> None:
        """Propagate all probability along every transition."""
        used = np.asarray(self.mass.any(axis=1))[self.tail]
        self._end(np.flatnonzero(used & self.mdp.terminal[self.head]), discount)
        used &= ~self.mdp.terminal[self.head]
        if not used.any():
            self.mass = np.zeros_like(self.mass[:, :1])
            return
        tail, head, chance = self.tail[used], self.head[used], self.chance[used]
        arriving = self.offset[tail] + discount * self.reward[used]
        size, width = self.mdp.n_states, self.width
        # The middle of the arriving offsets on a circle: the mean of their angles, then half-way between the extremes.
        angle = np.exp(2j * np.pi * arriving / width)
        weight = chance * self.mass.sum(axis=1)[tail]
        sums = [np.bincount(head, weight * part, size) for part in (angle.real, angle.imag)]
        centre = np.arctan2(sums[1], sums[0]) * width / (2.0 * np.pi)
        beyond = arriving - centre[head]
        beyond -= width * np.rint(beyond / width)
        middle = 0.5 * (_extreme(np.maximum, head, beyond, size) + _extreme(np.minimum, head, beyond, size))
        offset = centre + middle
        shift = np.rint((arriving - offset[head]) / width).astype(np.int64)
        moved = np.abs(arriving - offset[head] - shift * width)
        moved[moved < MERGED_BELOW * width] = 0.0
        noise = self.variance[tail] + discount**2 * self.noise[used]
        variance = _extreme(np.minimum, head, noise, size)
        extra = noise - variance[head]
        extra[extra <= 1e-12 * noise] = 0.0
        moved += 0.5 * width * (extra > 0.0)
        self.moved += float(weight @ moved)
        error = _extreme(np.maximum, head, self.error[tail] + moved, size)
        self._spread(tail, head, chance, shift, extra)
        self.offset, self.error, self.variance = offset, error, variance

    def _spread(self, tail: IntArray, head: IntArray, chance: FloatArray, shift: IntArray, extra: FloatArray) -> None:
        """Add every state's probabilities, shifted and spread by its own noise, to those of the next states."""
        rows = {0.0: self.mass}
        reach = {0.0: 0}
        for amount in np.unique(extra[extra > 0.0]):
            kernel = _kernel(float(amount), self.width)
            own = np.zeros((len(self.mass), self.mass.shape[1] + len(kernel) - 1))
            for state in np.unique(tail[extra == amount]):
                own[state] = _convolved(self.mass[state], kernel)
            rows[float(amount)], reach[float(amount)] = own, len(kernel) // 2
        begin = self.first[tail] + shift - np.array([reach[float(amount)] for amount in extra], np.int64)
        length = np.array([rows[float(amount)].shape[1] for amount in extra], np.int64)
        size = self.mdp.n_states
        first = _extreme(np.minimum, head, begin.astype(np.float64), size).astype(np.int64)
        wide = int((begin + length - first[head]).max())
        if wide * size > MOST_ENTRIES:
            raise OracleError(f"the grid grew to {wide:,} points of {size:,} states: use fewer points or a horizon")
        mass = np.zeros((size, wide))
        for s, to, p, at, amount in zip(tail, head, chance, begin - first[head], extra, strict=True):
            row = rows[float(amount)][s]
            mass[to, at : at + len(row)] += p * row
        small = mass < LEAST_PROBABILITY
        self.dropped += float(mass[small].sum())
        mass[small] = 0.0
        self.mass, self.first = _trimmed(mass, first)

    def _end(self, transitions: IntArray, discount: float) -> None:
        """Record the probabilities of transitions to terminal states: nothing is rounded there."""
        for t in transitions:
            state, noise = self.tail[t], self.variance[self.tail[t]] + discount**2 * self.noise[t]
            self._keep(int(state), self.chance[t], discount * self.reward[t], noise)

    def _keep(self, state: int, chance: float, paid: float, noise: float, error: float = 0.0) -> None:
        at = np.flatnonzero(self.mass[state])
        value = self.offset[state] + paid + self.width * (self.first[state] + at)
        self.ended.append((value, chance * self.mass[state, at], np.full(len(at), np.sqrt(noise))))
        self.errors.append((float(self.error[state]) + error, float(self.ended[-1][1].sum())))


def _extreme(pick: Any, place: IntArray, numbers: FloatArray, size: int) -> FloatArray:
    """The largest or smallest number at each index; zero if there is none."""
    found = np.full(size, -np.inf if pick is np.maximum else np.inf)
    pick.at(found, place, numbers)
    return np.where(np.isfinite(found), found, 0.0)


def _kernel(variance: float, width: float) -> FloatArray:
    """Probabilities that normal noise is nearest to each grid point."""
    from scipy.special import ndtr

    sigma = float(np.sqrt(variance))
    edges = (np.arange(int(REACH * sigma / width) + 2) + 0.5) * width / sigma
    half = -np.diff(ndtr(-edges))
    kernel = np.concatenate([half[::-1], [1.0 - 2.0 * ndtr(-edges[0])], half])
    return np.asarray(kernel / kernel.sum(), np.float64)


def _convolved(row: FloatArray, kernel: FloatArray) -> FloatArray:
    from scipy.signal import fftconvolve

    small = min(len(row), len(kernel)) <= 50
    return np.asarray(np.convolve(row, kernel) if small else np.maximum(fftconvolve(row, kernel), 0.0), np.float64)


def _trimmed(mass: FloatArray, first: IntArray) -> tuple[FloatArray, IntArray]:
    """Align every row at its first probability, and drop empty columns."""
    used = mass > 0.0
    begin, some = used.argmax(axis=1), used.any(axis=1)
    wide = int(np.where(some, mass.shape[1] - used[:, ::-1].argmax(axis=1) - begin, 1).max())
    at = np.minimum(begin[:, None] + np.arange(wide), mass.shape[1] - 1)
    kept = np.take_along_axis(mass, at, axis=1)
    kept[begin[:, None] + np.arange(wide) > mass.shape[1] - 1] = 0.0
    return kept, first + begin


def _merged(value: FloatArray, mass: FloatArray, deviation: FloatArray, width: float) -> tuple[FloatArray, ...]:
    """Merge equal parts, in ascending order."""
    order = np.lexsort((deviation, value))
    value, mass, deviation = value[order], mass[order], deviation[order]
    new = np.ones(len(value), bool)
    new[1:] = (np.diff(value) > MERGED_BELOW * width) | (np.abs(np.diff(deviation)) > MERGED_BELOW * width)
    return value[new], np.add.reduceat(mass, np.flatnonzero(new)), deviation[new]
