"""Numbers that are not finite stop learning, and nothing that is not finite is learned."""

from __future__ import annotations

import re
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import reference
from vpac.envs import ContinuousPuddleWorld, FourRooms
from vpac.tabular import AC, VAAC, VAACTD, VPAC, Diverged, OffPolicyAC, OffPolicyVAAC, OffPolicyVAACTD, OffPolicyVPAC
from vpac.tabular.agents import learn_many
from vpac.tabular.options import StepSizeOrder

EVERY = (AC, VPAC, VAAC, VAACTD, OffPolicyAC, OffPolicyVPAC, OffPolicyVAAC, OffPolicyVAACTD)
STEP_SIZES = [
    {"alpha_theta": 0.01, "alpha_w": 3.0, "alpha_z": 3.0},
    {"alpha_theta": 0.01, "alpha_w": 1e300, "alpha_z": 0.1},
    {"alpha_theta": 0.01, "alpha_w": 0.1, "alpha_z": 1e300},
    {"alpha_theta": 1e300, "alpha_w": 0.1, "alpha_z": 0.1},
    {"alpha_theta": 1e160, "alpha_w": 1e160, "alpha_z": 1e160},
]


def make(kind, env, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StepSizeOrder)
        return kind(env, **settings)


def complaint(learner, episodes):
    try:
        learner.learn(episodes)
    except Diverged as error:
        return str(error)
    return ""


@pytest.fixture(params=["table", "four actions", "tiles"])
def env(request):
    if request.param == "tiles":
        return ContinuousPuddleWorld(step=0.2)
    rng = np.random.default_rng(1)
    return reference.random_mdp(rng, 4, 4 if request.param == "four actions" else 3, 1, noise=0.5)


@pytest.mark.parametrize("form", ["published", "corrected"])
@pytest.mark.parametrize("rates", STEP_SIZES, ids=str)
@pytest.mark.parametrize("kind", EVERY)
def test_weights_stay_finite_whatever_the_step_sizes(kind, rates, form, env):
    learner = make(kind, env, form=form, baseline=form == "corrected", max_episode_steps=40, **rates)
    message = complaint(learner, 3000)
    if message:
        found = re.search(rf"is not finite in episode {learner.episodes}, step (\d+) \(seed 0\)", message)
        assert found, message
        assert int(found[1]) < 40
    else:
        assert rates["alpha_w"] < 1e100  # the others may be survived
    assert all(np.isfinite(x).all() for x in learner.weights)
    if learner.environment.n_active == 1:
        assert np.allclose(learner.policy().sum(axis=1), 1.0)
    else:
        learner.predict([0.2, 0.3], deterministic=False)


def test_diverging_weights_name_what_diverged():
    learner = make(VPAC, FourRooms(), alpha_w=3.0, alpha_z=3.0, form="published", baseline=False)
    with pytest.raises(Diverged, match=r"update of the critic of the spread is not finite in episode \d+, step \d+"):
        learner.learn(2000)
    assert np.abs(learner.weights.w).max() > 1e10  # it has learned up to there


class Fragile(VPAC):
    """Runs of odd seeds diverge."""

    def _learn(self, episodes):
        if self.seed % 2:
            raise Diverged(f"seed {self.seed}")
        super()._learn(episodes)


def test_runs_that_diverge_do_not_take_the_others_with_them():
    with pytest.raises(Diverged, match="seed 1"):
        learn_many(Fragile, "vpac/CatchUp-v0", range(4), 3)
    errors = []
    kept = learn_many(Fragile, "vpac/CatchUp-v0", [1, 2, 3, 4], 3, diverged=errors)
    assert [learner.seed for learner in kept] == [2, 4]
    assert [str(error) for error in errors] == ["seed 1", "seed 3"]
    assert all(learner.episodes == 3 for learner in kept)


def test_a_reward_that_is_not_finite_stops_learning_and_keeps_the_last_good_state():
    class Broken(gymnasium.Env):
        observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            return 1, float("nan"), True, False, {}

    for kind in (VPAC, VAAC):
        learner = kind(Broken(), seed=4, max_episode_steps=9)
        with pytest.raises(Diverged, match=r"the reward is not finite in episode 0, step 0 \(seed 4\)"):
            learner.learn(5)
        assert not learner.weights.w.any()
        assert learner.episodes == 0
