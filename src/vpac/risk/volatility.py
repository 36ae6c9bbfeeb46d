"""The reward that MVPI gives a risk-neutral learner, so that it keeps the rewards of single steps together.

    Var(R) = min_y E[(R − y)²],   so   E[R] − λ Var(R) = max_y E[R − λ R² + 2 λ R y] − λ y²

For a fixed y this is an ordinary reward, and for a fixed policy the best y is its mean reward of a step, E[R]: one takes turns
(Zhang, Liu, Whiteson 2021, Mean-variance policy iteration). λ is a price in units of 1/reward, as ψ is; but Var(R) is the
variance of the reward of a *step*, not of the return: a sequence of certain rewards that differ has volatility and no risk.
"""

from __future__ import annotations

from typing import TypeVar

from vpac.typing import Numbers

Reward = TypeVar("Reward", float, Numbers)


def augmented(reward: Reward, price: float, mean: float) -> Reward:
    """R − λ R² + 2 λ R y, with λ = `price` and y = `mean`; R itself, to the last bit, if λ is 0."""
    return reward + price * reward * (2.0 * mean - reward)
