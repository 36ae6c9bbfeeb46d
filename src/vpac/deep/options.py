"""The settings of the deep learners, and two presets: today's good practice, and the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np

from vpac.deep.price import PriceRange
from vpac.errors import UserError, one_of, suggestion
from vpac.risk.budget import Budget, as_budget
from vpac.risk.schedules import Constant, Schedule, as_schedule

__all__ = ["PRESETS", "Options"]


@dataclass(frozen=True)
class Options:
    """Settings of PPO, VPACPPO and VAACPPO. The defaults are the preset "default"."""

    psi: float | str | Schedule = 0.0
    """Price of variance ψ, in units of 1/reward: a number, a schedule over environment steps, e.g.
    "warm-up:0.2:300000:200000", or "conditioned": one policy for all prices in `psi_range`."""
    psi_warm_up: float = 0.05
    """Share of `learn` in which a ψ that is a number rises from 0 in a straight line: a high price put on a poor policy at once
    is best paid by standing still. 0: the whole price at once. A schedule or a budget is taken as it is."""
    budget: Budget | str | Mapping[str, Any] | None = None
    """The largest variance of the discounted return, in units of the environment's own reward, e.g. Budget(max_std=2) or
    "std:2": ψ is then found and not given."""
    psi_range: tuple[float, float] | None = None
    """Smallest and largest ψ of a conditioned policy; every episode draws its own, even in √ψ."""
    psi_units: Literal["raw", "scaled"] = "raw"
    """Whether ψ is a price per unit of the environment's own reward, or of the scaled reward that is learned from."""
    form: Literal["corrected", "published"] = "corrected"
    """The actor's formula: the gradient, or the paper's."""
    weighting: Literal["uniform", "start"] = "start"
    """Of the corrected form: the variance from the start of the episode, or from every visited state alike."""
    variance_of: Literal["return", "state"] = "return"
    """Of "start": the variance of the return, start states included, or the mean variance given the start state."""
    luck_critic: bool = True
    """Of the corrected form: a critic's mean of the luck so far in place of the luck itself."""
    time_aware: bool = True
    """Critics see the elapsed time; the policy does not."""
    remember: Literal["nothing", "return"] = "nothing"
    """"return": the policy also sees the elapsed steps and the return collected so far (`vpac.envs.RememberReturn`)."""
    gamma: float = 0.99
    """Discount factor."""
    variance_gamma: float | None = None
    """Discount of the return whose variance has a price, up to 1, the score; None: `gamma`. Time limits end it."""
    gae_lambda: float = 0.95
    """λ of the advantages."""
    target_lambda: float | None = None
    """λ of the critics' targets; None: that of the advantages. 1: returns, continued by the critic at the cut."""
    envs: int = 16
    """Environments stepped together."""
    steps: int = 128
    """Steps of each environment in an iteration."""
    epochs: int = 10
    """Passes over an iteration's samples."""
    minibatch: int = 128
    """Samples of one gradient step."""
    minibatches: int | None = None
    """Gradient steps of one epoch; None: as many as there are samples for."""
    learning_rate: float | None = None
    """Of the policy; None: 3e-4, or 2.5e-3 with Discrete observations, where a sample teaches the weights of one state."""
    critic_learning_rate: float | None = None
    """Of both critics; None: that of the policy."""
    decay_learning_rate: bool = True
    """Lower the rates in a straight line to zero at the end of `learn`."""
    weight_decay: float = 0.0
    """Decoupled, as AdamW does it."""
    adam_eps: float = 1e-5
    """ε of Adam."""
    clip: float = 0.2
    """How far the ratio of new and old probability may leave 1 before its gain stops counting."""
    entropy: float | None = None
    """Bonus for the entropy of the policy, which falls with the square of the learning rate; None: 0, or 0.1 with Discrete
    observations, each to be tried for itself."""
    target_kl: float | None = None
    """Stop improving the policy within an iteration once the divergence passes 1.5 times this; None: never."""
    max_grad_norm: float | None = 0.5
    """Longest gradient of the policy; None: any."""
    critic_max_grad_norm: float | None = 0.5
    """Longest gradient of a critic; None: any."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers of the policy."""
    critic_hidden: tuple[int, ...] | None = None
    """Those of each critic; None: as the policy's."""
    closing_layer: bool = False
    """One more hidden layer of √(128·d) units, d the size of the action (policy) or of the observation (critics)."""
    activation: Literal["tanh", "relu", "silu"] = "tanh"
    """Between the layers."""
    initialisation: Literal["orthogonal", "uniform"] = "orthogonal"
    """Orthogonal with gain √2 (0.01 for the policy's last layer, 1 for a critic's), or uniform in ±1/√inputs."""
    log_std: float = -1.0
    """Logarithm of the spread of Box actions at the start."""
    normalise_observations: bool = True
    """Subtract the running mean and divide by the running standard deviation; kept within ±10. Discrete observations stay
    zeros and a one: a rare state would be a huge number."""
    reward_scale: float | None = None
    """What rewards are multiplied by; None: 1 / the running standard deviation of the discounted return."""
    reward_floor: float | None = None
    """Rewards below are raised to this; None: none is."""
    normalise_advantages: bool = True
    """Give the weights of an iteration mean 0 and standard deviation 1."""
    checkpoint_every: int = 50
    """Iterations between checkpoints, after which the environments begin anew, so that a resumed run is the same run."""
    reset_every_iteration: bool = False
    """Begin all episodes anew in every iteration."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kind = getattr(self, field.name), str(field.type)
            if kind.startswith("Literal"):
                one_of(value, [word.strip(" \"'") for word in kind[8:-1].split(",")], field.name)
            elif kind == "bool" and not isinstance(value, bool):
                raise UserError(f"{field.name} must be true or false, got {value!r}")
            elif field.name in RANGES and not (value is None and "None" in kind):
                _check_range(field.name, value, "int" in kind)
        object.__setattr__(self, "hidden", _layers(self.hidden, "hidden"))
        if self.critic_hidden is not None:
            object.__setattr__(self, "critic_hidden", _layers(self.critic_hidden, "critic_hidden"))
        object.__setattr__(self, "budget", as_budget(self.budget))
        object.__setattr__(self, "psi", _price(self.psi))
        if (
            self.psi != 0.0
            and self.budget is not None
            and (self.conditioned or as_schedule(self.psi, "psi") != Constant(0.0))
        ):
            raise UserError(f"a budget finds the price of variance itself: leave out psi={self.psi!r}")
        if self.conditioned:
            within = PriceRange.read(self.psi_range)
            object.__setattr__(self, "psi_range", (float(within.low), float(within.high)))
        elif self.psi_range is not None:
            raise UserError(f'psi_range={self.psi_range!r} is for psi="conditioned", got psi={self.psi!r}')
        else:
            as_schedule(self.psi, "psi")

    @property
    def conditioned(self) -> bool:
        """Whether one policy is learned for all prices in a range."""
        return self.psi == "conditioned"

    @classmethod
    def read(cls, given: dict[str, Any], preset: str = "default") -> Options:
        """Options from keywords on top of a preset; an unknown one is named with the nearest that is known."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise UserError(
                    f"unknown setting {name!r}{suggestion(name, known) or ': expected ' + ', '.join(known)}"
                )
        return cls(**{**PRESETS[one_of(preset, PRESETS, "preset")], **given})

    def as_dict(self) -> dict[str, Any]:
        """As plain data; `read` takes it back."""
        psi = self.psi.as_text() if isinstance(self.psi, Schedule) else self.psi
        budget = self.budget.as_dict() if isinstance(self.budget, Budget) else None
        within = None if self.psi_range is None else list(self.psi_range)
        critics = None if self.critic_hidden is None else list(self.critic_hidden)
        return asdict(self) | {
            "psi": psi, "budget": budget, "psi_range": within, "hidden": list(self.hidden), "critic_hidden": critics,
        }  # fmt: skip


