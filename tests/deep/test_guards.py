"""Diagnostics of the critics: drift of the luck, and predictions in start states."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

import probes
from seeds import OFFSET, seeds

jnp = pytest.importorskip("jax.numpy")

from vpac.deep import VPACPPO  # noqa: E402
from vpac.deep.diagnostics import LEARNED, EpisodeWindow, LuckDrift, LuckDriftMonitor  # noqa: E402
from vpac.deep.estimate import EpisodeSums  # noqa: E402
from vpac.deep.networks import MLP, Critic  # noqa: E402


def test_a_sample_is_the_luck_after_k_steps_or_at_an_earlier_end():
    """k is 1, 2, 4, …; idle steps are in none; an episode that has ended counts with its last luck from then on."""
    drift = LuckDriftMonitor()
    before = np.array([[50, 1], [2, 3], [4, 5], [6, 7], [99, 8]], float)
    after = before + 0.5
    elapsed = np.array([[0, 1], [1, 2], [2, 3], [0, 4], [1, 5]], float)
    valid = np.array([[1, 1], [1, 1], [1, 1], [1, 1], [0, 1]], float)
    running = np.array([[1, 1], [1, 1], [0, 1], [1, 1], [1, 1]], float)
    drift.add(before, after, elapsed, valid, running)
    expected = np.zeros((3, 16))
    # the first environment ends after 3 steps with 4.5
    for place, luck in enumerate([[2.0, 1.0], [4.0, 3.0], [7.0, 4.5]]):
        expected[:, place] = len(luck), sum(luck), sum(x * x for x in luck)
    np.testing.assert_allclose(drift.sums, expected)
    drift.add(before[:1], after[:1], np.array([[8.0, 2.0**40]]), valid[:1], np.zeros((1, 2)))
    expected *= 0.9
    expected[:, 3] += 1, 50, 2500
    for place in range(4, 16):  # the first ends after 9 steps; what is longer than all is in none
        expected[:, place] += 1, 50.5, 50.5**2
    np.testing.assert_allclose(drift.sums, expected)
    drift.add(before[:1], after[:1], np.array([[3.0, 2.0**40]]), valid[:1], np.zeros((1, 2)))  # ends after k = 4 steps
    expected *= 0.9
    for place in range(2, 16):
        expected[:, place] += 1, 50.5, 50.5**2
    np.testing.assert_allclose(drift.sums, expected)
    drift.add(before * np.nan, after, elapsed, valid, running)
    np.testing.assert_allclose(drift.sums, expected)


def filled(*bins):
    """(samples, mean, standard deviation) of the first bins."""
    drift = LuckDriftMonitor()
    for k, (count, mean, std) in enumerate(bins):
        drift.sums[:, k] = count, count * mean, count * (mean**2 + std**2)
    return drift


def test_the_worst_bin_is_the_one_with_the_most_standard_deviations():
    worst = filled((100, 3.0, 10.0), (400, -2.0, 4.0), (19, 9.0, 1.0)).worst
    assert worst == pytest.approx((-2.0, -0.5, -10.0))
    assert filled((19.9, 9.0, 1.0)).worst == (0.0, 0.0, 0.0)
    assert filled((20.0, 9.0, 1.0)).worst == pytest.approx((9.0, 9.0, 9.0 * np.sqrt(20.0)))


@pytest.mark.parametrize(
    ("count", "mean", "std", "psi"),
    [
        (400, 0.49, 1.0, 1.0),  # less than half a standard deviation
        (80, -0.55, 1.0, 1.0),  # 4.9 standard errors
        (400, 1.0, 1.0, 0.09),  # 2ψ times the mean is less than 0.2
    ],
)
def test_a_drift_that_is_small_unsure_or_not_felt_is_no_warning(count, mean, std, psi):
    assert not filled((count, mean, std)).warn(psi)


@pytest.mark.parametrize(
    ("count", "mean", "psi"), [(400, 0.51, 1.0), (85, -0.55, 1.0), (400, 1.0, 0.11), (400, -1.0, 0.11)]
)
def test_a_drift_that_is_all_of_it_is_one(count, mean, psi):
    drift = filled((count, mean, 1.0))
    with pytest.warns(LuckDrift, match=rf"mean {mean:.3g}, .* Train longer, .*info\['critic'\].*published"):
        assert drift.warn(psi)
    with pytest.warns(LuckDrift, match="Set time_aware=True, train longer"):
        assert drift.warn(psi, time_aware=False)


def test_about_a_hundred_episodes_are_kept_in_mind():
    episodes = EpisodeWindow(100)
    assert all(np.isnan(number) for number in episodes.metrics.values())
    episodes.add(EpisodeSums(60.0, 300.0, 120.0, 20.0, 50.0, 40.0))
    assert episodes.metrics == {"start_value": 5.0, "start_variance": 2.0}
    assert episodes.sums.tolist() == [60.0, 300.0, 120.0, 20.0, 50.0, 40.0]
    episodes.add(EpisodeSums(70.0, 70.0, 0.0, 0.0, 0.0, 0.0))  # room for 30 of those that began, for all that ended
    assert episodes.sums == pytest.approx([100.0, 150.0 + 70.0, 60.0, 20.0, 50.0, 40.0])
    episodes.add(EpisodeSums(np.nan, 0.0, 0.0, 0.0, 0.0, 0.0))
    assert episodes.sums[0] == pytest.approx(100.0)
    mean, expected = EpisodeSums(*episodes.sums).means()
    assert (float(mean), float(expected)) == (2.5, 2.0)
    episodes.sums[3:] = 0.0  # none has ended
    assert [float(x) for x in EpisodeSums(*episodes.sums).means()] == pytest.approx([2.2, 2.2])


def test_luck_is_measured_from_as_many_episodes_as_asked_for():
    agent = VPACPPO("CartPole-v1", psi=0.1, luck_episodes=16, envs=2, hidden=(4,))
    for mean in (1.0, 5.0):
        agent.window.add(EpisodeSums(12.0, 0.0, 0.0, 12.0, 12.0 * mean, 0.0))
    assert float(EpisodeSums(*agent.window.sums).means()[0]) == pytest.approx((4.0 * 1.0 + 12.0 * 5.0) / 16.0)


class Hidden(probes.Probe):
    """Eight steps that pay 1 on average, with variance 1; nothing is seen."""

    def see(self):
        return np.zeros(1, np.float32)

    def step(self, action):
        self.t += 1
        return self.see(), 1.0 + self.np_random.standard_normal(), self.t >= 8, False, {}


def with_exact_critics(time_aware: bool, **settings):
    """γ = 1: V = 8 − t for critics that see the time, the mean of it, 4.5, for those that do not. They do not learn."""
    spec = EnvSpec(id="Hidden-v0", entry_point=Hidden, max_episode_steps=8, disable_env_checker=True)
    given = {
        "psi": 0.1, "gamma": 1.0, "gae_lambda": 1.0, "reward_scale": 0.5, "time_aware": time_aware, "luck_critic": False,
        "learning_rate": 1e-9, "critic_learning_rate": 1e-12, "envs": 16, "steps": 36, "epochs": 1, "minibatch": 576,
        "hidden": (4,), "variance_of": "state", "seed": OFFSET,
    }  # fmt: skip
    agent = VPACPPO(spec, **given | settings)
    weights = [[0.0], [-2.0]] if time_aware else [[0.0]]  # the time goes from −1 to 1; rewards are halved
    critic = Critic(
        MLP([jnp.asarray(weights, jnp.float32)], [jnp.asarray([2.0 if time_aware else 2.25])], "tanh"), False
    )
    agent.updater.networks = agent.networks._replace(
        value=critic, value_state=agent.updater.rules.critics.start(critic)
    )
    return agent


def test_critics_that_do_not_see_the_time_are_warned_of():
    """The luck of step k is k on average, in units of the raw reward; the warning comes once, in the second half."""
    agent = with_exact_critics(time_aware=False)
    with pytest.warns(LuckDrift, match="time_aware=True") as found:
        agent.learn(576 * (LEARNED + 4))
    assert len([w for w in found if w.category is LuckDrift]) == 1
    mean, share, errors = agent.drift.worst
    assert abs(mean - 4.0) < 4.0 * abs(mean / errors)  # k = 4, the worst
    assert share == agent.history[-1]["luck_drift"] > 1.0


def test_the_warning_waits_for_the_second_half():
    agent = with_exact_critics(time_aware=False)
    found = []
    agent.drift.warn = lambda psi, time_aware: found.append((agent.timesteps, psi)) or False
    agent.learn(576 * (2 * LEARNED + 2))
    assert found[0] == (576 * (LEARNED + 2), pytest.approx(0.1))  # ψ per unit of the raw reward
    assert len(found) == LEARNED
    agent = with_exact_critics(time_aware=False, form="published")
    agent.drift.warn = lambda psi, time_aware: found.append("published")
    agent.iteration, agent.timesteps, agent.span = LEARNED, 100, (0, 100)
    agent.warn_of_drift(0.1)
    assert "published" not in found


@pytest.mark.parametrize("seed", seeds(2))
def test_critics_that_see_it_are_not(seed):
    """A warning would be an error here. The luck has no drift: less than 4 standard errors of the worst of three bins."""
    agent = with_exact_critics(time_aware=True, seed=seed).learn(576 * 6)
    assert abs(agent.drift.worst.errors) < 4.0
