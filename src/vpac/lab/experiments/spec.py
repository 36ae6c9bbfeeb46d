"""Data models of experiments: their arms, figures and claims.

The same models validate studies of users, read from TOML files. Unknown fields are errors.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from vpac.errors import suggestion

Plain = bool | int | float | str | None | list[float]
"""Types of a setting: those of JSON and TOML."""
PlainSettings = dict[str, Plain]
ExperimentKind = Literal["training", "prediction", "convergence", "frontier", "theorems", "deep"]
RunCount = Annotated[int, Field(ge=1, le=10**13)]
Episodes = Annotated[int, Field(ge=1, le=10**9)]


CURVE_COLUMNS: dict[str, tuple[str, ...]] = {
    "training": ("return", "length", "mean", "variance"),
    "prediction": ("value_error", "direct_error", "indirect_error", "direct_bias", "indirect_bias", "direct_negative",
                   "indirect_negative"),
    "convergence": ("value_error", "variance_error", "direction_norm", "gradient_norm", "mean", "variance", "objective"),
    "frontier": ("mean", "variance"),
    "theorems": (),
    "deep": ("score_mean", "score_variance", "return_mean", "return_variance", "length_mean", "predicted_variance",
             "measured_variance", "kl", "entropy", "clip_fraction", "value_loss", "spread_loss", "reward_scale"),
}  # fmt: skip
"""Columns of the curves of each kind of run."""
FINAL: dict[str, tuple[str, ...]] = CURVE_COLUMNS | {
    "training": ("mean", "variance", "sharpe", "within", "risky"), "prediction": ("direct", "indirect", "ratio"),
    "deep": ("mean", "variance", "sharpe", "cvar", "discounted_mean", "discounted_variance", "discounted_sharpe",
             "discounted_cvar", "fixed_mean", "fixed_variance", "fixed_discounted_variance", "length"),
}  # fmt: skip
"""Quantities of the final policy of each kind of run."""
MAP_QUANTITIES = ("trajectory", "variance", "mean variance", "visits")


def _known(word: str, words: tuple[str, ...], what: str) -> None:
    if word not in words:
        raise ValueError(f"unknown {what} {word!r}{suggestion(word, words) or ': expected one of ' + ', '.join(words)}")


class Data(BaseModel):
    """Base model: frozen, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Arm(Data):
    """One arm of an experiment: an algorithm with its settings."""

    label: Annotated[str, Field(min_length=1, max_length=80)]
    """Name in figures and tables."""
    algorithm: str = ""
    """Name of the algorithm on the command line, e.g. `vpac`."""
    settings: PlainSettings = {}
    """Settings that differ from those of the experiment."""
    env: str | None = None
    """Environment, if it differs from that of the experiment."""
    env_settings: PlainSettings = {}
    """Arguments of the environment, in addition to those of the experiment."""
    episodes: Episodes | None = None
    """Number of episodes, if it differs from that of the experiment."""
    at: dict[str, float | str] = {}
    """Coordinates in figures of effects: the values of the varied quantities."""
    paper: dict[str, float] = {}
    """Numbers of the paper, e.g. {"mean": 43, "variance": 253}."""


class Claim(Data):
    """A claim about an experiment, and the number that decides whether it holds."""

    text: str
    """The claim, in our words."""
    where: str
    """Source: a figure or table of the paper, or "ours"."""
    of: Literal["paper", "corrected", "ours"] = "ours"
    """Kind: a claim of the paper; the same claim for the corrected forms; a claim of ours."""
    paper: str = ""
    """Number of the paper, as text."""
    quantity: str
    """Quantity of each run: mean, variance, sharpe, risky (share of steps in cells with random rewards), …"""
    arm: str
    """Label of the arm."""
    against: str | None = None
    """Label of the arm to compare with; None for by="value"."""
    by: Literal["ratio", "difference", "value"] = "ratio"
    """Comparison of the two arms."""
    below: float | None = None
    """Upper bound of the score."""
    above: float | None = None
    """Lower bound of the score."""
    explanation: str = ""
    """The reason, if the claim does not hold."""

    @model_validator(mode="after")
    def _decidable(self) -> Claim:
        if self.below is None and self.above is None:
            raise ValueError("a claim needs `below` or `above`")
        if (self.by == "value") != (self.against is None):
            raise ValueError('a claim by "value" has no `against`; by "ratio" or "difference" it needs one')
        return self