RANGES: dict[str, tuple[float, float, str]] = {
    "gamma": (0.0, 1.0, "a number from 0 to 1"),
    "gae_lambda": (0.0, 1.0, "a number from 0 to 1"),
    "target_lambda": (0.0, 1.0, "a number from 0 to 1"),
    "variance_gamma": (0.0, 1.0, "a number from 0 to 1"),
    "psi_warm_up": (0.0, 1.0, "a number from 0 to 1"),
    **dict.fromkeys(
        ("envs", "steps", "epochs", "minibatch", "minibatches", "checkpoint_every"), (1, 1e9, "a whole number from 1 up")
    ),
    **dict.fromkeys(
        ("learning_rate", "critic_learning_rate", "adam_eps", "clip", "target_kl", "max_grad_norm", "critic_max_grad_norm",
         "reward_scale"),
        (1e-300, 1e300, "a positive number"),
    ),
    **dict.fromkeys(("weight_decay", "entropy"), (0.0, 1e300, "a number that is not negative")),
    **dict.fromkeys(("log_std", "reward_floor"), (-1e300, 1e300, "a finite number")),
}  # fmt: skip


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _layers(sizes: Any, name: str) -> tuple[int, ...]:
    """Sizes of layers, checked."""
    if not (isinstance(sizes, tuple | list) and sizes and all(_is_number(h) and h >= 1 and h == int(h) for h in sizes)):
        raise UserError(f"{name} must be sizes of layers, e.g. (64, 64), got {sizes!r}")
    return tuple(int(h) for h in sizes)


def _price(psi: Any) -> Any:
    """ψ, a number as a number however it is written: it warms up, and a schedule does not."""
    if isinstance(psi, bool) or not isinstance(psi, str | int | float | np.number):
        return psi
    try:
        return float(psi)
    except ValueError:
        return psi


def _check_range(name: str, value: Any, whole: bool) -> None:
    low, high, expected = RANGES[name]
    if not (_is_number(value) and low <= value <= high and (not whole or value == int(value))):
        raise UserError(f"{name} must be {expected}, got {value!r}")


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "psi_units": "scaled",
        "psi_warm_up": 0.0,
        "form": "published",
        "time_aware": False,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "target_lambda": 1.0,
        "envs": 8,
        "steps": 2048,
        "epochs": 5,
        "minibatch": 512,
        "minibatches": 4,
        "learning_rate": 9e-4,
        "critic_learning_rate": 1e-3,
        "decay_learning_rate": False,
        "weight_decay": 0.01,
        "adam_eps": 1e-8,
        "clip": 0.2,
        "entropy": 0.0,
        "target_kl": None,
        "max_grad_norm": 1.0,
        "critic_max_grad_norm": None,
        "hidden": (128, 64),
        "closing_layer": True,
        "activation": "tanh",
        "initialisation": "uniform",
        "log_std": 0.0,
        "normalise_observations": False,
        "reward_scale": 0.01,
        "reward_floor": -1000.0,
        "normalise_advantages": False,
        "checkpoint_every": 5,
        "reset_every_iteration": True,
    },
}
"""What a preset changes in the defaults."""
