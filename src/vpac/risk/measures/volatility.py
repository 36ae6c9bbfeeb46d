"""Reward volatility: the variance of the reward of a step, and the reward by which MVPI prices it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from vpac.errors import UserError
from vpac.risk.measures.variance import Variance
from vpac.typing import FloatArray, Numbers

if TYPE_CHECKING:
    from vpac.envs.finite_mdp import FiniteMDP

Reward = TypeVar("Reward", float, Numbers)


def augmented(reward: Reward, price: float, mean: float) -> Reward:
    """R − λ R² + 2 λ R y, with λ = `price` and y = `mean`; R itself, to the last bit, if λ is 0.

    It is the reward of MVPI's risk-neutral learner, which penalises the variance of the reward per step:

        Var(R) = min_y E[(R − y)²],   so   E[R] − λ Var(R) = max_y E[R − λ R² + 2 λ R y] − λ y²

    For a fixed y this is an ordinary reward, and for a fixed policy the best y is its mean reward per step, E[R]; MVPI
    alternates between the two (Zhang, Liu, Whiteson 2021, Mean-variance policy iteration). λ has the unit 1/reward, as ψ has;
    but Var(R) is the variance of the reward of a *step*, not of the return: a sequence of different but certain rewards has
    volatility and no risk.
    """
    return reward + price * reward * (2.0 * mean - reward)


@dataclass(frozen=True)
class RewardVolatility(Variance):
    """The variance of the reward per step (MVPI). The rewards are changed, so no spread critic is needed."""

    name: ClassVar[str] = "volatility"
    words: ClassVar[str] = "variance of a step's reward"
    symbol: ClassVar[str] = "E[(R − E[R])²], R the reward of a step"

    def exact(self, mdp: FiniteMDP, policy: FloatArray, gamma: float, horizon: int | None = None) -> float:
        """ρ over the normalised discounted occupancy."""
        from vpac.oracle.moments import step_reward

        if horizon is not None:
            raise UserError("the volatility of the reward is known exactly without a horizon only")
        return float(step_reward(mdp, policy, gamma).variance)
