"""Monitor a policy in use: are its returns still those that were certified? Tests may be read after every episode.

The evidence of a test is an e-process: the capital of a gambler who bets against "nothing has changed". If nothing has, it
ever reaches 1/α with probability α at most (Ville's inequality), so one may look after every episode and stop at any time.
The assumptions and bets of each test:

    change      The returns and those of the certificate are exchangeable: no assumption on their distribution. The rank of a
                return among all returns so far, p, is uniform on (0, 1) and independent of the ranks before it (Vovk and others
                2003). Bets: κ p^{κ−1}, which pay if returns are low, and the same of 2 min(p, 1 − p), if they lie far out.
    mean        The mean given the past is what the certificate promises or more. Z = (b − G)/(b − a) ∈ [0, 1] has a mean of m₀
                at most; bets: 1 + λ (Z/m₀ − 1).
    variance    The mean of (G − c)² is what it promises or less; Z = (G − c)²/r², the same bets.
    below c     P(G < c) is at most the limit q; Z = 1 if G < c, m₀ = q. No assumption at all.

a and b are the smallest and the largest of the first fifth of the certificate's returns, c their mean; returns are clipped to
a … b, in the promise as in the test. m₀ is an upper bound of E[Z] from the other four fifths (`mean_upper_bound`), which holds
for every distribution; a fifth of the test's α covers its error. So the promise is a little weaker than the certificate's
estimate, and smaller shifts are left to the test of ranks.

The time of the change is unknown, and a gambler who bets from the start would have lost all by then. So a new one starts at
every episode k, with a share 1/ℓ(k) − 1/ℓ(k + 1) of the capital, ℓ(k) = 1 + log k. These add up to 1, and the sum of the
capitals follows S ← (S + share of k) · bet (Shiryaev and Roberts): waiting for a thousand good episodes costs 11 nats.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vpac.checks import real
from vpac.errors import UserError, one_of
from vpac.files import jsonable
from vpac.risk.budget import Limit
from vpac.risk.intervals import Interval, mean_upper_bound, one_sample
from vpac.risk.sample import ReturnSample
from vpac.typing import FloatArray

TESTS = ("mean", "variance", "change")
STAKES = np.array([0.9, 0.5, 0.25, 0.125, 0.0625, 0.03125])
"""λ: shares of the capital that are lost if Z is 0."""
POWERS = np.array([0.9, 0.75, 0.5, 0.25])
"""κ."""
BET_WIDTH = max(len(STAKES), 2 * len(POWERS))
REFERENCE_SHARE = 0.2
"""The share of the certificate's returns that determines a, b and c."""
PROMISED = 0.2
"""The share of a test's α that covers a wrong m₀."""
LARGEST_CAPITAL = 1e300
"""Capital is clipped to this."""
SHIFTS = {
    "mean lower by ½ standard deviation": (-0.5, 1.0),
    "mean lower by 1 standard deviation": (-1.0, 1.0),
    "mean lower by 2 standard deviations": (-2.0, 1.0),
    "standard deviation 1.5 times": (0.0, 1.5),
    "standard deviation 2 times": (0.0, 2.0),
}
"""Shifts whose delays are reported: change of the mean in standard deviations, and factor of the standard deviation."""


@dataclass(frozen=True)
class Promise:
    """The promise that a number Z ≥ 0, a function of each return, has a mean of at most m₀."""

    name: str
    """Name of its test."""
    words: str
    low: float
    """Returns below are raised to this; for a probability, the threshold."""
    high: float
    """Returns above are lowered to this."""
    centre: float
    """Centre of the deviations."""
    most: float
    """m₀."""

    def numbers(self, returns: ArrayLike) -> FloatArray:
        """Z of each return."""
        x = np.asarray(returns, np.float64)
        if self.name.startswith("below"):
            return np.asarray(x < self.low, np.float64)
        kept = np.clip(x, self.low, self.high)
        if self.name == "mean":
            return np.asarray((self.high - kept) / (self.high - self.low), np.float64)
        return np.asarray(((kept - self.centre) / max(self.high - self.centre, self.centre - self.low)) ** 2)


@dataclass(frozen=True)
class Alarm:
    """An alarm of a test."""

    test: str
    """Name of the test."""
    episode: int
    """Number of episodes before it."""
    evidence: float
    """The gambler's capital, 1 at the start."""
    words: str
    """The meaning in words."""

    def __str__(self) -> str:
        return f"after {self.episode} episodes: {self.words} (evidence {self.evidence:.3g} to 1)"


