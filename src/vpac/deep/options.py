"""The settings of the deep learners, declared once, and two presets: current practice, and the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from vpac.algorithms import DEFAULT_GAMMA
from vpac.checks import FROM_ONE, CheckedOptions, Finite, NotNegative, Positive, PositiveInt, Share
from vpac.deep.price import PriceRange
from vpac.errors import UserError, one_of
from vpac.risk.budget import Budget, as_budget
from vpac.risk.measures import Measure, measure_of
from vpac.risk.schedules import Constant, Schedule, as_schedule


@dataclass(frozen=True)
class PPOOptions(CheckedOptions):
    """Settings of PPO, VPACPPO and VAACPPO. The defaults are the preset "default"."""

    psi: float | str | Schedule = 0.0
    """Price of variance ψ, in units of 1/reward: a number, a schedule over environment steps, e.g.
    "warm-up:0.2:300000:200000", or "conditioned": one policy for all ψ in `psi_range`."""
    psi_warm_up: Share = 0.0
    """Share of `learn` in which a constant or conditioned ψ rises linearly from 0; 0: the full ψ from the first step. Schedules
    and budgets have no warm-up."""
    budget: Budget | str | Mapping[str, Any] | None = None
    """Limits of the discounted return, in units of the environment's own reward, e.g. Budget(max_std=2), "std:2" or
    "ruin:0.05:0,cvar:0.1:100": ψ is then found automatically."""
    psi_range: tuple[float, float] | None = None
    """Smallest and largest ψ of a conditioned policy; every episode draws its own, uniformly in √ψ."""
    penalty: str = "variance"
    """The penalised measure: variance, std, semivariance:TARGET, cvar:SHARE, gini, mad, volatility or entropic:BETA
    (`vpac list penalties`). For std, cvar, gini, mad and entropic ψ has no unit."""
    penalty_critic: Literal["auto", "direct", "quantile", "none"] = "auto"
    """Critic of the penalty: "direct" learns the variance, "quantile" the distribution of the return for any measure, "none"
    weights episodes by their returns; "auto": direct for the variance, quantile for other measures."""
    psi_units: Literal["raw", "scaled"] = "raw"
    """Whether ψ is per unit of the environment's own reward, or of the scaled reward."""
    form: Literal["corrected", "published"] = "corrected"
    """The actor's weight: the gradient ("corrected"), or the paper's formula."""
    weighting: Literal["uniform", "start"] = "start"
    """Corrected form: penalise the variance of the return from the start of the episode, or from every visited state."""
    variance_of: Literal["return", "state"] = "return"
    """With "start": the variance of the return including the start state, or the mean variance given the start state."""
    luck_critic: bool = True
    """Corrected form: use a critic's estimate of the luck (the return so far minus its expectation) instead of the sample."""
    luck_episodes: PositiveInt = 100
    """Number of recent episodes whose mean return is J, from which luck is measured. Fewer if episodes are long: J then lags
    less behind a policy that is improving."""
    time_aware: bool = True
    """Critics see the elapsed time; the policy does not."""
    remember: Literal["nothing", "return"] = "nothing"
    """"return": the policy also sees the elapsed steps and the return collected so far (`vpac.envs.RememberReturn`)."""
    gamma: Share = DEFAULT_GAMMA
    """Discount factor."""
    variance_gamma: Share | None = None
    """Discount of the return whose variance is penalised, up to 1, the score; None: `gamma`. Time limits end this return."""
    gae_lambda: Share = 0.95
    """λ of the advantages (GAE)."""
    target_lambda: Share | None = None
    """λ of the critics' targets; None: `gae_lambda`. 1: returns, bootstrapped at the end of the rollout."""
    envs: PositiveInt = 16
    """Environments stepped together."""
    steps: PositiveInt = 128
    """Steps of each environment per iteration."""
    epochs: PositiveInt = 10
    """Passes over an iteration's samples."""
    minibatch: PositiveInt = 128
    """Samples per gradient step."""
    minibatches: PositiveInt | None = None
    """Gradient steps per epoch; None: as many as the samples give."""
    learning_rate: Positive | None = None
    """Learning rate of the policy; None: 3e-4, or 2.5e-3 with Discrete observations, where a sample updates only one state."""
    critic_learning_rate: Positive | None = None
    """Learning rate of the critics; None: that of the policy."""
    decay_learning_rate: bool = True
    """Decay the learning rates linearly to zero at the end of `learn`."""
    weight_decay: NotNegative = 0.0
    """Decoupled weight decay, as in AdamW."""
    adam_eps: Positive = 1e-5
    """ε of Adam."""
    clip: Positive = 0.2
    """Clip range ε of the ratio of new and old probabilities."""
    entropy: NotNegative | None = None
    """Entropy bonus, which decays with the square of the learning rate; None: 0 with Box actions, 0.01 with Discrete
    ones, 0.1 if observations are Discrete, too."""
    target_kl: Positive | None = None
    """Stop an iteration's policy updates once the KL divergence exceeds 1.5 times this; None: never."""
    max_grad_norm: Positive | None = 0.5
    """Maximum norm of the policy's gradient; None: no clipping."""
    critic_max_grad_norm: Positive | None = 0.5
    """Maximum norm of a critic's gradient; None: no clipping."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers of the policy."""
    critic_hidden: tuple[int, ...] | None = None
    """Sizes of the hidden layers of each critic; None: those of the policy."""
    closing_layer: bool = False
    """Add a hidden layer of √(128·d) units, d the size of the action (policy) or of the observation (critics)."""
    encoder: Literal["auto", "nature", "small"] = "auto"
    """Network for images: "nature" (Mnih et al., 2015), for at least 36 × 36 pixels, or "small", for grids; "auto": by
    size."""
    action_masks: bool | None = None
    """Take only actions that the environment allows, by an "action_mask" in a Dict observation, a method
    `action_masks()`, or an "action_mask" in `info`; None: if the environment has a mask."""
    activation: Literal["tanh", "relu", "silu"] = "tanh"
    """Activation between the layers."""
    initialisation: Literal["orthogonal", "uniform"] = "orthogonal"
    """Orthogonal with gain √2 (0.01 for the policy's last layer, 1 for a critic's), or uniform in ±1/√inputs."""
    log_std: Finite = -1.0
    """Initial logarithm of the standard deviation of Box actions."""
    normalise_observations: bool = True
    """Subtract the running mean and divide by the running standard deviation; clipped to ±10. Discrete observations stay
    one-hot, because a rare state would become a huge number."""
    reward_scale: Positive | None = None
    """Factor of the rewards; None: 1 / the running standard deviation of the discounted return."""
    reward_floor: Finite | None = None
    """Lower rewards are raised to this; None: no floor."""
    normalise_advantages: bool = True
    """Normalise the weights of an iteration to mean 0 and standard deviation 1."""
    checkpoint_every: PositiveInt = 50
    """Iterations between checkpoints. Episodes continue across them, and a resumed run is the same run."""
    reset_every_iteration: bool = False
    """Reset all environments in every iteration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field = object.__setattr__  # the class is frozen
        set_field(self, "hidden", _layers(self.hidden, "hidden"))
        if self.critic_hidden is not None:
            set_field(self, "critic_hidden", _layers(self.critic_hidden, "critic_hidden"))
        set_field(self, "budget", as_budget(self.budget))
        set_field(self, "psi", _price(self.psi))
        zero = not self.conditioned and as_schedule(self.psi, "psi") == Constant(0.0)
        if self.budget is not None and not zero:
            raise UserError(f"a budget finds the price of variance itself: leave out psi={self.psi!r}")
        if self.conditioned:
            within = PriceRange.read(self.psi_range)
            set_field(self, "psi_range", (float(within.low), float(within.high)))
        elif self.psi_range is not None:
            raise UserError(f'psi_range={self.psi_range!r} is for psi="conditioned", got psi={self.psi!r}')
        self._check_penalty()

    def _check_penalty(self) -> None:
        """Reject settings that need the direct critic of the variance."""
        name, asked = measure_of(self.penalty).name, self.penalty_asked
        if name == "volatility" and self.penalty_critic != "auto":
            raise UserError(f"the volatility is charged in the rewards and needs no critic, got {asked}")
        if name != "variance" and self.penalty_critic == "direct":
            raise UserError(f"a direct critic learns the variance, other measures need quantiles, got {asked}")
        if name == "variance" and self.measure is None:
            return
        for only, usual in (DIRECT_ONLY if self.measure else {"budget": None, "psi_range": None}).items():
            if getattr(self, only) != usual:
                what = "a budget" if only == "budget" else f"{only}={getattr(self, only)!r}"
                raise UserError(f"{what} needs the variance and its direct critic, got {asked}: leave out one of them")

    @property
    def penalty_asked(self) -> str:
        """The penalty and its critic, if they are not the defaults, for messages."""
        asked = {"penalty": (self.penalty, "variance"), "penalty_critic": (self.penalty_critic, "auto")}
        return ", ".join(f"{name}={value!r}" for name, (value, usual) in asked.items() if value != usual)

    @property
    def measure(self) -> Measure | None:
        """The measure that is penalised by its influence function; None: the variance with its direct critic, or MVPI."""
        direct = self.penalty == "variance" and self.penalty_critic in ("auto", "direct")
        return None if direct or self.penalty == "volatility" else measure_of(self.penalty)

    @property
    def price_power(self) -> int:
        """The power p of the unit of ψ, reward^(−p)."""
        return measure_of(self.penalty).degree - 1

    @property
    def conditioned(self) -> bool:
        """Whether one policy is learned for a range of ψ."""
        return self.psi == "conditioned"

    @property
    def priced_gamma(self) -> float:
        """Discount of the return whose variance is penalised."""
        return self.gamma if self.variance_gamma is None else self.variance_gamma

    @classmethod
    def read(cls, given: dict[str, Any], preset: str = "default") -> PPOOptions:
        """Options from keywords on top of a preset."""
        return super().read({**PRESETS[one_of(preset, PRESETS, "preset")], **given})

    def as_dict(self) -> dict[str, Any]:
        """Options as plain data, which `read` accepts."""
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        found["psi"] = self.psi.as_text() if isinstance(self.psi, Schedule) else self.psi
        found["budget"] = self.budget.as_dict() if isinstance(self.budget, Budget) else None
        return found


DIRECT_ONLY = {"form": "corrected", "weighting": "start", "variance_of": "return", "budget": None, "psi_range": None}
"""Settings that only the direct critic of the variance supports, with the values that other critics imply."""


def _layers(sizes: Any, name: str) -> tuple[int, ...]:
    """Sizes of layers, validated."""
    if not (isinstance(sizes, tuple | list) and sizes):
        raise UserError(f"{name} must be sizes of layers, e.g. (64, 64), got {sizes!r}")
    return tuple(FROM_ONE.read(f"each size of {name}", size, int) for size in sizes)


def _price(psi: Any) -> Any:
    """ψ; text that is a number becomes a number, because numbers have a warm-up and schedules have none."""
    if isinstance(psi, bool) or not isinstance(psi, str | int | float | np.number):
        return psi
    try:
        return float(psi)
    except ValueError:
        return psi


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "psi_units": "scaled", "psi_warm_up": 0.0, "form": "published", "time_aware": False, "gamma": 0.99,
        "gae_lambda": 0.95, "target_lambda": 1.0, "envs": 8, "steps": 2048, "epochs": 5, "minibatch": 512,
        "minibatches": 4, "learning_rate": 9e-4, "critic_learning_rate": 1e-3, "decay_learning_rate": False,
        "weight_decay": 0.01, "adam_eps": 1e-8, "clip": 0.2, "entropy": 0.0, "target_kl": None, "max_grad_norm": 1.0,
        "critic_max_grad_norm": None, "hidden": (128, 64), "closing_layer": True, "activation": "tanh",
        "initialisation": "uniform", "log_std": 0.0, "normalise_observations": False, "reward_scale": 0.01,
        "reward_floor": -1000.0, "normalise_advantages": False, "checkpoint_every": 5, "reset_every_iteration": True,
    },
}  # fmt: skip
"""Changes that each preset makes to the defaults."""
