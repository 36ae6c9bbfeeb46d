"""Off-policy evaluation: mean, variance and CVaR of a policy π's return from episodes of another policy b.

With ρ_t = π(A_t|S_t) / b(A_t|S_t), ρ_{0:t} = Π_{j≤t} ρ_j, x_t = Σ_{j<t} γ^j R_{j+1} and any critics Q, V, M (M is the second
moment of the later return), these have the means E_π[G] and E_π[(G − c)²], for any c:

    γ^0 V_0 + Σ_t ρ_{0:t} (γ^t R_{t+1} + γ^{t+1} V_{t+1} − γ^t Q_t)                                  V = 0 after the end
    W_0 + Σ_t ρ_{0:t} (W_{t+1} − U_t),   U_t = y² + 2yγ^t Q_t + γ^{2t} M_t,  W_t = E_π U_t,  y = x_t − c

| method | what it is |
|---|---|
| `per-decision` | the terms above with critics that are zero |
| `doubly-robust` | with critics that were fitted to the other episodes (five folds) |
| `weighted` | returns with weights ρ_{0:T} / Σ ρ_{0:T}: the only one with quantiles, and so with CVaR |
| `fitted` | Q̂ and σ̂ fitted to the targets of the off-policy critics with expected next actions (`vpac.oracle.off_policy`) |
| `marginalised` | ratios of state visits instead of products of ratios; Discrete observations only |

In finite MDPs both of the last solve the MDP estimated from the log: a transition has weight k = π/n(s,a) in `fitted`, which
estimates b, and k = ρ/Σρ over the state's steps in `marginalised`, which uses the logged probabilities. With these P, r, d₀,

    V = r + γ P V,   mean = d₀V,   variance = Var_{d₀}(V) + Σ_steps ν(S) k (R + γV(S') − V(S))²,   ν = d₀ + γ² Pᵀν

which is σ's equation solved for its mean. Otherwise `fitted` is least squares (LSTD) on squares and products of the
observation's numbers, for each action, and only as accurate as these features. Both leave out the step at which an episode is
truncated, and estimate the return of episodes that are not.

Intervals are bootstrapped over episodes: studentised, with the error of one more episode as influential as any here and, for
variances, that of the squared mean, or, where estimates are refitted, Student's with the standard deviation and bias of the
refits, on a logarithmic scale for variances.
The lower bound of the mean is that of Thomas et al. (2015) with the empirical Bernstein inequality of Maurer and Pontil
(2009): ρ_{0:T} (G − lowest) is clipped at a level chosen with a part of the log, which can only lower its mean. It holds for
any number of episodes if no return of π is below `lowest` and the logged probabilities are right. The latter is tested: given
the past E_b ρ_t ≤ 1, so Π_t (1 + λ(ρ_t − 1)) over all steps, 0 < λ < 1, exceeds 1/α with probability α at most (Ville).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vpac.checks import whole
from vpac.errors import UserError, one_of
from vpac.evaluation.actors import gamma_of
from vpac.evaluation.log import Chances, Log, load_log
from vpac.files import jsonable
from vpac.oracle.moments import check_gamma
from vpac.progress import shown
from vpac.risk.intervals import LEAST_TAIL, Interval, not_negative, student_quantile, studentised_interval
from vpac.typing import FloatArray

METHODS = ("per-decision", "doubly-robust", "weighted", "fitted", "marginalised")
LEAST_EFFECTIVE = 30.0
"""Methods with fewer effective episodes are rejected; docs/offline.md has the coverage above it."""
FOR_VARIANCE = 5.0 / 3.0
"""Times `least` effective episodes are needed for an interval of a variance by weighted returns, 50; below, it misses tails."""
FOLDS = 5
LOG_RESAMPLES, REFITS = 2000, 300
"""Resamples of the bootstrap with fixed terms per episode, and with refitted critics."""
WIDER = 1.07
"""Factor of the standard deviation of refits, which miss influential episodes that the log lacks. Without it means were
covered in 93.8 % of 1200 logs, on which it was chosen; docs/offline.md has the coverage on others."""
DENSE = 1500
"""Largest number of states for dense solves."""
RIDGE = 1e-6
"""Ridge penalty of least squares, relative to the features' mean square."""
LEAST_VARIANCE = 1e-300
"""Smaller variances are raised to this."""
WIDE = 20
"""Largest observation whose products are features, too."""
OFF = 4.0
"""Standard errors by which the mean ratio may differ from 1 before a note says so."""

