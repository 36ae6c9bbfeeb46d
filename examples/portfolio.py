"""A portfolio over two years: cash or stocks, quarter by quarter, while the market's volatility changes.

Observations are continuous (elapsed time and volatility), so learners use tile coding and there is no exact solution; a rule
from the textbook is the reference. Run

    python examples/portfolio.py

for two figures in results/portfolio: mean against spread, and the share of stocks of each policy as volatility rises.
Or use it as any other environment, in this folder: `vpac train vpac portfolio:Portfolio --psi 0.02 --gamma 1`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from vpac import AC, VPAC
from vpac.envs import FunctionalEnv
from vpac.lab.kinds.frontier import Measurement, frontier_point
from vpac.lab.report.chart import Chart, Line, Lines
from vpac.lab.report.draw import write
from vpac.lab.report.trade_off import framed, spots_of
from vpac.risk import FrontierPoint, std
from vpac.tabular import Learner, learn_many

Policy = Callable[[np.ndarray], Any]
"""Maps an observation to an action; for `play_many`, also rows of observations to actions."""


class Portfolio(gymnasium.Env[np.ndarray, np.int64]):
    """Choose the share of stocks each quarter; the rest earns interest.

    The observation is (elapsed share of the time, volatility scaled to 0 … 1). Stocks earn `premium` more than cash on average,
    at any volatility. The reward is the quarter's gain in percent of the capital, which is reset to the same amount every
    quarter. The volatility is a Gaussian random walk between its bounds.

    Args:
        quarters: length of an episode.
        shares: how many shares in stocks there are to choose from, evenly from 0 to 1.
        interest: what cash earns in a quarter, in percent.
        premium: what stocks earn more, on average, in percent.
        calm: smallest volatility of stocks, in percent a quarter.
        nervous: largest volatility.
        render_mode: not used; Gymnasium passes it.
    """

    def __init__(
        self,
        quarters: int = 8,
        shares: int = 5,
        interest: float = 0.5,
        premium: float = 2.0,
        calm: float = 2.0,
        nervous: float = 12.0,
        render_mode: str | None = None,
    ) -> None:
        self.quarters, self.shares = quarters, np.linspace(0.0, 1.0, shares)
        self.interest, self.premium, self.calm, self.nervous = interest, premium, calm, nervous
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float64)
        self.action_space = spaces.Discrete(shares)
        self._quarter, self._mood = 0, 0.0

    def volatility(self, mood: Any) -> Any:
        """Standard deviation of a quarter's gain in stocks at a mood (scaled volatility) from 0 to 1."""
        return self.calm + (self.nervous - self.calm) * mood

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode with a random mood."""
        super().reset(seed=seed)
        self._quarter, self._mood = 0, float(self.np_random.random())
        return self._look(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Advance by one quarter."""
        gain, mood = self.pass_quarter(action, self._mood, self.np_random)
        self._mood = float(mood)
        self._quarter += 1
        return self._look(), float(gain), self._quarter == self.quarters, False, {}

    def pass_quarter(self, actions: Any, moods: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        """Return gains and next moods, of one market or of an array of them."""
        luck, drift = rng.standard_normal(np.shape(moods)), rng.normal(0.0, 0.15, np.shape(moods))
        gains = self.interest + self.shares[actions] * (self.premium + self.volatility(moods) * luck)
        return gains, np.clip(moods + drift, 0.0, 1.0)

    def _look(self) -> np.ndarray:
        return np.array([self._quarter / self.quarters, self._mood])

    def functional(self) -> FunctionalEnv:
        """The same market in JAX: trainings of `jax:portfolio:Portfolio` are compiled."""
        return Market(self)


class Market(FunctionalEnv):
    """`Portfolio` in JAX. A state is the quarter and the mood."""

    def __init__(self, portfolio: Portfolio) -> None:
        self.portfolio, self.action_space = portfolio, portfolio.action_space
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)

    def draws(self, key: Any, shape: tuple[int, ...]) -> Any:
        """Two normal numbers, the luck and the drift, and a uniform one, the first mood."""
        import jax

        one, two = jax.random.split(key)
        return jax.random.normal(one, (*shape, 2)), jax.random.uniform(two, shape)

    def reset(self, key: Any) -> tuple[Any, Any]:
        """The first quarter."""
        import jax.numpy as jnp

        return self._seen(jnp.int32(0), key[1])

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """A quarter."""
        import jax.numpy as jnp

        p, (quarter, mood), (luck, drift) = self.portfolio, state, key[0]
        gain = p.interest + jnp.asarray(p.shares, jnp.float32)[action] * (p.premium + p.volatility(mood) * luck)
        after, seen = self._seen(quarter + 1, jnp.clip(mood + 0.15 * drift, 0.0, 1.0))
        return after, seen, gain, quarter + 1 == p.quarters, False

    def _seen(self, quarter: Any, mood: Any) -> tuple[Any, Any]:
        import jax.numpy as jnp

        return (quarter, mood), jnp.stack([quarter / self.portfolio.quarters, mood])


