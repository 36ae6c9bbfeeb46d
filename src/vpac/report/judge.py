"""Claims before the numbers: a score over runs with a bootstrap interval decides."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from vpac.experiments.spec import Claim
from vpac.report.document import ClaimRow, Estimate, Verdict
from vpac.report.results import Results
from vpac.report.words import NAMES, size_notes
from vpac.risk.intervals import Interval, bootstrap_many
from vpac.typing import FloatArray

__all__ = ["anchor", "judge", "score", "verdict"]

ENOUGH = 5
"""Runs of each arm that a verdict needs."""
ROUNDING = 1e-9
"""A score below this is zero: what is left is rounding."""
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


def judge(results: Results) -> list[ClaimRow]:
    """Every claim of a study."""
    return [_row(results, claim) for claim in results.study.experiment.claims]


def score(claim: Claim, samples: list[FloatArray]) -> Interval:
    """The claim's score and its 95 % bootstrap interval; the generator is seeded by the claim's text."""
    seed = int.from_bytes(hashlib.sha256(claim.text.encode()).digest()[:8], "big")
    found = bootstrap_many(samples, SCORES[claim.by], seed=seed)
    if min(len(sample) for sample in samples) < 2:
        return Interval(found.estimate, float("nan"), float("nan"))
    return Interval(*(0.0 if abs(end) < ROUNDING else end for end in (found.estimate, found.low, found.high)))


def verdict(claim: Claim, found: Interval, runs: int = ENOUGH) -> Verdict:
    """It holds if the whole interval is on the right side of the bounds, not if it is on the wrong side of one.

    Of fewer than `ENOUGH` runs the bootstrap knows too little: nothing is decided.
    """
    if runs < ENOUGH:
        return "undecided"
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
    command, link = results.study.command, anchor(experiment.name)
    compared = f" {'÷' if claim.by == 'ratio' else '−'} ".join(labels)
    bounds = [
        f"{word} {bound:g}" for word, bound in (("above", claim.above), ("below", claim.below)) if bound is not None
    ]
    expected = " and ".join(bounds).replace("-", "−")
    how = f"{NAMES.get(claim.quantity, claim.quantity)}: {compared}, expected {expected}"
    where, group = f"{experiment.title} ({claim.where})", GROUPS[claim.of]
    if any(len(sample) == 0 for sample in samples):
        return ClaimRow(where, claim.text, claim.paper, None, "undecided", f"{how}. No runs yet.", command, link, group)
    found = score(claim, samples)
    fewest = min(len(sample) for sample in samples)
    decided = verdict(claim, found, fewest)
    runs = " and ".join(str(len(sample)) for sample in samples)
    scale = "" if results.study.scale == 1.0 else f" of {results.study.scale:g} times the length"
    small = f" {' '.join(size_notes(results))}" if experiment.kind == "deep" and size_notes(results) else ""
    few = f" Fewer than {ENOUGH} runs decide nothing." if fewest < ENOUGH else ""
    words = f"{how}; {runs} runs{scale}.{small}{few}" + (
        f" {claim.explanation}" if claim.explanation and decided != "holds" else ""
    )
    ours = Estimate(found.estimate, found.low, found.high)
    return ClaimRow(where, claim.text, claim.paper, ours, decided, words, command, link, group)
