"""EnvPool's environments are Gymnasium's, and begin episodes by the rule that ours follow."""

from __future__ import annotations

import numpy as np
import pytest

from vpac import UserError

pytest.importorskip("jax")
from vpac.deep import PPO
from vpac.deep.playing import play
from vpac.deep.pools import NoisyPool, OfEnvPool
from vpac.deep.vector import Loop, environments, has_envpool

SHOWN = {"exclude_current_positions_from_observation": False}
needs_pool = pytest.mark.skipif(not has_envpool("Hopper-v5"), reason="EnvPool or MuJoCo is not installed")


@needs_pool
def test_the_fast_way_is_taken_where_there_is_one():
    assert isinstance(environments("Hopper-v5", 2), OfEnvPool)
    assert isinstance(environments("Hopper-v5", 2, "gymnasium"), Loop)
    assert isinstance(environments("CartPole-v1", 2), Loop)
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
        found.append(play(policy, envs, 160, np.random.SeedSequence(number), 0.99))
        envs.close()
    for ours, theirs in zip(*found, strict=True):
        error = np.hypot(ours.std(ddof=1), theirs.std(ddof=1)) / np.sqrt(len(ours))
        assert abs(ours.mean() - theirs.mean()) < 4.0 * error


@needs_pool
def test_noise_in_a_region_is_the_same_on_both_ways():
    """Variances of scores of one policy on the noisy hopper, which gets beyond x = 2 now and then, or with noise everywhere."""
    policy = PPO("vpac/NoisyHopper-v0", seed=1, envs=1, backend="gymnasium").policy()
    pool = environments("vpac/NoisyHopper-v0", 8)
    assert isinstance(pool, NoisyPool)
    pool._low = -np.inf  # everywhere, so that a random policy meets it
    played = play(policy, pool, 400, np.random.SeedSequence(0), 1.0)
    quiet = play(policy, environments("Hopper-v5", 8, "envpool", SHOWN), 400, np.random.SeedSequence(0), 1.0)
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

    policy = PPO(Uneven, envs=1, hidden=(4,)).policy()
    played = play(policy, environments(Uneven, 4), 16, np.random.SeedSequence(0), 1.0)
    assert sorted(played.lengths) == [1.0] * 8 + [9.0] * 8
    np.testing.assert_array_equal(played.scores, played.lengths)