WRONG, BETS = 1e-4, 0.9 * 0.5 ** np.arange(8)
"""Largest share of right logs whose probabilities are called wrong, and the λ over which that test averages."""
ROUNDED = 1.005, 1.05
"""Mean ratios of steps and of whole episodes up to which probabilities may be off, for example because they are rounded."""


@dataclass(frozen=True)
class OfflineEstimate:
    """The estimate of one method."""

    method: str
    """One of `METHODS`."""
    effective: float
    """Effective sample size, in episodes: (Σw)²/Σw² of the ratios of whole episodes or, for methods that use state visits, of
    those of steps."""
    refused: str = ""
    """Reason why there is no estimate; empty if there is one."""
    mean: Interval | None = None
    """Mean of the return."""
    variance: Interval | None = None
    """Variance of the return. The ends are NaN, unknown, for methods of weighted returns with too few effective episodes."""
    cvar: Mapping[float, Interval] = field(default_factory=dict)
    """Mean of the worst share of returns, by share; only for `weighted`. The ends are NaN, unknown, if fewer than five
    effective episodes are in that share."""
    note: str = ""
    """A reason to doubt this estimate."""


@dataclass(frozen=True)
class OfflineReport:
    """Estimates of a policy's return from a log of another one."""

    estimates: tuple[OfflineEstimate, ...]
    """Estimates by method, in the order of `METHODS`."""
    episodes: int
    """Episodes in the log."""
    steps: int
    """Steps in the log."""
    gamma: float
    """Discount factor."""
    level: float
    """Confidence of the intervals and of the lower bound."""
    least: float
    """Methods with fewer effective episodes are rejected."""
    behaviour: tuple[float, float]
    """Mean and variance of the returns in the log."""
    lower: float
    """The mean return is at least this, with confidence `level`; NaN, unknown, if the logged probabilities are wrong."""
    lowest: float
    """The assumption of the lower bound: no return of the policy is below this."""
    notes: tuple[str, ...] = ()
    """Reasons to doubt the estimates."""

    def __getitem__(self, method: str) -> OfflineEstimate:
        return next(one for one in self.estimates if one.method == one_of(method, METHODS, "method"))

    def as_dict(self) -> dict[str, Any]:
        """Report as plain data."""

        def ends(found: Interval | None) -> list[float | None] | None:
            return None if found is None else list(jsonable(astuple(found)))

        rows = [
            {
                "method": one.method, "effective_episodes": one.effective, "refused": one.refused or None,
                "mean": ends(one.mean), "variance": ends(one.variance),
                "cvar": {f"{alpha:g}": ends(found) for alpha, found in one.cvar.items()},
            }
            for one in self.estimates
        ]  # fmt: skip
        return {
            "episodes": self.episodes, "steps": self.steps, "gamma": self.gamma, "level": self.level, "least": self.least,
            "behaviour": dict(zip(("mean", "variance"), self.behaviour, strict=True)),
            "lower_bound": jsonable(self.lower), "lowest_return": self.lowest, "estimates": rows, "notes": list(self.notes),
        }  # fmt: skip


