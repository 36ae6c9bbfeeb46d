"""Files of every format that was ever written are read; those of the future are refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from forging import forge
from vpac.errors import UserError
from vpac.evaluation.loading import load_agent
from vpac.execution.index import index
from vpac.execution.store import Damaged, Store
from vpac.execution.study import read_study, studies
from vpac.learners import VPAC
from vpac.risk.sample import ReturnSample
from vpac.sealing import sealed

OLD = Path(__file__).parent / "fixtures" / "format-1"


def test_a_learner_of_format_1():
    learner = VPAC.load(OLD / "learner")
    assert (learner.episodes, learner.seed) == (5, 3)
    again = VPAC("vpac/CatchUp-v0", seed=3, psi=0.1).learn(5)
    np.testing.assert_array_equal(learner.returns, again.returns)
    np.testing.assert_array_equal(learner.learn(5).weights.theta, again.learn(5).weights.theta)


def test_an_agent_and_a_policy_of_format_1():
    pytest.importorskip("jax")
    from vpac.deep import VPACPPO, load_policy

    agent, policy = VPACPPO.load(OLD / "agent"), load_policy(OLD / "agent")
    assert (agent.timesteps, agent.seed) == (48, 1)
    np.testing.assert_array_equal(agent.policy().weights[0], policy.weights[0])
    assert load_agent(OLD / "agent").gamma == policy.gamma


def test_a_store_of_format_1(tmp_path):
    shutil.copytree(OLD / "store", tmp_path / "store")
    store = Store(tmp_path / "store")
    assert [study.experiment.name for study in studies(store)] == ["little"]
    names = [name for names in read_study(store, "little").runs.values() for name in names]
    for name in names:
        record = store.read(name)
        assert record.metrics()["mean"].is_finite().all()
        assert np.isfinite(record.policy()["theta"]).all()
    assert [row["status"] for row in index(store)] == ["finished"] * 2


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_a_sample_of_format_1(ending):
    sample = ReturnSample.load(OLD / f"sample.{ending}")
    assert sample.discounted_returns.tolist() == [1.0, 2.5]


def test_formats_of_the_future_are_refused_by_name(tmp_path):
    for name in ("learner", "agent", "store"):
        shutil.copytree(OLD / name, tmp_path / name)
    forge(tmp_path / "learner", {"format": 7})
    forge(tmp_path / "agent", {"format": 8})
    forge(tmp_path / "agent", {"format": 9}, what="policy")
    with pytest.raises(UserError, match="format 7: this version reads formats up to 2"):
        VPAC.load(tmp_path / "learner")
    with pytest.raises(UserError, match="format 9: this version reads formats up to 2"):
        load_agent(tmp_path / "agent")
    pytest.importorskip("jax")
    from vpac.deep import VPACPPO

    with pytest.raises(UserError, match="format 8: this version reads formats up to 2"):
        VPACPPO.load(tmp_path / "agent")
    run = next((tmp_path / "store" / "runs").iterdir())
    data = json.loads((run / "run.json").read_text(encoding="utf-8"))
    (run / "run.json").write_text(sealed(data | {"format": 6}), encoding="utf-8")
    with pytest.raises(Damaged, match="format 6; this version of vpac reads format 1"):
        Store(tmp_path / "store").read(run.name)
    sample = json.loads((OLD / "sample.json").read_text())
    (tmp_path / "sample.json").write_text(json.dumps(sample | {"format": 5}))
    with pytest.raises(UserError, match="format 5"):
        ReturnSample.load(tmp_path / "sample.json")
