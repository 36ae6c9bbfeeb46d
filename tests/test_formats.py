"""Files of all earlier formats are read; those of newer formats are rejected by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from forging import forge
from vpac.cli import main
from vpac.errors import Newer, UserError
from vpac.evaluation.actors import load_agent
from vpac.files import sealed
from vpac.lab.kinds.saved_agents import find_agents
from vpac.lab.store.records import index, read_study, studies
from vpac.lab.store.store import Store
from vpac.risk.sample import ReturnSample
from vpac.tabular import VPAC

FIXTURES = Path(__file__).parent / "fixtures"
OLD = FIXTURES / "format-1"


def formats(what: str) -> list:
    """Every format of something that was ever written."""
    found = sorted(folder / what for folder in FIXTURES.glob("format-*") if (folder / what).exists())
    return [pytest.param(path, id=path.parent.name) for path in found]


def test_there_is_a_fixture_of_every_format():
    from vpac import saved
    from vpac.deep import policy
    from vpac.lab.store import records as notes
    from vpac.lab.store import run
    from vpac.risk import sample as samples

    newest = {"learner": saved.TABULAR_FORMAT, "agent": saved.DEEP_FORMAT}
    newest |= {"sample.json": samples.SAMPLE_FORMAT, "store": notes.NOTE_FORMAT}
    newest |= {"policy": policy.POLICY_FORMAT}  # its first three were written with agents of the same number
    for what, number in newest.items():
        first = saved.DEEP_FORMAT + 1 if what == "policy" else 1
        assert [path.values[0].parent.name for path in formats(what)] == [
            f"format-{n}" for n in range(first, number + 1)
        ]
    for number in range(1, notes.NOTE_FORMAT + 1):
        (note,) = (FIXTURES / f"format-{number}" / "store" / "studies").iterdir()
        assert json.loads(note.read_text(encoding="utf-8")).get("format", 1) == number
    assert run.RUN_FORMAT == 1  # a change of it needs a fixture with the runs of the format before


@pytest.mark.parametrize("folder", formats("learner"))
def test_a_learner(folder):
    learner = VPAC.load(folder)
    assert (learner.episodes, learner.seed) == (5, 3)
    again = VPAC("vpac/CatchUp-v0", seed=3, psi=0.1).learn(5)
    np.testing.assert_array_equal(learner.returns, again.returns)
    np.testing.assert_array_equal(learner.learn(5).weights.theta, again.learn(5).weights.theta)


@pytest.mark.parametrize("folder", formats("agent"))
def test_an_agent_and_a_policy(folder):
    pytest.importorskip("jax")
    from vpac.deep import VPACPPO, load_policy

    agent, policy = VPACPPO.load(folder), load_policy(folder)
    assert (agent.timesteps, agent.seed) == (48, 1)
    np.testing.assert_array_equal(agent.policy().weights[0], policy.weights[0])
    assert load_agent(folder).gamma == policy.gamma


@pytest.mark.parametrize("name", ["learner", "learner/run-0", "agent"])
def test_a_training_is_found_listed_and_checked(tmp_path, name):
    shutil.copytree(FIXTURES / "trainings", tmp_path / "train")
    for where in (str(tmp_path / "train" / name), f"train/{name}"):
        ((agent, env),) = find_agents(where, tmp_path).values()
        assert agent.act if name == "agent" else agent.episodes == 5
        env.close()
    rows = {row["name"]: row["status"] for row in index(Store(tmp_path))}
    assert rows == {"train/agent": "finished", "train/learner/run-0": "finished"}
    (one,) = (
        (tmp_path / "train" / name.partition("/")[0]).rglob("weights.safetensors")
        if name != "agent"
        else [tmp_path / "train" / "agent" / "weights.safetensors"]
    )
    one.write_bytes(one.read_bytes() + b" ")
    with pytest.raises(UserError, match=r"weights\.safetensors is not what was written"):
        find_agents(f"train/{name}", tmp_path)


def test_a_training_goes_on(tmp_path):
    pytest.importorskip("jax")
    shutil.copytree(FIXTURES / "trainings" / "agent", tmp_path / "agent")
    words = ["train", "vpac-ppo", "vpac/CatchUp-v0", "--resume", str(tmp_path / "agent"), "--steps", "80", "--json"]
    assert main(words) == 0
    record = json.loads((tmp_path / "agent" / "run.json").read_text(encoding="utf-8"))
    assert record["task"]["steps"] == 80
    assert set(record["files"]) == {p.name for p in tmp_path.glob("agent/*.*")} - {
        "run.json",
        "metrics.jsonl",
        "training.png",
    }


@pytest.mark.parametrize("folder", formats("policy"))
def test_a_policy_of_several_parts_with_masks(folder):
    """Of the second part only the last of three is allowed: 1 1 | 0 0 1."""
    from vpac.deep.policy import load_policy

    row = {"vector": np.zeros((1, 2), np.float32), "action_mask": np.array([[1, 1, 0, 0, 1]], np.int8)}
    acted = [load_policy(folder).act(row, np.random.default_rng(seed))[0] for seed in range(20)]
    assert {int(part) for _, part in acted} == {2}


@pytest.mark.parametrize("folder", formats("agent"))
def test_an_agent_goes_on_learning_and_is_saved_again(tmp_path, folder):
    """Its history has rows of then and of now."""
    pytest.importorskip("jax")
    from vpac.deep import VPACPPO
    from vpac.lab.report.training import DeepTrainingSummary

    agent = VPACPPO.load(folder).learn(32)
    agent.save(tmp_path)
    again = VPACPPO.load(tmp_path)
    assert [row["timesteps"] for row in again.history] == [16.0, 32.0, 48.0, 64.0, 80.0]
    assert again.options == agent.options
    assert len(DeepTrainingSummary(again).charts()[0].panels) == 3


@pytest.mark.parametrize("folder", formats("store"))
def test_a_store(tmp_path, folder):
    shutil.copytree(folder, tmp_path / "store")
    store = Store(tmp_path / "store")
    assert [study.experiment.name for study in studies(store)] == ["little"]
    names = [name for names in read_study(store, "little").runs.values() for name in names]
    for name in names:
        record = store.read(name)
        assert record.metrics()["mean"].is_finite().all()
        assert np.isfinite(record.policy()["theta"]).all()
    failed = store.failures()
    assert [row["status"] for row in index(store)] == ["finished"] * 2 + ["failed"] * len(failed)
    assert all(store.failure(name)["error"].endswith("ValueError: why") for name in failed)


@pytest.mark.parametrize("ending", ["json", "parquet"])
@pytest.mark.parametrize("path", formats("sample.json"))
def test_a_sample(path, ending):
    sample = ReturnSample.load(path.with_suffix(f".{ending}"))
    assert sample.discounted_returns.tolist() == [1.0, 2.5]


def test_formats_of_the_future_are_refused_by_name(tmp_path):
    for name in ("learner", "agent", "store"):
        shutil.copytree(OLD / name, tmp_path / name)
    shutil.copytree(OLD / "agent", tmp_path / "policy")
    forge(tmp_path / "learner", {"format": 7})
    forge(tmp_path / "agent", {"format": 8})
    forge(tmp_path / "policy", {"format": 9}, what="policy")
    with pytest.raises(UserError, match="format 7: this version reads formats up to 2"):
        VPAC.load(tmp_path / "learner")
    with pytest.raises(UserError, match="format 9: this version reads formats up to 4"):
        load_agent(tmp_path / "policy")
    pytest.importorskip("jax")
    from vpac.deep import VPACPPO

    with pytest.raises(UserError, match="format 8: this version reads formats up to 3"):
        VPACPPO.load(tmp_path / "agent")
    run = next((tmp_path / "store" / "runs").iterdir())
    data = json.loads((run / "run.json").read_text(encoding="utf-8"))
    data.pop("checksum")
    (run / "run.json").write_text(sealed(data | {"format": 6}), encoding="utf-8")
    with pytest.raises(Newer, match="format 6, and this version of vpac reads formats up to 1"):
        Store(tmp_path / "store").read(run.name)
    sample = json.loads((OLD / "sample.json").read_text())
    (tmp_path / "sample.json").write_text(json.dumps(sample | {"format": 5}))
    with pytest.raises(UserError, match="format 5"):
        ReturnSample.load(tmp_path / "sample.json")


def test_a_checkpoint_of_the_future_is_neither_damaged_nor_passed_over(tmp_path):
    pytest.importorskip("jax")
    from vpac.deep import PPO
    from vpac.deep.checkpoint import latest_checkpoint, write_checkpoint

    agent = PPO("CartPole-v1", envs=2, steps=8, epochs=1, minibatch=16, hidden=(4,))
    for _ in range(2):
        agent.learn(16)
        write_checkpoint(agent, tmp_path)
    forge(tmp_path / "00000002", {"format": 8})
    with pytest.raises(
        Newer, match=r"00000002 is in format 8: this version reads formats up to 3, use a newer version"
    ):
        latest_checkpoint(PPO, tmp_path)
    path = tmp_path / "00000002" / "agent.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"format": 8', '"format": 9'), encoding="utf-8")
    found, damaged = latest_checkpoint(PPO, tmp_path)  # a byte that changed is no other version
    assert found.iteration == 1
    assert "agent.json is not what was written" in damaged[0]
