"""What an experiment is: data. Which arms are run how often, what is drawn of them, what the paper says of them.

The same models read a user's own study from a TOML file, so every field is checked and an unknown one is refused.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from vpac.errors import suggestion

Plain = bool | int | float | str | None | list[float]
"""What a setting may be: something that JSON and TOML can write."""
Settings = dict[str, Plain]
Kind = Literal["training", "prediction", "convergence", "frontier", "theorems", "deep"]
Count = Annotated[int, Field(ge=1, le=10**13)]
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
"""What each kind of run measures along the way …"""
FINAL: dict[str, tuple[str, ...]] = CURVE_COLUMNS | {
    "training": ("mean", "variance", "sharpe", "within", "risky"), "prediction": ("direct", "indirect", "ratio"),
    "deep": ("mean", "variance", "sharpe", "cvar", "discounted_mean", "discounted_variance", "discounted_sharpe",
             "discounted_cvar", "fixed_mean", "fixed_variance", "fixed_discounted_variance", "length"),
}  # fmt: skip
"""… and at the end."""
MAP_QUANTITIES = ("trajectory", "variance", "mean variance", "visits")


def _known(word: str, words: tuple[str, ...], what: str) -> None:
    if word not in words:
        raise ValueError(f"unknown {what} {word!r}{suggestion(word, words) or ': expected one of ' + ', '.join(words)}")


class Data(BaseModel):
    """Frozen, and strict about what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Arm(Data):
    """One of the things that an experiment compares: an algorithm with its settings."""

    label: Annotated[str, Field(min_length=1, max_length=80)]
    """Its name in figures and tables."""
    algorithm: str = ""
    """As on the command line, e.g. `vpac`."""
    settings: Settings = {}
    """What differs from the experiment's own settings."""
    env: str | None = None
    """Its own environment, instead of the experiment's."""
    env_settings: Settings = {}
    """Arguments of the environment, beside the experiment's."""
    episodes: Episodes | None = None
    """Its own number of episodes, instead of the experiment's."""
    at: dict[str, float | str] = {}
    """Where it stands in figures of effects: the values of what is varied."""
    paper: dict[str, float] = {}
    """The paper's numbers for it, e.g. {"mean": 43, "variance": 253}."""


class Claim(Data):
    """Something that is said of an experiment, and the number that decides whether it holds."""

    text: str
    """The claim, in our words."""
    where: str
    """Where it is made: a figure or table of the paper, or "ours"."""
    of: Literal["paper", "corrected", "ours"] = "ours"
    """Whose claim it is: the paper's of its algorithms; the same, of the corrected forms; ours."""
    paper: str = ""
    """The paper's number for it, as text."""
    quantity: str
    """What is measured of each run: mean, variance, sharpe, risky (share of steps in cells of random reward), …"""
    arm: str
    """Whose."""
    against: str | None = None
    """Compared with whose; None: the number itself."""
    by: Literal["ratio", "difference", "value"] = "ratio"
    """How they are compared."""
    below: float | None = None
    """The claim holds if the score is below this …"""
    above: float | None = None
    """… and above this."""
    explanation: str = ""
    """Why it does not hold, where it does not."""

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
    """The claims of one figure: for each its test, its text, the paper's number and, if it does not hold, why."""
    return tuple(claim(test, text, where, paper, explanation="".join(why)) for test, text, paper, *why in each)


class Figure(Data):
    """How an experiment is drawn."""

    kind: Literal["curves", "effect", "maps", "paths", "bars", "boxes", "errors", "best", "frontiers"]
    """A key of `FIGURE_KINDS` in lab/report/figures.py; the docstring of its function says what it draws."""
    title: str
    """Above it."""
    caption: str = ""
    """Below it."""
    arms: tuple[str, ...] = ()
    """Labels of the arms that are shown; none: all."""
    shows: tuple[str, ...] = ()
    """Panels: columns of the metrics, final quantities, or kinds of map."""
    x: str | None = None
    """What is varied along the horizontal axis of an effect; a key of the arms' `at`, as are the next two."""
    lines: str | None = None
    """What tells the lines of an effect apart."""
    panels: str | None = None
    """What tells the rows of panels of an effect apart."""
    joined: bool = True
    """Whether lines join the points of an effect: not where what is varied has no order."""
    sideways: bool = False
    """Whether an effect's horizontal axis runs from top to bottom: for long names."""
    oracle: tuple[tuple[float, float, float], ...] = ()
    """Of frontiers: price, mean and variance of the best policies there are, in ascending order of the price."""
    log_x: bool = False
    """Whether the horizontal axis is logarithmic."""
    log_y: bool = False
    """Whether the vertical axes are logarithmic."""


def curves(title: str, caption: str, *shows: str) -> tuple[Figure, ...]:
    """Learning curves: by default of returns, and of mean and variance of the policy that is measured."""
    return (Figure(kind="curves", title=title, caption=caption, shows=shows or ("return", "mean", "variance")),)


class Experiment(Data):
    """One figure or table of the paper, or one of ours."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*(/[a-z0-9]+(-[a-z0-9]+)*)*$", max_length=80)]
    """What it is called on the command line, e.g. `four-rooms/performance`."""
    title: str
    """Its heading."""
    about: str = ""
    """What is done, and where it deviates from the paper."""
    paper: str = ""
    """Which figure or table of the paper it is; empty for one of ours."""
    kind: Kind = "training"
    """What a run does."""
    env: str = ""
    """Gymnasium id of the environment."""
    env_settings: Settings = {}
    """Arguments of the environment."""
    wrappers: tuple[tuple[str, Settings], ...] = ()
    """Wrappers around it, the innermost first: import path, or a name in `vpac.envs`, and arguments."""
    algorithm: str = ""
    """The algorithm of arms that name none."""
    settings: Settings = {}
    """Settings of every arm."""
    episodes: Episodes = 1000
    """Episodes of a run."""
    steps: Count = 1_000_000
    """Environment steps of a run of the PPO family, whose `episodes` are those its last policy is measured in."""
    fixed_start: Settings = {}
    """Arguments of the environment that make all its episodes start alike, for the paper's way to measure."""
    every: Count = 50
    """After how many episodes the policy is measured."""
    policy: Literal["greedy", "softmax"] = "greedy"
    """Which policy of the learner is looked at."""
    horizon: Count | None = None
    """Evaluation episodes are cut off after so many steps; None: after as many as in training."""
    evaluate: Literal["exact", "rollouts", "returns", "episodes"] = "exact"
    """Policies are measured exactly, by 800 rollouts as in the paper, or not at all: then mean and variance are those of the
    returns of training episodes since the last time, at the end those of the last tenth; with "episodes" those of `measure`
    episodes of the last policy. Environments that are not compiled need one of the last two."""
    measure: Count = 1000
    """Episodes that the last policy is measured in."""
    runs: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """Independent runs of each arm at full size; of the PPO family `--scale` multiplies them, too, down to five."""
    usual_runs: Count | None = None
    """Runs unless full size is asked for, where that takes too long."""
    on_demand: bool = False
    """Whether it is run only when it is named."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of everything random; the seeds of runs are spawned from it."""
    arms: Annotated[tuple[Arm, ...], Field(min_length=1)]
    """What is compared."""
    figures: tuple[Figure, ...] = (Figure(kind="curves", title="Mean and variance of the return"),)
    """How it is drawn."""
    claims: tuple[Claim, ...] = ()
    """What is said of it."""

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
        """What a figure shows is measured, and what it varies is said of every arm in it."""
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

    def settings_of(self, arm: Arm) -> Settings:
        """Everything that is set for an arm."""
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
