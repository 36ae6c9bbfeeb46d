"""EnvPool's environments agree with Gymnasium's, and start episodes by our rule."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from vpac import UserError

pytest.importorskip("jax")
from vpac.deep import PPO
from vpac.deep.spaces import Interface
from vpac.envs.vector import EnvPoolEnvironments, NoisyEnvPool, SerialEnvironments, environments, has_envpool
from vpac.evaluation.play import play_policy

SHOWN = {"exclude_current_positions_from_observation": False}
needs_pool = pytest.mark.skipif(not has_envpool("Hopper-v5"), reason="EnvPool or MuJoCo is not installed")


@needs_pool
def test_the_fast_way_is_taken_where_there_is_one():
    assert isinstance(environments("Hopper-v5", 2), EnvPoolEnvironments)
    assert isinstance(environments("Hopper-v5", 2, "gymnasium"), SerialEnvironments)
    assert isinstance(environments("CartPole-v1", 2), SerialEnvironments)
    with pytest.raises(UserError, match="EnvPool cannot make 'CartPole-v1'"):
        environments("CartPole-v1", 2, "envpool")
    with pytest.raises(UserError, match="does not take these arguments"):
        environments("Hopper-v5", 2, "envpool", {"no_such": 1})


@needs_pool
def test_the_step_after_an_end_only_begins_an_episode(rng):
    envs = environments("Hopper-v5", 8)
    first = envs.reset(range(8))
    np.testing.assert_array_equal(first, envs.reset(range(8)))
    over, begun = np.zeros(8, bool), 0
    for _ in range(120):
        step = envs.step(rng.uniform(-1.0, 1.0, (8, 3)))
        assert (step.rewards[over] == 0.0).all()
        assert not (step.terminated | step.truncated)[over].any()
        assert (np.abs(step.observations[over, 0] - 1.25) < 0.02).all()  # upright again
        begun += over.sum()
        over = step.terminated | step.truncated
    assert begun > 8


@needs_pool
def test_both_ways_play_the_same_game():
    """Scores and lengths of one random policy, by EnvPool and by Gymnasium, agree within 4 standard errors."""
    policy = PPO("Hopper-v5", seed=1, envs=1, backend="gymnasium").policy()
    found = []
    for number, backend in enumerate(("envpool", "gymnasium")):
        envs = environments("Hopper-v5", 16, backend)
        found.append(play_policy(policy, envs, 160, np.random.SeedSequence(number), 0.99))
        envs.close()
    for ours, theirs in zip(*found, strict=True):
        error = np.hypot(ours.std(ddof=1), theirs.std(ddof=1)) / np.sqrt(len(ours))
        assert abs(ours.mean() - theirs.mean()) < 4.0 * error


@needs_pool
def test_noise_in_a_region_is_the_same_on_both_ways():
    """Variances of scores of one policy on the noisy hopper, which gets beyond x = 2 now and then, or with noise everywhere."""
    policy = PPO("vpac/NoisyHopper-v0", seed=1, envs=1, backend="gymnasium").policy()
    pool = environments("vpac/NoisyHopper-v0", 8)
    assert isinstance(pool, NoisyEnvPool)
    pool._low = -np.inf  # everywhere, so that a random policy meets it
    played = play_policy(policy, pool, 400, np.random.SeedSequence(0), 1.0)
    quiet = play_policy(policy, environments("Hopper-v5", 8, "envpool", SHOWN), 400, np.random.SeedSequence(0), 1.0)
    np.testing.assert_array_equal(played.lengths, quiet.lengths)
    noise = (played.scores - quiet.scores) / (3.0 * np.sqrt(played.lengths))
    assert abs(noise.mean()) < 4.0 / np.sqrt(400)
    assert abs(noise.var() - 1.0) < 4.0 * np.sqrt(2.0 / 400)


def test_play_counts_each_episode_once_and_does_not_prefer_short_ones():
    import probes

    class Uneven(probes.Probe):
        """Odd episodes last one step, even ones nine; each pays its length at the end."""

        number = 0

        def reset(self, *, seed=None, options=None):
            self.number += 1
            self.limit = 1 if self.number % 2 else 9
            return super().reset(seed=seed)

        def pay(self, action):
            return float(self.t == self.limit) * self.limit

    policy = PPO(Uneven(), envs=1, hidden=(4,)).policy()
    four = SerialEnvironments([Uneven() for _ in range(4)], "Uneven")
    played = play_policy(policy, four, 16, np.random.SeedSequence(0), 1.0)
    assert sorted(played.lengths) == [1.0] * 8 + [9.0] * 8
    np.testing.assert_array_equal(played.scores, played.lengths)


def test_small_matrices_are_numbers_and_others_images():
    for image in (spaces.Box(0, 255, (8, 8), np.uint8), spaces.Box(0, 1, (84, 84))):
        assert Interface.of(image, spaces.Discrete(2), "x").image == image.shape
    assert Interface.of(spaces.Box(0, 1, (8, 8)), spaces.Discrete(2), "x").inputs == 64


def test_what_is_wrong_with_an_environment_is_said_before_or_where_it_shows():
    from envs.test_check import Right, Unseeded

    with pytest.raises(UserError, match=r"cannot be learned from yet:\n  1. reset ignores its seed"):
        PPO(Unseeded)
    with pytest.raises(UserError, match="step returned the reward '1': return a number"):
        PPO(lambda: Right(reward="1"))
    discrete = spaces.Discrete(3)
    for env, message in (
        (Right(reward="1"), "Right: step returned the reward '1': return a number"),
        (Right(observation=np.zeros(1)), r"reset returned an array of shape \[1\], observation_space has \[2\]"),
        (Right(later=np.zeros(1)), r"step returned an array of shape \[1\], observation_space has \[2\]"),
        (Right(seen=discrete, observation=-1), r"Right: reset returned -1, outside Discrete\(3\)"),
        (Right(seen=discrete, observation=0, later=3), r"Right: step returned 3, outside Discrete\(3\)"),
    ):
        agent = PPO(env, envs=1, steps=8, hidden=(4,))
        with pytest.raises(UserError, match=message):
            agent.learn(8)
    assert PPO(Right(later=[0.5, 0.5]), envs=1, steps=8, hidden=(4,)).learn(8).timesteps == 8  # NumPy reads a list
