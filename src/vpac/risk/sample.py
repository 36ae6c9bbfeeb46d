"""A sample of returns, one per episode of a fixed policy, and its metrics.

The variance is a sum of squared deviations d² from the mean, its error a sum of d⁴. Two numbers measure how many episodes
they depend on:

    N = (Σ d²)² / Σ d⁴ = n / kurtosis     effective number of episodes behind the variance
    T = max d⁴ / Σ d⁴                     largest share of one episode in its error

N is a third of the episodes for a normal distribution and a ninth for an exponential one; below ten an interval is unreliable.
T falls with the number of episodes unless the fourth moment is infinite: if the kurtosis is above 15 and one episode has
more than 0.3 of it, the next one as large will move the variance beyond any interval. docs/measuring.md has the coverage
and the share of samples with that note. A tail that is not in the sample cannot be noted.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from vpac.errors import UserError, one_of
from vpac.files import as_parquet, parse, read_input, write_bytes, write_text
from vpac.risk import intervals, metrics
from vpac.risk.intervals import Interval, one_sample
from vpac.typing import BoolArray, FloatArray, IntArray

FEW_EFFECTIVE = 10.0
"""Smallest N with which the interval of the variance is reliable."""
HEAVY, ALONE = 15.0, 0.3
"""Kurtosis above which it is unreliable as well, if a single episode has more than this share of it."""


def carriers(sample: ArrayLike) -> tuple[float, float]:
    """N and T above; NaN if the sample does not vary."""
    x = one_sample(sample)
    squares = (x - x.mean()) ** 2
    scale = float(squares.max())
    if not scale > 0.0 or np.ptp(x) == 0.0:
        return float("nan"), float("nan")
    shares = squares / scale
    fourth = float(shares @ shares)
    return float(shares.sum()) ** 2 / fourth, 1.0 / fourth


def tail_note(sample: ArrayLike) -> str | None:
    """A note about a sample whose variance depends on too few observations; None if there is nothing to say."""
    (number, top), n = carriers(sample), len(one_sample(sample))
    if number < FEW_EFFECTIVE:
        why = f"the variance rests on about {max(number, 1.0):.0f} of {n} episodes"
    elif number * HEAVY < n and top > ALONE:
        why = f"one of {n} episodes carries {100 * top:.0f} % of the error of the variance"
    else:
        return None
    return (
        f"{why}: the intervals of variance, semi-variance and Sharpe ratio may be too short; measure more episodes, or rely on "
        "quantiles, CVaR and the Gini deviation"
    )


SAMPLE_FORMAT, OLDER_SAMPLES = 2, (1,)
"""Format 2: the numbers have a checksum."""
SAMPLE_COLUMNS = {
    "return": "discounted_returns", "undiscounted": "undiscounted_returns", "length": "lengths", "terminated": "terminated",
}  # fmt: skip
ENDINGS = (".parquet", ".json")
METADATA_KEY = "vpac.sample"


def _digest(sample: ReturnSample) -> str:
    """Checksum of a sample."""
    head = json.dumps([sample.gamma, sample.kind, dict(sample.about)], sort_keys=True)
    found = hashlib.sha256(head.encode())
    for column in SAMPLE_COLUMNS.values():
        found.update(np.ascontiguousarray(getattr(sample, column)).tobytes())
    return found.hexdigest()


def _from_parquet(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    import polars as pl

    try:
        head = parse(pl.read_parquet_metadata(io.BytesIO(content))[METADATA_KEY])
        frame = pl.read_parquet(io.BytesIO(content))
    except pl.exceptions.PanicException as error:  # not an Exception
        raise ValueError(error) from None
    return head, {name: frame[name].to_numpy() for name in SAMPLE_COLUMNS}


ReturnKind = Literal["discounted", "undiscounted"]
MEASURES = (
    "mean", "variance", "std", "semivariance", "sharpe", "quantile", "value_at_risk", "cvar", "gini_deviation", "minimum",
    "maximum", "length",
)  # fmt: skip
"""Metrics of `ReturnSample.interval`."""
SKEWED: dict[str, Callable[..., Interval]] = {
    "mean": intervals.skewed_mean_interval, "variance": intervals.skewed_variance_interval,
    "semivariance": intervals.semivariance_interval, "sharpe": intervals.sharpe_interval,
    "gini_deviation": intervals.gini_interval,
}  # fmt: skip
SHOWN_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Row:
    """A row of the table of a sample."""

    name: str
    """Name of the metric."""
    interval: Interval
    """The estimate with its interval; unknown ends are NaN."""


@dataclass(frozen=True, eq=False)
class ReturnSample:
    """Episodes of a policy: discounted return, sum of rewards and length of each.

    Metrics are of the discounted returns; `sample.undiscounted` has the same metrics of the sums of rewards.
    """

    discounted_returns: FloatArray
    """Σ γ^t R of each episode."""
    undiscounted_returns: FloatArray
    """Σ R of each episode."""
    lengths: IntArray
    """Steps of each episode."""
    terminated: BoolArray
    """Whether it terminated; otherwise it was truncated."""
    gamma: float
    """The discount factor."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Description of how the sample was made, as plain data."""
    kind: ReturnKind = "discounted"
    """Kind of returns that the metrics use."""

    def __post_init__(self) -> None:
        one_of(self.kind, ("discounted", "undiscounted"), "kind of return")
        for name, kind in zip(SAMPLE_COLUMNS.values(), (np.float64, np.float64, np.int64, bool), strict=True):
            column = np.array(getattr(self, name), kind)
            if column.ndim != 1 or len(column) != np.size(self.lengths) or not len(column):
                raise UserError(f"expected one number of at least one episode each, {name} has shape {column.shape}")
            if not (finite := np.isfinite(column)).all():
                raise UserError(f"{name} holds a number that is not finite, in episode {int(np.argmin(finite))}")
            column.flags.writeable = False
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.lengths)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReturnSample):
            return NotImplemented
        same = all(np.array_equal(getattr(self, name), getattr(other, name)) for name in SAMPLE_COLUMNS.values())
        return same and (self.gamma, self.kind, dict(self.about)) == (other.gamma, other.kind, dict(other.about))

    __hash__ = None  # type: ignore[assignment]

    @property
    def returns(self) -> FloatArray:
        """The returns that the metrics use."""
        return self.discounted_returns if self.kind == "discounted" else self.undiscounted_returns

    @property
    def discounted(self) -> ReturnSample:
        """The same episodes with metrics of the discounted returns."""
        return replace(self, kind="discounted")

    @property
    def undiscounted(self) -> ReturnSample:
        """The same episodes with metrics of the sums of rewards."""
        return replace(self, kind="undiscounted")

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(metrics.mean(self.returns))

    @property
    def variance(self) -> float:
        """Variance of the return, unbiased; NaN for a single episode."""
        return float(metrics.variance(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the return."""
        return float(metrics.std(self.returns))

    @property
    def semivariance(self) -> float:
        """The part of the variance that lies below the mean."""
        return float(metrics.semivariance(self.returns))

    @property
    def sharpe(self) -> float:
        """Mean over standard deviation."""
        return float(metrics.sharpe(self.returns))

    @property
    def gini_deviation(self) -> float:
        """Half the mean absolute difference of two episodes' returns."""
        return float(metrics.gini_deviation(self.returns))

    @property
    def minimum(self) -> float:
        """The worst return in the sample."""
        return float(self.returns.min())

    @property
    def maximum(self) -> float:
        """The best return in the sample."""
        return float(self.returns.max())

    @property
    def length(self) -> float:
        """Mean length of an episode, in steps."""
        return float(self.lengths.mean())

    def quantile(self, share: float = 0.5) -> float:
        """The smallest return that at least a `share` of the episodes do not exceed."""
        return float(metrics.quantile(self.returns, share))

    def value_at_risk(self, alpha: float = 0.05) -> float:
        """The largest of the worst α share of the returns, `quantile(alpha)`; a return, not a loss."""
        return float(metrics.value_at_risk(self.returns, alpha))

    def cvar(self, alpha: float = 0.05) -> float:
        """The mean of the worst α share of the returns."""
        return float(metrics.cvar(self.returns, alpha))

    def unseen(self, level: float = 0.95) -> float:
        """Largest share of episodes below the minimum (and likewise above the maximum), with confidence `level`."""
        return intervals.unseen_share(len(self), level=level)

    def notes(self) -> tuple[str, ...]:
        """Reasons to doubt some of the intervals (`vpac.risk.sample`)."""
        found = tail_note(self.returns)
        return () if found is None else (found,)

    def interval(self, metric: str, level: float = 0.95, *, alpha: float = 0.05, share: float = 0.5) -> Interval:
        """A metric and its confidence interval; docs/measuring.md has the measured coverage.

        A sample cannot bound returns beyond its minimum or maximum, so that end of their intervals is unknown; see `unseen`.

        Args:
            metric: one of `MEASURES`.
            level: the confidence.
            alpha: the share of "value_at_risk" and "cvar".
            share: which "quantile".
        """
        x = self.returns
        match one_of(metric, MEASURES, "metric"):
            case "std":
                found = intervals.skewed_variance_interval(x, level=level)
                return Interval(self.std, float(np.sqrt(found.low)), float(np.sqrt(found.high)))
            case "quantile":
                return intervals.quantile_interval(x, share, level=level)
            case "value_at_risk":
                return intervals.quantile_interval(x, alpha, level=level)
            case "cvar":
                return intervals.cvar_interval(x, alpha, level=level)
            case "minimum":
                return Interval(self.minimum, np.nan, self.minimum)
            case "maximum":
                return Interval(self.maximum, self.maximum, np.nan)
            case "length":
                return intervals.skewed_mean_interval(self.lengths, level=level)
            case _:
                return SKEWED[metric](x, level=level)

    def rows(
        self, level: float = 0.95, alphas: Sequence[float] = (0.05,), quantiles: Sequence[float] = SHOWN_QUANTILES
    ) -> list[Row]:
        """Every metric with its interval; VaR and CVaR for each of `alphas`."""
        plain = {
            "mean": "mean", "variance": "variance", "std": "standard deviation", "semivariance": "semi-variance below the mean",
            "sharpe": "Sharpe ratio", "gini_deviation": "Gini deviation",
        }  # fmt: skip
        found = [Row(words, self.interval(name, level)) for name, words in plain.items()]
        found += [Row(f"quantile {q:g}", self.interval("quantile", level, share=q)) for q in quantiles]
        for alpha in alphas:
            found.append(Row(f"VaR {alpha:g}", self.interval("value_at_risk", level, alpha=alpha)))
            found.append(Row(f"CVaR {alpha:g}", self.interval("cvar", level, alpha=alpha)))
        words = {"minimum": "minimum", "maximum": "maximum", "length": "episode length"}
        return found + [Row(word, self.interval(name, level)) for name, word in words.items()]

    def table(self, level: float = 0.95) -> str:
        """The rows as text."""

        def number(value: float) -> str:
            return "?" if np.isnan(value) else f"{value:.5g}"

        lines = [f"{len(self)} episodes, {self.kind} returns (gamma {self.gamma:g}), {100 * level:g} % intervals"]
        lines += [
            f"{row.name:<30}{number(row.interval.estimate):>12}   {number(row.interval.low)} … {number(row.interval.high)}"
            for row in self.rows(level)
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes())])

    def save(self, path: str | Path) -> Path:
        """Write every episode to a .parquet or .json file, atomically."""
        path = Path(path)
        columns = {name: getattr(self, field) for name, field in SAMPLE_COLUMNS.items()}
        head: Any = {"format": SAMPLE_FORMAT, "gamma": self.gamma, "kind": self.kind, "about": dict(self.about)}
        head["sha256"] = _digest(self)
        if one_of(path.suffix, ENDINGS, "ending of a file of returns") == ".json":
            data = head | {name: column.tolist() for name, column in columns.items()}
            return write_text(path, json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")
        metadata = {METADATA_KEY: json.dumps(head, allow_nan=False)}  # in ASCII: the name of a folder may not be UTF-8
        return write_bytes(path, as_parquet(columns, metadata=metadata))

    @classmethod
    def load(cls, path: str | Path) -> ReturnSample:
        """Read a sample; runs no stored code."""
        path = Path(path)
        one_of(path.suffix, ENDINGS, "ending of a file of returns")
        content = read_input(path)
        try:
            head, columns = (parse(content),) * 2 if path.suffix == ".json" else _from_parquet(content)
            if (version := head["format"]) not in (SAMPLE_FORMAT, *OLDER_SAMPLES):
                raise UserError(f"it is in format {version!r:.40}: this version reads formats up to {SAMPLE_FORMAT}")
            fields = {field: columns[name] for name, field in SAMPLE_COLUMNS.items()}
            found = cls(**fields, gamma=float(head["gamma"]), about=dict(head["about"]), kind=head["kind"])
            if ("sha256" in head or version == SAMPLE_FORMAT) and head.get("sha256") != _digest(found):
                raise UserError("it is not what was written: its checksum differs")
            return found
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except Exception as error:  # Polars has its own errors for every kind of damage
            raise UserError(
                f"{path} does not hold a sample of returns: {type(error).__name__}: {error!s:.80}"
            ) from None

    def __repr__(self) -> str:
        return f"ReturnSample({len(self)} episodes, {self.kind}, mean {self.mean:.5g}, variance {self.variance:.5g})"
