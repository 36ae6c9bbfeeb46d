"""A flipped byte in any stored file, or a truncated file, is detected and named, and never gives a wrong number."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tiny import contents, little
from vpac.envs.make import make_env
from vpac.errors import UserError
from vpac.lab.experiments.spec import Arm
from vpac.lab.report.build import document_of
from vpac.lab.store.backend import Scratch
from vpac.lab.store.records import Damaged, damaged_notes, read_study
from vpac.lab.store.run import Run
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan
from vpac.risk.sample import ReturnSample
from vpac.saved import SavedAgent
from vpac.tabular import VPAC


def damages(path: Path, seed: int = 0, flips: int = 24):
    """The file with one byte changed, or cut off, many times, each byte of the words that guard it among them; whole again at
    the end."""
    good, rng = path.read_bytes(), np.random.default_rng(seed)
    words = [good.find(word) + i for word in (b'"checksum"', b'"format"') if word in good for i in range(len(word))]
    for place in {0, len(good) - 1, *words, *rng.integers(len(good), size=flips).tolist()}:
        bad = bytearray(good)
        bad[place] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(bad))
        yield place
    for length in (0, 1, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        yield -length
    path.write_bytes(good)


def complaint(read, path: Path) -> str:
    try:
        read(path)
    except UserError as error:
        return str(error)
    return ""


def test_a_learner(tmp_path):
    folder = VPAC("vpac/CatchUp-v0", seed=1).learn(3).save(tmp_path / "agent")
    for name in ("agent.json", "weights.safetensors"):
        for place in damages(folder / name):
            assert "agent" in complaint(VPAC.load, folder), (name, place)
    VPAC.load(folder)


def test_an_agent_and_its_policy(tmp_path):
    pytest.importorskip("jax")
    from vpac.deep import PPO, load_policy

    small = {"envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": (4,)}
    PPO("CartPole-v1", **small).learn(16).save(tmp_path)
    readers = {"agent.json": PPO.load, "weights.safetensors": PPO.load}
    for name, read in {**readers, "policy.json": load_policy, "policy.safetensors": load_policy}.items():
        for place in damages(tmp_path / name):
            assert str(tmp_path) in complaint(read, tmp_path), (name, place)


def test_every_bit_of_what_says_where_it_learned(tmp_path):
    """One bit of a wrapper's setting or of the environment's name would be another environment, and other numbers."""
    folder = VPAC(make_env("vpac/CatchUp-v0", [("RewardNoise", {"std": 2.0})]), seed=1).save(tmp_path / "agent")
    path = folder / "agent.json"
    good = path.read_bytes()
    for bit in range(8 * good.find(b'"env"'), 8 * good.find(b'"seed"')):
        path.write_bytes(good[: bit // 8] + bytes([good[bit // 8] ^ 1 << bit % 8]) + good[bit // 8 + 1 :])
        assert str(folder) in complaint(SavedAgent.read, folder), bit


def test_a_sample(tmp_path):
    rng = np.random.default_rng(0)
    sample = ReturnSample(rng.random(5), rng.random(5), np.arange(1, 6), np.ones(5, bool), 0.9, {"env": "x"})
    for ending in ("json", "parquet"):
        path = sample.save(tmp_path / f"sample.{ending}")
        for place in damages(path, flips=80):
            said = complaint(ReturnSample.load, path)
            assert not said or str(path) in said
            if not said:  # a byte that means nothing, in Parquet's own head
                found = ReturnSample.load(path)
                np.testing.assert_array_equal(found.discounted_returns, sample.discounted_returns, f"{place}")
                assert (found.gamma, found.about) == (sample.gamma, sample.about)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("whole"))
    arms = (*little().arms, Arm(label="bad", algorithm="vpac", settings={"psi": -1.0}))
    carry_out_studies([plan(little(runs=1, arms=arms))], store, Serial())
    return store


@pytest.fixture
def store(whole, tmp_path):
    shutil.copytree(whole.root, tmp_path / "s")
    return Store(tmp_path / "s")


def test_the_note_of_a_study(store):
    note = read_study(store, "little")
    path = store.root / "studies" / "little.json"
    for place in damages(path):
        assert read_study(store, "little") is None, place
        assert list(damaged_notes(store)) == [f"{store.root}/studies/little.json"]
    assert read_study(store, "little") == note
    path.write_text("{}")
    (failure,) = [f for f in document_of(store, []).failures if "little.json" in f.run]
    assert "damaged" in failure.message


def test_the_note_of_a_failure(store):
    (name,) = store.failures()
    for place in damages(store.root / "failed" / f"{name}.json"):
        with pytest.raises(Damaged, match=f"{name}.json is not what was written"):
            pytest.fail(f"{place}: {store.failure(name)}")
    assert "psi must be" in store.failure(name)["error"]


def test_any_file_of_a_store_and_the_study_ends_the_same(whole, store):
    """Whichever file is hit, carrying out the study again brings back the bytes that were there."""
    arms = (*little().arms, Arm(label="bad", algorithm="vpac", settings={"psi": -1.0}))
    files = [p for p in store.root.rglob("*") if p.is_file() and p.name != ".locks"]
    assert len(files) >= 8
    rng = np.random.default_rng(1)
    for path in files:
        content = bytearray(path.read_bytes())
        content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(content))
        again = Store(store.root)
        tally = carry_out_studies([plan(little(runs=1, arms=arms))], again, Serial())["little"]
        if "runs" in path.parts:
            assert len(tally.damaged) == 1
            assert path.name in tally.damaged[0]
        assert contents(again) == contents(whole)
        assert read_study(again, "little").runs == read_study(whole, "little").runs


def test_a_run_whose_checkpoints_are_all_damaged_begins_anew(tmp_path):
    pytest.importorskip("jax")
    from vpac.lab.kinds.deep import perform

    settings = {"envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": [4], "checkpoint_every": 2}
    task = {
        "kind": "deep", "env": "CartPole-v1", "env_settings": {}, "algorithm": "ppo", "settings": settings, "steps": 16 * 6,
        "episodes": 4, "fixed_start": {},
    }  # fmt: skip
    run = Run(task, 0, 5)
    whole = perform(run, Scratch(tmp_path / "whole"))
    assert sorted(os.listdir(tmp_path / "whole")) == ["00000004", "00000006"]
    assert whole.damaged == ()
    resumed = perform(run, Scratch(tmp_path / "whole"))
    for name in ("00000004", "00000006"):
        path = tmp_path / "whole" / name / "weights.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
    again = perform(run, Scratch(tmp_path / "whole"))
    assert len(again.damaged) == 2
    assert "00000006" in again.damaged[0]
    other = perform(Run(task, 0, 6), Scratch(tmp_path / "whole"))
    assert "that of another run" in other.damaged[0]
    for result in (resumed, again):
        assert result.final == whole.final
        for name, array in whole.policy.items():
            np.testing.assert_array_equal(array, result.policy[name])


def test_the_word_that_tells_stores_apart(tmp_path):
    store = Store(tmp_path)
    good = store.identity()
    for content in (b"\xff\xfe", b"", good.encode()[:-1], good.encode() + b"0", good.encode()[:-1] + b"G"):
        (tmp_path / ".identity").write_bytes(content)
        with pytest.raises(UserError, match=r"\.identity is not what was written: remove it"):
            store.identity()
    (tmp_path / ".identity").unlink()
    (tmp_path / ".identity").mkdir()
    with pytest.raises(UserError, match=r"\.identity is not what was written: remove it"):
        store.identity()