PRICES = (0.0, 0.01, 0.02, 0.05, 0.1)
"""Values of ψ, in 1 / percent."""


def train(psi: float, episodes: int, seeds: Sequence[int]) -> list[Learner]:
    """Train learners with ψ, one for each seed; the actor starts after the critics."""
    first = episodes // 10
    settings = {
        "gamma": 1.0, "alpha_theta": f"warm-up:0.005:{first}:{first}", "alpha_w": 0.05, "alpha_z": 0.05, "tilings": 8,
        "tiles": 4, "hash_size": None, "max_episode_steps": 100,
    }  # fmt: skip
    if psi == 0.0:
        return list(learn_many(AC, Portfolio, seeds, episodes, **settings))
    return list(learn_many(VPAC, Portfolio, seeds, episodes, psi=psi, variance_of="return", **settings))


def textbook(psi: float) -> Policy:
    """The best share for a single quarter: premium / (2 ψ volatility²), rounded to an available share."""
    env = Portfolio()

    def act(observations: np.ndarray) -> Any:
        volatility = env.volatility(np.asarray(observations)[..., 1])
        share = np.ones_like(volatility) if psi == 0.0 else env.premium / (2.0 * psi * volatility**2)
        return np.argmin(np.abs(env.shares - share[..., None]), axis=-1)

    return act


def learned_policy(learner: Learner) -> Policy:
    """A learner's greedy policy; works for any agent with a `predict`."""
    return lambda observation: learner.predict(observation)[0]


def play(policy: Policy, episodes: int, first: int = 0) -> np.ndarray:
    """Return the gains of this many episodes, with the seeds from `first` on."""
    env, gains = Portfolio(), np.zeros(episodes)
    for episode in range(episodes):
        (observation, _), over = env.reset(seed=first + episode), False
        while not over:
            observation, gain, over, _, _ = env.step(np.int64(policy(observation)))
            gains[episode] += gain
    return gains


def play_many(policy: Policy, episodes: int, seed: int = 0) -> np.ndarray:
    """Play all episodes at once, with a policy that takes rows of observations."""
    env, rng = Portfolio(), np.random.default_rng(seed)
    moods, gains = rng.random(episodes), np.zeros(episodes)
    for quarter in range(env.quarters):
        times = np.full(episodes, quarter / env.quarters)
        gain, moods = env.pass_quarter(policy(np.stack([times, moods], axis=1)), moods, rng)
        gains += gain
    return gains


def point(psi: float, samples: Sequence[np.ndarray]) -> FrontierPoint:
    """Mean and standard deviation at ψ, with intervals over trainings; for a single policy, over its episodes."""
    return frontier_point(psi, [Measurement(float(g.mean()), float(std(g)), None, g) for g in samples])


