"""Verdicts on claims that were written before the runs: a score over runs with a bootstrap interval decides."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from vpac.lab.experiments.spec import Arm, Claim
from vpac.lab.report.chart import Table
from vpac.lab.report.document import ClaimEstimate, ClaimRow, Document, Verdict
from vpac.lab.report.results import Results
from vpac.risk.intervals import Interval, bootstrap_many
from vpac.typing import FloatArray

ENOUGH = 5
"""Runs of each arm that a verdict needs."""
ROUNDING = 1e-9
"""A score below this is zero: the rest is rounding."""
SCORES: dict[str, Callable[..., FloatArray]] = {
    "ratio": lambda a, b: a.mean(axis=-1) / b.mean(axis=-1),
    "difference": lambda a, b: a.mean(axis=-1) - b.mean(axis=-1),
    "value": lambda a: a.mean(axis=-1),
}
NAMES = {
    "mean": "mean return", "variance": "variance of the return", "sharpe": "Sharpe ratio",
    "within": "variance from a given start cell", "risky": "share of steps in risky cells",
    "fixed_mean": "mean score from one fixed start", "fixed_variance": "variance of the score from one fixed start",
    "fixed_discounted_variance": "variance of the discounted return from one fixed start", "cvar": "mean of the worst tenth",
    "discounted_mean": "mean discounted return", "discounted_variance": "variance of the discounted return",
}  # fmt: skip
"""Names of measured quantities in sentences."""
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
    """Holds if the interval is inside the bounds, does not hold if it is outside, and is undecided otherwise.

    Fewer than `ENOUGH` runs are too few for the bootstrap: nothing is decided.
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
    """The name of an experiment's section on the page."""
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
    small = f" {results.size_note()}".rstrip() if experiment.kind == "deep" else ""
    few = f" Fewer than {ENOUGH} runs decide nothing." if fewest < ENOUGH else ""
    words = f"{how}; {runs} runs{scale}.{small}{few}" + (
        f" {claim.explanation}" if claim.explanation and decided != "holds" else ""
    )
    ours = ClaimEstimate(found.estimate, found.low, found.high)
    return ClaimRow(where, claim.text, claim.paper, ours, decided, words, command, link, group)


def winner(results: Results, arms: list[Arm]) -> Arm:
    """The arm that the paper's rule chooses: the least variance among the highest means.

    A mean ties with the best one if it is lower by no more than two standard errors of the difference: the paper does not
    say what a tie is, and over few runs means are never equal.
    """
    means = {arm.label: results.final(arm.label, "mean") for arm in arms}
    top = max(arms, key=lambda arm: float(means[arm.label].mean()))

    def ties(arm: Arm) -> bool:
        here, best = means[arm.label], means[top.label]
        errors = [x.var(ddof=1) / len(x) for x in (best, here) if len(x) > 1]
        return float(best.mean() - here.mean()) <= 2.0 * float(np.sqrt(sum(errors)))

    return min((arm for arm in arms if ties(arm)), key=lambda arm: float(results.final(arm.label, "variance").mean()))


def claims_as_markdown(document: Document) -> str:
    """A table for each group of claims."""
    text = ""
    for group in dict.fromkeys(claim.group for claim in document.claims):
        rows = []
        for claim in (claim for claim in document.claims if claim.group == group):
            ours = ("", "") if claim.ours is None else (claim.ours.text(), claim.ours.interval())
            name = f"`{claim.command.removeprefix('vpac reproduce ')}`" if claim.command else claim.experiment
            rows.append((name, claim.sentence, claim.paper_number, *ours, claim.verdict))
        columns = ("experiment", "claim", "paper", "ours", "95 % interval", "")
        text += f"## {group}\n\n{Table.of(columns, rows).as_markdown()}\n"
    return text
