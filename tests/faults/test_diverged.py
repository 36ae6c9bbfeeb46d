"""A PPO run in a study with a number that is not finite: marked as diverged, with quantity, step and seed."""

from __future__ import annotations

import gymnasium
import pytest

import probes
from vpac.lab.experiments.spec import Arm, Experiment
from vpac.lab.store.store import Result, Store
from vpac.lab.workers import worker
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan

pytest.importorskip("jax")

GOOD = Arm(label="good", algorithm="ppo", env="CartPole-v1")
SMALL = {"envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": [4]}


def carried_out(folder, *arms, **given):
    """The only outcome that did not end well, and the store."""
    study = Experiment(name="late", title="late", arms=arms, runs=1, **given)
    store = Store(folder)
    tally = carry_out_studies([plan(study)], store, Serial())["late"]
    assert tally.done == len(arms) - 1
    (outcome,) = tally.failed
    assert outcome.status == "diverged", outcome.error
    assert "(seed " in outcome.error
    assert store.failure(outcome.name)["about"]["status"] == "diverged"
    return outcome, store


@pytest.mark.parametrize("what", ["reward", "observation", "learning rate"])
def test_a_deep_run_that_diverges_is_marked_and_the_others_go_on(tmp_path, what):
    name = "Breaks-v0"
    gymnasium.registry.pop(name, None)
    gymnasium.register(name, probes.Breaks, kwargs={"what": what, "when": 40})
    rate = {"learning_rate": 1e30, "max_grad_norm": None} if what == "learning rate" else {}
    bad = Arm(label="bad", algorithm="ppo", env="Pendulum-v1" if rate else name, settings=rate)
    outcome, _ = carried_out(tmp_path, bad, GOOD, kind="deep", settings=SMALL, steps=320, episodes=2)
    assert "is not finite" in outcome.error
    assert "step" in outcome.error


class BreaksLater(gymnasium.Env):
    """Pays what is not a number, but only in the environments that are made after those to learn from."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def __init__(self, learning):
        learning[0] -= 1
        self.bad = learning[0] < 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 1, float("nan") if self.bad else 1.0, True, False, {}


@pytest.fixture
def breaks_later():
    def register(learning):
        gymnasium.registry.pop("BreaksLater-v0", None)
        left = [learning]
        gymnasium.register("BreaksLater-v0", lambda: BreaksLater(left), disable_env_checker=True)
        return "BreaksLater-v0"

    yield register
    gymnasium.registry.pop("BreaksLater-v0", None)


def test_what_is_not_finite_when_a_policy_is_measured_is_diverged_and_one_episode_has_no_variance(
    tmp_path, breaks_later
):
    bad = Arm(label="bad", algorithm="ppo", env=breaks_later(SMALL["envs"]))
    outcome, store = carried_out(tmp_path, bad, GOOD, kind="deep", settings=SMALL, steps=32, episodes=1)
    assert "reward is nan in step 1 of episode 0" in outcome.error
    (name,) = store.names()
    assert store.read(name).final["variance"] is None
    assert store.read(name).final["mean"] > 0.0


def test_the_same_of_a_table(tmp_path, breaks_later):
    bad = Arm(label="bad", algorithm="ac", env=breaks_later(1))
    outcome, _ = carried_out(tmp_path, bad, episodes=5, every=1, evaluate="episodes", measure=4)
    assert "reward is nan in step 1 of episode 0" in outcome.error


def test_no_result_has_a_number_that_is_none(tmp_path, monkeypatch):
    """For every kind of run."""
    monkeypatch.setattr(worker, "perform", lambda run, scratch: Result({"episode": [1]}, {}, {"ratio": float("inf")}))
    outcome, _ = carried_out(tmp_path, Arm(label="any", algorithm="ac"), env="vpac/CatchUp-v0", episodes=5, every=1)
    assert "ratio is inf: not finite" in outcome.error
