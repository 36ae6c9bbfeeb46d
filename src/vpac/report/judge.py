"""Claims before the numbers: a score over runs with a bootstrap interval decides."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from vpac.experiments.spec import Claim
from vpac.report.document import ClaimRow, Estimate, Verdict
from vpac.report.results import Results
from vpac.risk.intervals import Interval, bootstrap_many
from vpac.typing import FloatArray

__all__ = ["anchor", "judge", "score", "verdict"]

SCORES: dict[str, Callable[..., FloatArray]] = {
    "ratio": lambda a, b: a.mean(axis=-1) / b.mean(axis=-1),
    "difference": lambda a, b: a.mean(axis=-1) - b.mean(axis=-1),
    "value": lambda a: a.mean(axis=-1),
}
GROUPS = {
    "paper": "The paper's claims, of its algorithms as published",
    "corrected": "The same claims, of the corrected forms",
    "ours": "Claims of ours",
}
NAMES = {
    "mean": "mean return", "variance": "variance of the return", "sharpe": "Sharpe ratio",
    "within": "variance from a given start cell", "risky": "share of steps in risky cells",
}  # fmt: skip


def judge(results: Results) -> list[ClaimRow]:
    """Every claim of a study."""
    return [_row(results, claim) for claim in results.study.experiment.claims]


def score(claim: Claim, samples: list[FloatArray]) -> Interval:
    """The claim's score and its 95 % bootstrap interval; the generator is seeded by the claim's text."""
    seed = int.from_bytes(hashlib.sha256(claim.text.encode()).digest()[:8], "big")
    found = bootstrap_many(samples, SCORES[claim.by], seed=seed)
    if min(len(sample) for sample in samples) < 2:
        return Interval(found.estimate, float("nan"), float("nan"))
    return found


def verdict(claim: Claim, found: Interval) -> Verdict:
    """It holds if the whole interval is on the right side of the bounds, not if it is on the wrong side of one."""
    low, high = -np.inf if claim.above is None else claim.above, np.inf if claim.below is None else claim.below
    if not (np.isfinite(found.low) and np.isfinite(found.high)):
        return "undecided"
    if low < found.low and found.high < high:
        return "holds"
    if found.high <= low or found.low >= high:
        return "does not hold"
    return "undecided"


def anchor(name: str) -> str:
    """Where the page shows an experiment."""
    return f"experiment-{name.replace('/', '-')}"


def _row(results: Results, claim: Claim) -> ClaimRow:
    experiment = results.study.experiment
    labels = [claim.arm] + ([claim.against] if claim.against is not None else [])
    samples = [results.final(label, claim.quantity) for label in labels]
    command, link = f"vpac reproduce {experiment.name}", anchor(experiment.name)
    compared = f" {'÷' if claim.by == 'ratio' else '−'} ".join(labels)
    bounds = [
        f"{word} {bound:g}" for word, bound in (("above", claim.above), ("below", claim.below)) if bound is not None
    ]
    how = f"{NAMES.get(claim.quantity, claim.quantity)}: {compared}, expected {' and '.join(bounds)}"
    where, group = f"{experiment.title} ({claim.where})", GROUPS[claim.of]
    if any(len(sample) == 0 for sample in samples):
        return ClaimRow(where, claim.text, claim.paper, None, "undecided", f"{how}. No runs yet.", command, link, group)
    found = score(claim, samples)
    decided = verdict(claim, found)
    runs = " and ".join(str(len(sample)) for sample in samples)
    words = f"{how}; {runs} runs." + (f" {claim.explanation}" if claim.explanation and decided != "holds" else "")
    ours = Estimate(found.estimate, found.low, found.high)
    return ClaimRow(where, claim.text, claim.paper, ours, decided, words, command, link, group)