def claim(test: str, text: str, where: str = "ours", paper: str = "", **more: Any) -> Claim:
    """A claim with its test as a formula: "variance: VPAC / AC < 1", "mean: VPAC - AC > -1" or "ratio: VPAC < 1"."""
    quantity, arm, sign, against, end, bound = re.fullmatch(
        r"(\w+): (.*?)(?: ([/-]) (.*))? ([<>]) (\S+)", test
    ).groups()  # type: ignore[union-attr]
    by: Any = {"/": "ratio", "-": "difference", None: "value"}[sign]
    given = {"of": "ours" if where == "ours" else "paper", "below" if end == "<" else "above": float(bound), **more}
    return Claim(text=text, where=where, paper=paper, quantity=quantity, arm=arm, against=against, by=by, **given)


def claims(where: str, *each: tuple[str, ...]) -> tuple[Claim, ...]:
    """Claims of one figure: for each the test, the text, the number of the paper and, if it does not hold, the reason."""
    return tuple(claim(test, text, where, paper, explanation="".join(why)) for test, text, paper, *why in each)


class Figure(Data):
    """A figure of an experiment."""

    kind: Literal["curves", "effect", "maps", "paths", "bars", "boxes", "errors", "best", "frontiers"]
    """A key of `FIGURE_KINDS` in lab/report/figures.py; the docstring of its function says what it draws."""
    title: str
    """Text above the figure."""
    caption: str = ""
    """Text below the figure."""
    arms: tuple[str, ...] = ()
    """Labels of the arms to show; default: all."""
    shows: tuple[str, ...] = ()
    """One panel each: columns of the curves, final quantities, or kinds of map."""
    x: str | None = None
    """Quantity on the horizontal axis of an effect; like `lines` and `panels` a key of the arms' `at`."""
    lines: str | None = None
    """Quantity with one line for each value."""
    panels: str | None = None
    """Quantity with one row of panels for each value."""
    joined: bool = True
    """Whether lines join the points of an effect; False for quantities without an order."""
    sideways: bool = False
    """Whether `x` is on the vertical axis, for long names."""
    oracle: tuple[tuple[float, float, float], ...] = ()
    """ψ, mean and variance of the best possible policies, by ascending ψ; for frontiers."""
    log_x: bool = False
    """Whether the horizontal axis is logarithmic."""
    log_y: bool = False
    """Whether the vertical axes are logarithmic."""


def curves(title: str, caption: str, *shows: str) -> tuple[Figure, ...]:
    """Learning curves: by default the return, and mean and variance of the evaluated policy."""
    return (Figure(kind="curves", title=title, caption=caption, shows=shows or ("return", "mean", "variance")),)