def frontier_chart(learned: dict[float, list[np.ndarray]], rule: dict[float, np.ndarray]) -> Chart:
    """Draw mean against standard deviation of the gain: the learned policies and the textbook's."""
    seeds = len(next(iter(learned.values())))
    over = f"{seeds} trainings" if seeds > 1 else "the episodes of one training"
    played = len(next(iter(rule.values())))
    return Chart(
        "portfolio-frontier", "A portfolio over two years: mean against spread",
        "Each point is a price of variance ψ, the same on the line. The line is the textbook's rule, which looks at each "
        f"quarter alone and knows the premium and the volatility, played {played:,} times; the points were learned by trying, "
        f"with 95 % intervals over {over}.",
        [
            framed(
                [
                    spots_of("textbook rule", [point(psi, [gains]) for psi, gains in rule.items()], "oracle", joined=True),
                    spots_of("learned (AC, VPAC)", [point(psi, found) for psi, found in learned.items()], "VPAC", "ψ"),
                ],
                "standard deviation of the gain (%)", "mean gain (%)",
            )
        ],
        foot=f"Bars: 95 % intervals over {over}; of the rule, over {played:,} episodes. An arrow: the bar goes on.",
    )  # fmt: skip


def behaviour_chart(learners: dict[float, list[Learner]], gains: dict[float, list[np.ndarray]]) -> Chart:
    """Draw the share of stocks by volatility, and the distribution of gains."""
    env = Portfolio()
    moods = np.linspace(0.0, 1.0, 41)
    times = np.arange(env.quarters) / env.quarters
    shown = [psi for psi in learners if psi in (0.0, 0.02, 0.1)]
    shares, spreads = [], []
    for style, psi in enumerate(shown):
        label = "risk-neutral" if psi == 0.0 else f"ψ = {psi:g}"
        held = [
            [env.shares[agent.predict(np.array([time, mood]))[0]] for time in times for agent in learners[psi]]
            for mood in moods
        ]
        shares.append(Line(label, env.volatility(moods), 100.0 * np.mean(held, axis=1), style=style))
        levels = np.linspace(0.005, 0.995, 100)
        spreads.append(Line(label, np.quantile(np.concatenate(gains[psi]), levels), levels, style=style))
    return Chart(
        "portfolio-behaviour", "What a risk-averse investor does differently",
        "The risk-neutral investor is nearly always in stocks, since they earn more on average. The risk-averse ones hold "
        "less the more nervous the market is: they take the premium where it is cheap and stay out of the storms.",
        [
            Lines(shares, "volatility of stocks (% a quarter)", "held in stocks (%)", "what is held", y_range=(-4.0, 104.0)),
            Lines(spreads, "gain over two years (%)", "share of times below", "how gains spread"),
        ],
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Train at each ψ, play, draw, and print the trade-off."""
    parser = argparse.ArgumentParser(description="A portfolio with risk: frontier and behaviour.")
    parser.add_argument("--out", type=Path, default=Path("results/portfolio"), help="folder of the figures")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply episodes by this: a quick look")
    parser.add_argument("--seeds", type=int, default=3, help="learners at each price")
    given = parser.parse_args(arguments)
    episodes, played = max(30, int(6000 * given.scale)), max(30, int(1500 * given.scale))
    learners = {psi: train(psi, episodes, range(given.seeds)) for psi in PRICES}
    gains = {
        psi: [play(learned_policy(a), played, k * played) for k, a in enumerate(agents)]
        for psi, agents in learners.items()
    }
    rule = {psi: play_many(textbook(psi), max(1000, int(200_000 * given.scale))) for psi in PRICES}
    neutral, averse = (np.concatenate(gains[psi]) for psi in (0.0, 0.05))
    kept, cut = averse.mean() / neutral.mean(), 1.0 - float(std(averse) / std(neutral))
    print(f"ψ = 0.05 keeps {kept:.0%} of the mean gain and removes {cut:.0%} of its standard deviation")
    charts = (frontier_chart(gains, rule), behaviour_chart(learners, gains))
    return [path for chart in charts for path in write(chart, given.out, ("png", "csv"))]


if __name__ == "__main__":
    main()
