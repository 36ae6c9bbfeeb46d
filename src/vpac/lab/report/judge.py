"""Verdicts on claims that were written before the runs: a score over runs with its interval decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from vpac.lab.experiments.spec import Arm, Claim
from vpac.lab.report.chart import ClaimEstimate, ClaimRow, Document, Table, Verdict
from vpac.lab.report.results import Results, never_negative
from vpac.risk.compare import difference_of_means, ratio_of_means
from vpac.risk.intervals import Interval, mean_interval, not_negative
from vpac.typing import FloatArray

ENOUGH = 5
"""Runs of each arm that a verdict needs."""
SCORE_ROUNDING = 1e-9
"""A score below this is zero: the rest is rounding."""
SCORES: dict[str, Callable[..., Interval]] = {
    "ratio": ratio_of_means, "difference": difference_of_means, "value": mean_interval,
}  # fmt: skip
"""Fieller's, Welch's and Student's intervals; between equal arms of five runs they decide in at most 5 % of cases."""
PAPER_SCALE = 0.01
"""The preset "paper" multiplies rewards by it, so its prices are per such a unit."""
QUANTITY_NAMES = {
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
    """The claim's score, a function of averages over runs, and its 95 % interval, cut at 0 for what cannot be less."""
    found = SCORES[claim.by](*samples)
    ends = (0.0 if abs(end) < SCORE_ROUNDING else end for end in (found.estimate, found.low, found.high))
    cut = claim.by != "difference" and never_negative(claim.quantity)
    return not_negative(Interval(*ends)) if cut else Interval(*ends)


def objective_gain(results: Results, claim: Claim) -> ClaimEstimate | None:
    """Worth of a lower variance: U = mean − ψ · variance of the arm less that of the arm it is compared with.

    ψ is the price that the claim's arm was trained with. None for claims of other kinds, or if there is no such number.
    """
    settings = results.study.experiment.settings_of(results.study.experiment.arm(claim.arm))
    price, quantity = settings.get("psi"), "variance" if claim.quantity == "within" else claim.quantity
    of_variance = claim.below is not None and quantity.endswith("variance")
    if claim.against is None or not of_variance or not isinstance(price, float):
        return None
    psi = price * PAPER_SCALE if settings.get("preset") == "paper" else price
    worth = []
    for label in (claim.arm, claim.against):
        mean, variance = (results.final(label, q) for q in (quantity.replace("variance", "mean"), quantity))
        if len(mean) < 2 or len(mean) != len(variance):
            return None
        worth.append(mean - psi * variance)
    found = difference_of_means(*worth)
    return ClaimEstimate(found.estimate, found.low, found.high)


def verdict(claim: Claim, found: Interval, runs: int = ENOUGH) -> Verdict:
    """Verdict: the claim holds if the interval is inside the bounds, does not if it is outside, and is undecided otherwise.

    Fewer than `ENOUGH` runs decide nothing.
    """
    low, high = -np.inf if claim.above is None else claim.above, np.inf if claim.below is None else claim.below
    if runs < ENOUGH or not (np.isfinite(found.low) and np.isfinite(found.high)):
        return "undecided"
    outside = found.high <= low or found.low >= high
    return "holds" if low < found.low and found.high < high else "does not hold" if outside else "undecided"


def anchor(name: str) -> str:
    """The name of an experiment's section on the page."""
    return f"experiment-{name.replace('/', '-')}"


def _row(results: Results, claim: Claim) -> ClaimRow:
    experiment = results.study.experiment
    labels = [claim.arm] + ([claim.against] if claim.against is not None else [])
    samples = [results.final(label, claim.quantity) for label in labels]
    compared = f" {'÷' if claim.by == 'ratio' else '−'} ".join(labels)
    ends = ("above", claim.above), ("below", claim.below)
    bounds = [f"{word} {bound:g}" for word, bound in ends if bound is not None]
    expected = " and ".join(bounds).replace("-", "−")
    how = f"{QUANTITY_NAMES.get(claim.quantity, claim.quantity)}: {compared}, expected {expected}"
    row = ClaimRow(
        f"{experiment.title} ({claim.where})", claim.text, claim.paper, None, "undecided", f"{how}. No runs yet.",
        results.study.command, anchor(experiment.name), GROUPS[claim.of],
    )  # fmt: skip
    if any(len(sample) == 0 for sample in samples):
        return row
    found = score(claim, samples)
    fewest = min(len(sample) for sample in samples)
    decided = verdict(claim, found, fewest)
    runs = " and ".join(str(len(sample)) for sample in samples)
    scale = "" if results.study.scale == 1.0 else f" of {results.study.scale:g} times the length"
    small = f" {results.size_note()}".rstrip() if experiment.kind == "deep" else ""
    few = f" Fewer than {ENOUGH} runs decide nothing." if fewest < ENOUGH else ""
    words = f"{how}; {runs} runs{scale}.{small}{few}"
    words += f" {claim.explanation}" if claim.explanation and decided != "holds" else ""
    ours, gain = ClaimEstimate(found.estimate, found.low, found.high), objective_gain(results, claim)
    if gain is not None:
        sign = "worth its price" if gain.low > 0.0 else "not worth its price" if gain.high < 0.0 else "undecided"
        gained = f"{gain.text()} ({gain.interval()}), {sign}"
        words += f" U = mean − ψ · variance, {claim.arm} less {claim.against}: {gained}."
    return replace(row, ours=ours, verdict=decided, explanation=words, gain=gain)


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
            gain = f"{claim.gain.text()} ({claim.gain.interval()})" if claim.gain else ""
            rows.append((name, claim.sentence, claim.paper_number, *ours, claim.verdict, gain))
        columns = ("experiment", "claim", "paper", "ours", "95 % interval", "", "gain in U")
        text += f"## {group}\n\n{Table.of(columns, rows).as_markdown()}\n"
    return text