class Experiment(Data):
    """An experiment of the paper, or one of ours."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*(/[a-z0-9]+(-[a-z0-9]+)*)*$", max_length=80)]
    """Name on the command line, e.g. `four-rooms/performance`."""
    title: str
    """Heading in the report."""
    about: str = ""
    """Description, with deviations from the paper."""
    paper: str = ""
    """Figure or table of the paper; empty for an experiment of ours."""
    kind: ExperimentKind = "training"
    """Kind of its runs."""
    env: str = ""
    """Gymnasium id of the environment."""
    env_settings: PlainSettings = {}
    """Arguments of the environment."""
    wrappers: tuple[tuple[str, PlainSettings], ...] = ()
    """Wrappers of the environment, the innermost first: import path, or name in `vpac.envs`, and arguments."""
    algorithm: str = ""
    """Default algorithm of the arms."""
    settings: PlainSettings = {}
    """Settings of all arms."""
    episodes: Episodes = 1000
    """Episodes of a run."""
    steps: RunCount = 1_000_000
    """Environment steps of a run of the PPO family; there, `episodes` evaluate the last policy."""
    fixed_start: PlainSettings = {}
    """Arguments of the environment that fix the start state, to evaluate as the paper does."""
    every: RunCount = 50
    """Episodes between two evaluations of the policy."""
    policy: Literal["greedy", "softmax"] = "greedy"
    """The policy to evaluate."""
    horizon: RunCount | None = None
    """Step limit of evaluation episodes; None: that of training."""
    evaluate: Literal["exact", "rollouts", "returns", "episodes"] = "exact"
    """Evaluation of policies: exactly; by 800 rollouts as in the paper; by the returns of training episodes since the last
    evaluation (at the end the last tenth); or, with "episodes", like that but at the end by `measure` episodes of the last
    policy. Environments that are not compiled need one of the last two."""
    measure: RunCount = 1000
    """Episodes to evaluate the last policy in."""
    runs: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """Independent runs of each arm at full size. For the PPO family `--scale` multiplies them too, down to five."""
    usual_runs: RunCount | None = None
    """Runs without `--full`, if the full size takes too long."""
    on_demand: bool = False
    """Whether it runs only if it is named."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed from which the seeds of the runs are spawned."""
    arms: Annotated[tuple[Arm, ...], Field(min_length=1)]
    """Arms to compare."""
    figures: tuple[Figure, ...] = (Figure(kind="curves", title="Mean and variance of the return"),)
    """Figures of the report."""
    claims: tuple[Claim, ...] = ()
    """Claims to test."""

    @model_validator(mode="after")
    def _consistent(self) -> Experiment:
        labels = [arm.label for arm in self.arms]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"two arms are called {label!r}")
        for named in [label for f in self.figures for label in f.arms] + [
            label for c in self.claims for label in (c.arm, c.against) if label is not None
        ]:
            if named not in labels:
                raise ValueError(f"there is no arm {named!r}: expected one of {', '.join(labels)}")
        for figure in self.figures:
            self._check_figure(figure)
        for claim in self.claims:
            _known(claim.quantity, FINAL[self.kind], "quantity")
        return self

    def _check_figure(self, figure: Figure) -> None:
        """Check that the runs measure what a figure shows, and that all its arms have the keys of its axes."""
        known = CURVE_COLUMNS[self.kind] if figure.kind in ("curves", "errors") else FINAL[self.kind]
        for shown in figure.shows:
            _known(shown, MAP_QUANTITIES if figure.kind == "maps" else known, "thing to show")
        if figure.kind == "frontiers" and not (figure.lines and figure.x):
            raise ValueError("frontiers need `x`, the price, and `lines`")
        if figure.kind not in ("effect", "frontiers"):
            return
        if figure.kind == "effect" and (figure.x is None or not figure.shows):
            raise ValueError("an effect needs `x`, what is varied, and `shows`")
        for key in filter(None, (figure.x, figure.lines, figure.panels)):
            for arm in self.arms:
                if not figure.arms or arm.label in figure.arms:
                    _known(key, tuple(arm.at), f"key of what the arm {arm.label!r} is `at`")

    def arm(self, label: str) -> Arm:
        """An arm by its label."""
        return next(arm for arm in self.arms if arm.label == label)

    def settings_of(self, arm: Arm) -> PlainSettings:
        """All settings of an arm."""
        return {**self.settings, **arm.settings}


def arms_of_grid(grid: dict[str, list[Any]], algorithm: str = "", prefix: str = "") -> tuple[Arm, ...]:
    """One arm for each point of a grid of settings, labelled `prefix key=value …`."""
    return tuple(
        Arm(
            label=" ".join([*([prefix] if prefix else []), *(f"{k}={v}" for k, v in zip(grid, point, strict=True))]),
            algorithm=algorithm,
            settings=dict(zip(grid, point, strict=True)),
            at={k: v if isinstance(v, str) else float(v) for k, v in zip(grid, point, strict=True)},
        )
        for point in product(*grid.values())
    )