def offline(
    log: str | Path | Log, policy: Any, *, gamma: float | None = None, methods: Sequence[str] = METHODS,
    alphas: Sequence[float] = (0.05,), level: float = 0.95, least: float = LEAST_EFFECTIVE, lowest: float | None = None,
    seed: int = 0, progress: bool | Callable[[int, int], object] = False,
) -> OfflineReport:  # fmt: skip
    """Mean, variance and CVaR of a policy's return from episodes of another policy.

    Args:
        log: a .parquet file, `minari:NAME`, or a `Log`; `vpac.evaluate(…, log=FILE)` writes one.
        policy: an agent of vpac, a table π[s, a], or a function from observations [n, numbers] to probabilities [n, actions].
        gamma: discount factor; default: the policy's own, or 0.99.
        methods: some of "per-decision", "doubly-robust", "weighted", "fitted" and "marginalised".
        alphas: shares of worst returns whose mean, CVaR, is estimated.
        level: the confidence of intervals and lower bound.
        least: a method with fewer effective episodes is rejected; if all are, this raises a `UserError`.
        lowest: assumed lower bound of all returns, for the lower bound of the mean; default: the lowest return in the log.
        seed: seed of resamples and folds.
        progress: show a bar if it takes more than two seconds, or call this with the number of finished and of all resamples.
    """
    found = log if isinstance(log, Log) else load_log(log)
    gamma = gamma_of(policy) if gamma is None else check_gamma(gamma)
    for alpha in alphas:
        if not 0.0 < alpha <= 1.0:
            raise UserError(f"a share of worst returns must be above 0 and at most 1, got {alpha:g}")
    if not 0.0 < level < 1.0:
        raise UserError(f"level must be between 0 and 1, got {level!r}")
    chosen = [method for method in METHODS if method in {one_of(name, METHODS, "method") for name in methods}]
    if not chosen or len(found) < 2:
        raise UserError(f"expected at least one method and two episodes, got {len(chosen)} and {len(found)}")
    study = LogStudy(found, Chances.of(policy, found.observation, found.action, found.mask), gamma)
    floor = float(study.returns.min()) if lowest is None else float(lowest)
    if floor > (least_seen := study.returns.min()):
        raise UserError(f"the log has a return of {least_seen:g}, below the lowest possible one, {floor:g}")
    draws, split = np.random.SeedSequence(whole(seed, "seed")).spawn(2)
    with shown(progress, REFITS * len(chosen), "the log, resampled") as tell:
        estimates = [
            _estimate(study, method, alphas, level, least, draws, lambda k, done=done: tell(REFITS * done + k))  # type: ignore[misc]
            for done, method in enumerate(chosen)
        ]
    if all(one.refused for one in estimates):
        raise UserError("; ".join(refusals(estimates)))
    lower = max(lower_bound(study.weight * (study.returns - floor), 1.0 - level, split) + floor, floor)
    behaviour = float(study.returns.mean()), float(study.returns.var(ddof=1))
    unsure = [one.method for one in estimates if one.variance is not None and np.isnan(one.variance.low)]
    few = f"{', '.join(unsure)}: fewer than {FOR_VARIANCE * least:g} effective episodes: too few for intervals of variances"
    return OfflineReport(
        tuple(estimates), len(found), len(found.reward), gamma, level, least, behaviour,
        np.nan if study.wrong else lower, floor,
        (*study.notes(), *([few] if unsure else []), *(one.note for one in estimates if one.note)),
    )  # fmt: skip


def refusals(estimates: Sequence[OfflineEstimate]) -> list[str]:
    """Reasons why methods have no estimate, each once."""
    reasons: dict[str, list[str]] = {}
    for one in (one for one in estimates if one.refused):
        reasons.setdefault(one.refused.partition(": ")[2], []).append(one.method)
    return [f"{', '.join(methods)}: {why}" for why, methods in reasons.items()]


def _estimate(
    study: LogStudy, method: str, alphas: Sequence[float], level: float, least: float, draws: np.random.SeedSequence,
    tell: Callable[[int], object],
) -> OfflineEstimate:  # fmt: skip
    """The estimate of a method, or the reason why there is none."""
    if why := study.missing(method):
        return OfflineEstimate(method, 0.0, why)
    effective, n = study.effective(method), len(study.log)
    if not effective >= least:
        why = (
            f"{method}: the {n} episodes of the log count as {effective:.1f} of this policy, expected at least {least:g}: the "
            "two policies differ too much; log more episodes, or a policy nearer to this one"
        )
        return OfflineEstimate(method, effective, why)
    rng = np.random.default_rng(draws)
    if method in ("fitted", "marginalised"):
        whole_log, values = study.refit(method, np.ones(n)), np.empty((REFITS, 2))
        for k in range(REFITS):
            values[k] = study.refit(method, np.bincount(rng.integers(0, n, n), minlength=n).astype(np.float64))
            tell(k + 1)
        mean = _refitted_interval(whole_log[0], values[:, 0], level, effective)
        logged = np.log(np.maximum(values[:, 1], LEAST_VARIANCE))
        logs = _refitted_interval(float(np.log(max(whole_log[1], LEAST_VARIANCE))), logged, level, effective)
        low, high = (float(np.exp(end)) for end in (logs.low, logs.high))
        return OfflineEstimate(method, effective, "", mean, Interval(whole_log[1], low, high))
    folds = None if method == "per-decision" else rng
    parts = study.weighted(alphas) if method == "weighted" else study.averaged(folds)
    how: dict[str, Any] = {"seed": rng, "level": level, "resamples": LOG_RESAMPLES, "unseen": True}
    curved = 2.0**0.5 * float(parts[0][1].var(ddof=1)) / n  # of (mean − E G)², which a variance's influences lack
    found = [studentised_interval(*part, **how, curved=curved * (k == 1)) for k, part in enumerate(parts)]
    tell(REFITS)
    cvar = dict(zip(alphas, found[2:], strict=False))
    cvar |= {a: Interval(x.estimate, np.nan, np.nan) for a, x in cvar.items() if round(a * effective, 3) < LEAST_TAIL}
    variance = not_negative(found[1])
    if effective < FOR_VARIANCE * least:
        variance = Interval(variance.estimate, np.nan, np.nan)
    below = found[1].estimate < -1e-12 * study.centre**2  # more than rounding
    note = f"{method}: the estimate of the variance was negative and is cut at 0: too few episodes for this method"
    return OfflineEstimate(method, effective, "", found[0], variance, cvar, note if below else "")