class Monitor:
    """Takes returns one at a time and raises an alarm when they break the promise; see `vpac.monitor`."""

    def __init__(
        self, reference: ArrayLike, *, alpha: float = 0.05, tests: Sequence[str] = TESTS, limits: Sequence[Limit] = (),
        seed: int = 0,
    ) -> None:  # fmt: skip
        x = one_sample(reference)
        if len(x) < 10 or not np.isfinite(x).all():
            raise UserError(f"a monitor needs at least ten finite returns to compare with, got {len(x)}")
        if not 0.0 < real(alpha, "alpha", "a probability") < 1.0:
            raise UserError(f"alpha must be between 0 and 1, got {alpha!r}")
        self.reference, self.alpha = x, float(alpha)
        wanted = [one_of(test, TESTS, "test") for test in tests]
        ruins = [limit for limit in limits if limit.kind == "max-ruin"]
        if not wanted and not ruins:
            raise UserError(f"expected at least one test of {', '.join(TESTS)}")
        share = self.alpha / (len(wanted) + len(ruins))
        self.promises = tuple(_promise(x, test, PROMISED * share) for test in wanted if test != "change")
        self.promises += tuple(
            Promise(f"below {limit.at:g}", limit.words, limit.at, np.inf, limit.at, limit.value) for limit in ruins
        )
        known = {promise.name: promise.name.startswith("below") for promise in self.promises}
        self.thresholds = {name: 1.0 / (share if sure else (1.0 - PROMISED) * share) for name, sure in known.items()}
        if "change" in wanted:
            self.thresholds["change"] = 1.0 / share
        self.alarms: dict[str, Alarm] = {}
        """The first alarm of each test."""
        self._pool, self._seen = sorted(x.tolist()), list[float]()
        self._rng = np.random.default_rng(seed)
        self._capital = np.zeros((len(self.thresholds), BET_WIDTH))

    @property
    def episodes(self) -> int:
        """Number of returns so far."""
        return len(self._seen)

    @property
    def evidence(self) -> dict[str, float]:
        """The capital of each test, 1 at the start; it raises an alarm at its threshold."""
        left = 1.0 / _slow(self.episodes + 1)
        return dict(zip(self.thresholds, (self._capital.sum(axis=1) + left).tolist(), strict=True))

    def update(self, returns: float | Iterable[float]) -> Alarm | None:
        """Add the return of an episode, or several in order; returns their first alarm, or None."""
        raised, given = None, list(returns) if isinstance(returns, Iterator) else returns
        try:
            x = np.atleast_1d(np.asarray(given))
        except (TypeError, ValueError):  # lists of several lengths
            x = np.zeros((0, 0))
        if x.ndim > 1 or x.dtype.kind not in "iuf" or not np.isfinite(x).all():
            raise UserError(f"a return must be a finite number, got {given!r:.60}")
        for one in x.tolist():
            found = self._take(float(one))
            raised = raised or found
        return raised

    def _take(self, y: float) -> Alarm | None:
        below, up_to = bisect_left(self._pool, y), bisect_right(self._pool, y)
        rank = (below + self._rng.random() * (up_to - below + 1)) / (len(self._pool) + 1)
        insort(self._pool, y)
        self._seen.append(y)
        self._capital = _staked(self._capital, self._bets(np.float64(y), np.float64(rank)), self.episodes)
        for test, evidence in self.evidence.items():
            if test not in self.alarms and evidence >= self.thresholds[test]:
                self.alarms[test] = Alarm(test, self.episodes, evidence, self._words(test))
                return self.alarms[test]
        return None

    def _words(self, test: str) -> str:
        if test == "change":
            return "the returns are no longer those that were certified: lower, or farther out"
        return next(f"no longer true: {promise.words}" for promise in self.promises if promise.name == test)

    def _bets(self, y: Any, rank: Any) -> FloatArray:
        """Factor of the capital for each bet, [..., tests, bets]; 0 for bets that a test does not have."""
        made = np.zeros((*np.shape(y), len(self.thresholds), BET_WIDTH))
        for number, promise in enumerate(self.promises):
            z = promise.numbers(y)[..., None] / promise.most
            made[..., number, : len(STAKES)] = 1.0 + STAKES * (z - 1.0)
        if "change" in self.thresholds:
            both = np.stack([rank, 2.0 * np.minimum(rank, 1.0 - rank)], axis=-1)[..., None]
            bets = POWERS * np.maximum(both, 1e-12) ** (POWERS - 1.0)
            made[..., -1, : 2 * len(POWERS)] = bets.reshape(*np.shape(y), -1)
        return made

    def interval(self, level: float = 0.95) -> Interval:
        """The mean of the returns so far, clipped to a … b, with an interval that holds at all times at once."""
        if not self._seen:
            raise UserError("no return was given yet")
        promise = _promise(self.reference, "mean", 0.5)
        z, span = promise.numbers(self._seen), promise.high - promise.low
        most, rest = (mean_upper_bound(x, level=0.5 + level / 2.0, anytime=True) for x in (z, 1.0 - z))
        return Interval(*(promise.high - span * share for share in (float(z.mean()), most, 1.0 - rest)))

    def paths(self, streams: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The evidence of every test after each return of several streams, [streams, tests, episodes], from the start."""
        ranks = np.stack([online_ranks(self.reference, stream, rng) for stream in streams])
        return evidence_paths(self._bets(streams, ranks))

    def delays(
        self, before: int = 0, *, most: int = 300, trials: int = 200, seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Episodes from a shift to the first alarm: median and 90 % quantile for each of `SHIFTS`.

        Returns are drawn from the certificate's, and shifted after `before` episodes. Gamblers who started before the shift are
        left out, so the delay is at most this; ∞ means more than `most` episodes. There are `trials` streams for each shift.
        """
        found, rng, x = {}, np.random.default_rng(seed), self.reference
        limits = np.array(list(self.thresholds.values()))[:, None]
        for words, (moved, factor) in SHIFTS.items():
            streams = x.mean() + factor * (rng.choice(x, (trials, most)) - x.mean()) + moved * x.std()
            pools = [np.concatenate([x, rng.choice(x, before)]) for _ in range(trials)]
            ranks = np.stack([online_ranks(*pair, rng) for pair in zip(pools, streams, strict=True)])
            over = np.any(evidence_paths(self._bets(streams, ranks), before) >= limits, axis=1)
            first = np.sort(np.where(over.any(axis=1), over.argmax(axis=1) + 1.0, np.inf))
            found[words] = float(first[(trials - 1) // 2]), float(first[int(np.ceil(0.9 * trials)) - 1])
        return found


def evidence_paths(bets: FloatArray, before: int = 0) -> FloatArray:
    """The sums of the capitals, [streams, tests, episodes], from the factors of their bets, [streams, episodes, tests, bets].

    `before`: number of earlier episodes, whose capital is ignored.
    """
    capital, found = np.zeros((len(bets), *bets.shape[2:])), np.zeros((len(bets), bets.shape[2], bets.shape[1]))
    for k in range(bets.shape[1]):
        capital = _staked(capital, bets[:, k], before + k + 1)
        found[:, :, k] = capital.sum(axis=-1) + 1.0 / _slow(before + k + 2)
    return found


def online_ranks(reference: FloatArray, stream: FloatArray, rng: np.random.Generator) -> FloatArray:
    """p-value (rank) of each return of a stream among the reference and the returns before it, ties broken at random."""
    ordered, t = np.sort(reference), np.arange(len(stream))
    earlier = np.tril(np.ones((len(stream), len(stream)), bool), -1)
    below = np.searchsorted(ordered, stream, side="left") + (earlier & (stream < stream[:, None])).sum(axis=1)
    up_to = np.searchsorted(ordered, stream, side="right") + (earlier & (stream <= stream[:, None])).sum(axis=1)
    return np.asarray((below + rng.random(len(stream)) * (up_to - below + 1)) / (len(ordered) + t + 1))


def monitor(certificate: Any, *, alpha: float = 0.05, tests: Sequence[str] = TESTS, seed: int = 0) -> Monitor:
    """Monitor the returns of a certified policy: `update` takes them one at a time and raises an alarm if they get worse.

    Args:
        certificate: the file that `vpac certify` wrote, a `PolicyCertificate`, a `ReturnSample`, or returns.
        alpha: the probability of a false alarm, over any number of episodes and all tests together.
        tests: of "mean", "variance" and "change"; with fewer tests each raises its alarm sooner. The limits P(G < c) ≤ q of a
            certificate are tested, too.
        seed: seed of the ranks of equal returns.
    """
    from vpac.risk.certificate import PolicyCertificate

    if isinstance(certificate, str | Path):
        certificate = PolicyCertificate.load(certificate)
    limits = certificate.limits if isinstance(certificate, PolicyCertificate) else ()
    sample = certificate.sample if isinstance(certificate, PolicyCertificate) else certificate
    returns = sample.returns if isinstance(sample, ReturnSample) else sample
    return Monitor(returns, alpha=alpha, tests=tests, limits=limits, seed=seed)


def delay_rows(watch: Monitor, befores: Sequence[int] = (0, 1000), **how: Any) -> list[Mapping[str, Any]]:
    """`Monitor.delays` as plain data, a row for each shift and its time; unknown numbers are None."""
    rows = [
        {"shift": words, "after": before, "median": median, "most": most}
        for before in befores
        for words, (median, most) in watch.delays(before, **how).items()
    ]
    return list(jsonable(rows))


def _slow(k: int) -> float:
    """ℓ(k)."""
    return 1.0 + float(np.log(k))


def _staked(capital: FloatArray, bets: FloatArray, k: int) -> FloatArray:
    """The capitals after episode k, at which a new gambler starts; the bets of a test get equal shares."""
    used = np.count_nonzero(bets, axis=-1, keepdims=True)
    share = (1.0 / _slow(k) - 1.0 / _slow(k + 1)) / np.maximum(used, 1)
    return np.asarray(np.minimum((capital + share) * bets, LARGEST_CAPITAL))


def _promise(x: FloatArray, test: str, error: float) -> Promise:
    first = x[: max(int(REFERENCE_SHARE * len(x)), 2)]
    low, high, centre = float(first.min()), float(first.max()), float(first.mean())
    if not high > low:  # no variation: every other return counts as far off
        low, high = low - max(1.0, abs(low)), high + max(1.0, abs(high))
    blank = Promise(test, "", low, high, centre, 1.0)
    most = mean_upper_bound(blank.numbers(x[len(first) :]), level=1.0 - error)
    if test == "mean":
        words = f"the mean is at least {high - most * (high - low):.5g}"
    else:
        far = max(high - centre, centre - low)
        words = f"the standard deviation is at most {far * most**0.5:.5g}"
    return Promise(test, words, low, high, centre, most)
