"""Logs written by Minari. `make bench` runs this in an environment with Minari."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import vpac
from vpac.evaluation.log import load_log

minari = pytest.importorskip("minari", reason="needs minari[hdf5]: `make bench` tests it in an environment of its own")


class Uniform(gymnasium.Wrapper):
    """Puts the logarithm of the probability of uniform actions into the infos."""

    def reset(self, **given):
        observation, info = self.env.reset(**given)
        return observation, info | {"log_prob": np.nan}  # Minari wants the same keys in every info

    def step(self, action):
        *found, info = self.env.step(action)
        size = float(getattr(self.action_space, "n", 0)) or np.prod(self.action_space.high - self.action_space.low)
        return *found, info | {"log_prob": -np.log(size)}


def collect(
    env: gymnasium.Env, name: str, with_probabilities: bool
) -> list[tuple[list[float], list[float], list[float]]]:
    """Twelve episodes into a data set; returns the observations, actions and rewards of each."""
    collector = minari.DataCollector(Uniform(env) if with_probabilities else env, record_infos=with_probabilities)
    collector.action_space.seed(1)
    found = []
    for seed in range(12):
        observation, _ = collector.reset(seed=seed)
        columns, over = ([], [], []), False
        while not over:
            action = collector.action_space.sample()
            after, reward, ended, cut, _ = collector.step(action)
            for column, x in zip(columns, (observation, action, reward), strict=True):
                column.extend(np.ravel(x).tolist())
            observation, over = after, ended or cut
        found.append(columns)
    collector.create_dataset(dataset_id=name, description="uniform actions", author="vpac", algorithm_name="uniform")
    return found


@pytest.mark.filterwarnings("ignore")  # Minari asks for an e-mail address, a code address and more
@pytest.mark.parametrize(("env", "size"), [("vpac/CatchUp-v0", None), ("CartPole-v1", 2), ("Pendulum-v1", 4)])
def test_what_minari_writes_is_read(tmp_path, monkeypatch, env, size):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    made = gymnasium.make(env, max_episode_steps=20)
    written = collect(made, "own/log-v0", with_probabilities=True)
    log = load_log("minari:own/log-v0")
    assert len(log) == 12
    for column, found in enumerate((log.observation, log.action, log.reward)):
        assert np.allclose(found.ravel(), np.concatenate([episode[column] for episode in written]))
    assert np.allclose(log.probability, 1.0 / (size or made.action_space.n))
    if env == "vpac/CatchUp-v0":
        uniform = np.full((made.observation_space.n, made.action_space.n), 1.0 / made.action_space.n)
        report = vpac.offline("minari:own/log-v0", uniform, gamma=1.0, least=1.0)
        assert report["weighted"].mean.estimate == pytest.approx(np.mean([sum(episode[2]) for episode in written]))


@pytest.mark.filterwarnings("ignore")
def test_data_sets_of_minari_without_probabilities_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    collect(gymnasium.make("vpac/CatchUp-v0"), "own/log-v0", with_probabilities=False)
    with pytest.raises(vpac.UserError, match="does not say how probable its actions were"):
        load_log("minari:own/log-v0")
    with pytest.raises(vpac.UserError, match="cannot read the data set 'own/other-v0'"):
        load_log("minari:own/other-v0")