def _refitted_interval(estimate: float, values: FloatArray, level: float, effective: float) -> Interval:
    """An interval with the standard deviation of estimates from resampled logs, around the estimate less their bias.

    Percentiles of a few hundred resamples depend on seven of them at each end; the standard deviation uses all. It is itself
    known from few episodes, so the quantile is Student's. A large bias widens the interval: the estimate stays in it.
    """
    wider = WIDER * student_quantile(level, effective - 1.0)
    centre, half = 2.0 * estimate - float(values.mean()), wider * float(values.std(ddof=1))
    return Interval(float(estimate), min(centre - half, float(estimate)), max(centre + half, float(estimate)))


class FittedCritics(NamedTuple):
    """Estimates of the later return at every step of a log, given the action and before it is chosen."""

    action_value: FloatArray
    action_moment: FloatArray
    value: FloatArray
    moment: FloatArray
    """The second moment."""


class LogStudy:
    """A log with the probabilities of the evaluated policy."""

    def __init__(self, log: Log, chances: Chances, gamma: float) -> None:
        self.log, self.chances, self.gamma = log, chances, gamma
        self.ratio = chances.taken / log.probability
        self.product = log.running(self.ratio, np.multiply)
        self.weight = self.product[log.last]
        self.discount = gamma**log.time
        self.paid = log.running(self.discount * log.reward, np.add)
        self.returns = self.paid[log.last]
        total = self.weight.sum()
        self.centre = float(self.weight @ self.returns / total) if total > 0.0 else float(self.returns.mean())
        last = np.zeros(len(log.reward), bool)
        last[log.last] = True
        self.goes_on = ~last
        self.used = self.goes_on | log.terminated[log.episode]
        """Steps whose successor is known."""
        if chances.every is not None and chances.finite:
            _, at, self.state = np.unique(log.observation[:, 0], return_index=True, return_inverse=True)
            self.table = chances.every[at]
            self.pair = self.state * self.table.shape[1] + chances.action
        elif chances.every is not None:
            self.features = _features(log.observation)

    @property
    def finite(self) -> bool:
        """Whether observations and actions are Discrete."""
        return self.chances.finite and self.chances.every is not None

    def missing(self, method: str) -> str:
        """Reason why a method cannot be used here; empty if it can."""
        if method == "marginalised" and not self.finite:
            return "marginalised: needs Discrete observations and actions"
        if method in ("fitted", "doubly-robust") and self.chances.every is None:
            return f"{method}: needs Discrete actions; per-decision and weighted take densities"
        return f"{method}: {self.wrong}" if self.wrong and method != "fitted" else ""

    @cached_property
    def wrong(self) -> str:
        """Reason why logged probabilities are wrong, or empty. Small ratios are no evidence: rare actions may be missing."""
        pairs = zip((self.ratio, self.weight), ROUNDED, strict=True)
        bets = [np.log1p(BETS[:, None] * (x / most - 1.0)).sum(axis=1) for x, most in pairs]
        if not np.logaddexp.reduce(bets, axis=None) > np.log(2 * len(BETS) / WRONG):
            return ""
        mean, n = float(self.ratio.mean()), len(self.log)
        error = float(np.bincount(self.log.episode, self.ratio - mean).std(ddof=1)) * np.sqrt(n) / len(self.ratio)
        return (
            f"the logged probabilities do not fit the logged actions: a step's ratio of probabilities under this policy and in "
            f"the log is {mean:.4g} ± {error:.2g} on average, expected 1; log the probability that each action had under the "
            "policy that acted, or use the method fitted in a world with Discrete actions, which does not need it"
        )

    def notes(self) -> tuple[str, ...]:
        """Reasons to doubt the estimates."""
        found, n = [], len(self.log)
        error = float(self.weight.std(ddof=1)) / np.sqrt(n)
        if abs(self.weight.mean() - 1.0) > OFF * error + 1e-6:
            found.append(
                f"the mean ratio of whole episodes is {self.weight.mean():.3g} ± {error:.2g}, expected 1: the log lacks "
                "actions that this policy takes, or its probabilities are not those of the policy that acted"
            )
        if cut := int((~self.log.terminated).sum()):
            found.append(
                f"{cut} of {n} episodes were cut off: fitted and marginalised estimate the return of episodes that are not, "
                "the other methods that of episodes as they are in the log"
            )
        return tuple(found)

    def effective(self, method: str) -> float:
        """(Σw)²/Σw², in episodes."""
        if self.finite and method in ("fitted", "marginalised"):
            kernel = self._kernel(method, np.ones(len(self.log)))
            starts = np.bincount(self.state[self.log.first], minlength=len(self.table)) / len(self.log)
            w = self._solve(kernel, self.gamma, starts, flow=True)[self.state] * kernel
            per_episode = len(self.log) / self.used.sum()
        else:
            w, per_episode = self.weight, 1.0
        squares = float(w @ w)
        return float(w.sum()) ** 2 / squares * per_episode if squares > 0.0 else 0.0

    def averaged(self, folds: np.random.Generator | None) -> list[tuple[float, FloatArray]]:
        """Mean and variance, each with the influence of every episode; with cross-fitted critics if `folds` is given."""
        x, squares = self.terms(None if folds is None else self.cross_fitted(folds))
        mean = float(x.mean())
        bias = float(x.var(ddof=1)) / len(x)  # bias of the squared mean
        variance = float(squares.mean()) - (mean - self.centre) ** 2 + bias
        return [(mean, x), (variance, squares - 2.0 * (mean - self.centre) * x)]

    def terms(self, critics: FittedCritics | None) -> tuple[FloatArray, FloatArray]:
        """One term per episode for E[G], and one for E[(G − c)²]; c is the weighted mean return."""
        log, zero = self.log, np.zeros(len(self.log.reward))
        Q, M, V, B = critics or (zero,) * 4
        d, after = self.discount, self.paid - self.centre
        before = after - d * log.reward
        reached, moment = d * V, before**2 + 2.0 * before * d * V + d**2 * B
        following, later = np.zeros_like(zero), after**2
        following[self.goes_on] = reached[1:][self.goes_on[:-1]]
        later[self.goes_on] = moment[1:][self.goes_on[:-1]]
        surprise = d * log.reward + following - d * Q
        second = later - (before**2 + 2.0 * before * d * Q + d**2 * M)
        sums = (np.add.reduceat(self.product * x, log.first) for x in (surprise, second))
        return reached[log.first] + next(sums), moment[log.first] + next(sums)

    def cross_fitted(self, rng: np.random.Generator) -> FittedCritics:
        """Critics at the steps of each fold, fitted to the other folds."""
        n = len(self.log)
        fold = rng.permutation(np.arange(n) % min(FOLDS, n))
        parts = np.zeros((4, len(self.log.reward)))
        for k in range(fold.max() + 1):
            here = (fold == k)[self.log.episode]
            parts[:, here] = np.stack(self.critics((fold != k).astype(np.float64)))[:, here]
        return FittedCritics(*parts)

    def refit(self, method: str, times: FloatArray) -> tuple[float, float]:
        """Mean and variance by a fitted method, with episodes weighted by `times`."""
        share, first = times / times.sum(), self.log.first
        if self.finite:
            value, moment = (x[self.state[first]] for x in self._states(self._kernel(method, times)))
        else:
            found = self.critics(times)
            value, moment = found.value[first], found.moment[first]
        mean = float(share @ value)
        return mean, float(share @ (moment - value**2) + share @ (value - mean) ** 2)

    def weighted(self, alphas: Sequence[float]) -> list[tuple[float, FloatArray]]:
        """Mean, variance and CVaR of the returns with weights ρ_{0:T} / Σ ρ_{0:T}."""
        order = np.argsort(self.returns, kind="stable")
        G, p = self.returns[order], self.weight[order] / self.weight.sum()
        n, mean = len(G), float(p @ G)
        squares = (G - mean) ** 2
        biased = float(p @ squares)
        found = [(mean, n * p * (G - mean)), (biased / (1.0 - float(p @ p)), n * p * (squares - biased))]
        for alpha in alphas:
            up_to = np.cumsum(p)
            part = np.clip(alpha - (up_to - p), 0.0, p)
            cvar = float(part @ G / part.sum())
            quantile = G[min(int(np.searchsorted(up_to, alpha)), n - 1)]
            found.append((cvar, n * p * (quantile - np.maximum(quantile - G, 0.0) / alpha - cvar)))
        return found

    def critics(self, times: FloatArray) -> FittedCritics:
        """Q̂ and the second moments, fitted to episodes weighted by `times`."""
        return self._finite_critics(times) if self.finite else self._linear_critics(times)

    def _kernel(self, method: str, times: FloatArray) -> FloatArray:
        """k of each step: its weight among the steps of its state."""
        m = times[self.log.episode] * self.used
        if method == "marginalised":
            m = m * self.ratio
            total = np.bincount(self.state, m, len(self.table))[self.state]
        else:
            counts = np.bincount(self.pair, m, self.table.size).reshape(self.table.shape)
            seen = self.table * (counts > 0.0)  # actions of the policy that never occur are left out
            m = m * self.chances.taken
            total = counts.reshape(-1)[self.pair] * seen.sum(axis=1)[self.state]
        return np.divide(m, total, out=np.zeros_like(m), where=total > 0.0)

    def _next(self, x: FloatArray) -> FloatArray:
        """x of the state after each step; 0 after the end."""
        found = np.zeros(len(self.state))
        found[self.goes_on] = x[self.state[1:]][self.goes_on[:-1]]
        return found

    def _states(self, kernel: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and second moment of the return from every state of the log."""
        R, gamma = self.log.reward, self.gamma
        V = self._solve(kernel, gamma, self._by_state(kernel * R))
        error = R + gamma * self._next(V) - V[self.state]
        variance = self._solve(kernel, gamma**2, self._by_state(kernel * error**2))
        return V, np.asarray(V**2 + variance)

    def _by_state(self, x: FloatArray) -> FloatArray:
        """Sums of x over the steps of each state."""
        return np.asarray(np.bincount(self.state, x, len(self.table)), np.float64)

    def _solve(self, kernel: FloatArray, discount: float, b: FloatArray, flow: bool = False) -> FloatArray:
        """Solve x = b + discount · P x, P given by the kernel; for a `flow` x = b + discount · Pᵀ x."""
        from scipy.sparse import csc_array, eye_array
        from scipy.sparse.linalg import spsolve

        n, here = len(self.table), np.flatnonzero(self.goes_on)
        entries = (self.state[here + 1], self.state[here]) if flow else (self.state[here], self.state[here + 1])
        if n > DENSE:
            sparse = csc_array((kernel[here], entries), (n, n))
            return np.asarray(spsolve(eye_array(n, format="csc") - discount * sparse, b))
        P = np.bincount(entries[0] * n + entries[1], kernel[here], n * n).reshape(n, n)
        try:
            return np.asarray(np.linalg.solve(np.eye(n) - discount * P, b))
        except np.linalg.LinAlgError:
            raise UserError(
                "the policy's return has no finite estimate: with gamma 1 it may go on for ever in states of the log; use "
                "a gamma below 1, or leave out the methods fitted, marginalised and doubly-robust"
            ) from None

    def _finite_critics(self, times: FloatArray) -> FittedCritics:
        V, second = self._states(self._kernel("fitted", times))
        m = times[self.log.episode] * self.used
        R, gamma, following = self.log.reward, self.gamma, self._next(V)
        counts = np.bincount(self.pair, m, self.table.size)

        def by_pair(x: FloatArray, else_: FloatArray) -> FloatArray:
            sums, other = np.bincount(self.pair, m * x, self.table.size), np.repeat(else_, self.table.shape[1])
            return np.divide(sums, counts, out=other, where=counts > 0.0)

        Q = by_pair(R + gamma * following, V)
        M = by_pair(R**2 + 2.0 * gamma * R * following + gamma**2 * self._next(second), second)
        value, moment = ((self.table * x.reshape(self.table.shape)).sum(axis=1)[self.state] for x in (Q, M))
        return FittedCritics(Q[self.pair], M[self.pair], value, moment)

    def _linear_critics(self, times: FloatArray) -> FittedCritics:
        """LSTD on features x of the observation for each action, first of Q, then of σ."""
        every, action = self.chances.every, self.chances.action
        assert every is not None
        assert action is not None
        x, n, R, gamma = self.features, len(self.features), self.log.reward, self.gamma
        m = times[self.log.episode] * self.used
        chosen = np.eye(every.shape[1])[action]

        def of_pairs(p: FloatArray, rows: FloatArray) -> FloatArray:
            return np.asarray((p[:, :, None] * rows[:, None, :]).reshape(n, -1))

        def shifted(rows: FloatArray) -> FloatArray:
            found = np.zeros_like(rows)
            found[self.goes_on] = rows[1:][self.goes_on[:-1]]
            return found

        phi, after = of_pairs(chosen, x), of_pairs(shifted(every), shifted(x))
        weighted = phi * m[:, None]
        ridge = RIDGE * float(np.mean(np.einsum("ij,ij->j", weighted, phi))) * np.eye(phi.shape[1])

        def fitted(discount: float, target: FloatArray) -> FloatArray:
            w = np.linalg.solve(weighted.T @ (phi - discount * after) + ridge, weighted.T @ target)
            return np.asarray(x @ w.reshape(every.shape[1], -1).T)

        Q = fitted(gamma, R)
        V, taken = (every * Q).sum(axis=1), (chosen * Q).sum(axis=1)
        following = shifted(V)
        spread = shifted((every * (Q - V[:, None]) ** 2).sum(axis=1))
        variance = np.maximum(fitted(gamma**2, (R + gamma * following - taken) ** 2 + gamma**2 * spread), 0.0)
        M = variance + Q**2
        return FittedCritics(taken, (chosen * M).sum(axis=1), V, (every * M).sum(axis=1))


def _features(observations: FloatArray) -> FloatArray:
    """1, the observation's numbers, standardised, and their squares and products."""
    spread = observations.std(axis=0)
    z = (observations - observations.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    i, j = np.triu_indices(z.shape[1])
    products = z[:, i] * z[:, j] if z.shape[1] <= WIDE else np.zeros((len(z), 0))
    return np.concatenate([np.ones((len(z), 1)), z[:, spread > 0.0], products], axis=1)


def lower_bound(terms: FloatArray, risk: float, seed: np.random.SeedSequence) -> float:
    """A lower confidence bound, at level 1 − risk, of the mean of non-negative terms; 0 if nothing better is known.

    A fifth of the terms determine the level b at which the others are clipped, which lowers their mean y. For n numbers in
    0 … b with the sample variance s², the mean is at least y − s √(2 log(2/risk)/n) − 7 b log(2/risk)/(3 (n − 1)).
    """
    x = np.random.default_rng(seed).permutation(terms)
    few = max(len(x) // 5, 1)
    pilot, rest = x[:few], x[few:]
    n, logarithm = len(rest), float(np.log(2.0 / risk))
    if n < 2:
        return 0.0

    def bound(sample: FloatArray, b: float) -> float:
        y = np.minimum(sample, b)
        spread = float(y.std(ddof=1)) if len(y) > 1 else b
        return float(y.mean()) - spread * float(np.sqrt(2.0 * logarithm / n)) - 7.0 * b * logarithm / (3.0 * (n - 1))

    level = max((float(b) for b in np.quantile(pilot, np.linspace(0.05, 1.0, 39))), key=lambda b: bound(pilot, b))
    return max(bound(rest, level), 0.0)
