"""A PPO run in a study that meets what is not a number: marked as diverged, with quantity, step and seed."""

from __future__ import annotations

import gymnasium
import pytest

import probes
from vpac.execution.executors import Serial
from vpac.execution.store import Store
from vpac.execution.study import carry_out_studies, plan
from vpac.experiments.spec import Arm, Experiment

pytest.importorskip("jax")

SMALL = {"envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": [4]}


@pytest.mark.parametrize("what", ["reward", "observation", "learning rate"])
def test_a_deep_run_that_diverges_is_marked_and_the_others_go_on(tmp_path, what):
    name = "Breaks-v0"
    gymnasium.registry.pop(name, None)
    gymnasium.register(name, probes.Breaks, kwargs={"what": what, "when": 40})
    bad = {"learning_rate": 1e30, "max_grad_norm": None} if what == "learning rate" else {}
    arms = (
        Arm(label="bad", algorithm="ppo", env="Pendulum-v1" if bad else name, settings=bad),
        Arm(label="good", algorithm="ppo", env="CartPole-v1"),
    )
    study = Experiment(name="deep", title="deep", kind="deep", arms=arms, settings=SMALL, steps=320, episodes=2, runs=1)
    store = Store(tmp_path)
    tally = carry_out_studies([plan(study)], store, Serial())["deep"]
    assert tally.done == 1
    (outcome,) = tally.failed
    assert outcome.status == "diverged"
    assert "is not finite" in outcome.error
    assert "step" in outcome.error
    assert "(seed " in outcome.error
    assert store.failure(outcome.name)["about"]["status"] == "diverged"
