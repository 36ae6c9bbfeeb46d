"""Same seed, same bytes; exact resuming; all kinds of environments; numbers that are not finite stop a run."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import probes
import vpac
from forging import forge
from vpac import UserError
from vpac.cli import main

pytest.importorskip("jax")
from vpac.deep import PPO, VAACPPO, VPACPPO, NotFinite, load_policy
from vpac.deep.checkpoint import latest_checkpoint
from vpac.envs.vector import SerialEnvironments

SMALL = {"envs": 4, "steps": 16, "epochs": 2, "minibatch": 32, "hidden": (8,), "checkpoint_every": 3}
"""Iterations of 64 steps."""


def digest(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir()) if p.is_file()}


@pytest.mark.parametrize("kind", [PPO, VPACPPO, VAACPPO])
def test_same_seed_same_bytes_other_seed_other(kind, tmp_path):
    settings = SMALL if kind is PPO else {**SMALL, "psi": 0.1}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        kind("CartPole-v1", seed=seed, **settings).learn(64 * 7).save(tmp_path / name)
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert digest(tmp_path / "a")["weights.safetensors"] != digest(tmp_path / "c")["weights.safetensors"]


def stopped_and_resumed(folder, env, given=None, stop=5, iterations=8, **settings):
    """An agent whose training was stopped and went on from its checkpoint: its files are those of an undisturbed one."""
    settings, total = {**SMALL, "seed": 3, **settings}, 64 * iterations
    VPACPPO(env, **settings).learn(total).save(folder / "whole")
    first = VPACPPO(env, **settings)
    first.learn(total, callback=lambda agent: agent.iteration < stop, checkpoints=folder / "kept")
    agent, damaged = latest_checkpoint(VPACPPO, folder / "kept", given)
    assert (agent.iteration, damaged) == (3, [])
    agent.learn(total, resuming=True).save(folder / "resumed")
    assert digest(folder / "whole") == digest(folder / "resumed")
    return agent


@pytest.mark.parametrize("stop", [3, 4, 5])
def test_a_stopped_run_ends_where_an_undisturbed_one_does(stop, tmp_path):
    """Stopped after the iteration `stop`, it goes on from the checkpoint before; Pendulum's episodes span iterations."""
    agent = stopped_and_resumed(tmp_path, "Pendulum-v1", stop=stop, psi="warm-up:0.1:100:200")
    assert agent.iteration == 8


@pytest.mark.slow  # trains in new processes, each of which compiles again after a kill
@pytest.mark.filterwarnings("ignore::vpac.deep.diagnostics.LuckDrift")  # so small a critic lags behind
def test_killed_at_a_random_moment_it_ends_the_same(tmp_path):
    words = [
        "train", "vpac-ppo", "CartPole-v1", "--psi", "0.01", "--steps", "6000",
        "--envs", "4", "--json", "--option", "steps=32", "hidden=[8]", "checkpoint_every=2", "epochs=2",
    ]  # fmt: skip
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    rng = np.random.default_rng(0)
    disturbed, kills = [sys.executable, "-m", "vpac", *words, "--out", str(tmp_path / "cut")], 0
    for _ in range(4):
        resuming = ["--resume", str(tmp_path / "cut")] if any((tmp_path / "cut" / "checkpoints").glob("[0-9]*")) else []
        process = subprocess.Popen([*disturbed, *resuming], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            code = process.wait(timeout=None if kills >= 1 else _after_first_checkpoint(tmp_path / "cut", rng))
            assert code == 0
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert kills == 1, "`make torture` kills a hundred times"
    for name in ("weights.safetensors", "agent.json", "metrics.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name


def _after_first_checkpoint(folder: Path, rng) -> float:
    """A moment: once there is one more checkpoint than now, and then a little later."""
    before = {p.name for p in (folder / "checkpoints").glob("[0-9]*")}
    deadline = time.monotonic() + 120
    while {p.name for p in (folder / "checkpoints").glob("[0-9]*")} <= before and time.monotonic() < deadline:
        time.sleep(0.02)
    return float(rng.uniform(0.0, 0.1))


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    VPACPPO("CartPole-v1", seed=1, psi=0.0, **SMALL).learn(64 * 9, checkpoints=tmp_path)
    folders = sorted(tmp_path.iterdir())
    assert [p.name for p in folders] == ["00000006", "00000009"]
    weights = folders[-1] / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    agent, damaged = latest_checkpoint(VPACPPO, tmp_path)
    assert agent.iteration == 6
    assert "checksum" in damaged[0]


def test_what_was_stopped_before_its_end_is_measured_with_a_word(tmp_path, capsys):
    VPACPPO("CartPole-v1", seed=1, psi=0.0, **SMALL).learn(64 * 6, checkpoints=tmp_path / "run" / "checkpoints")
    words = ["evaluate", str(tmp_path / "run"), "--episodes", "5", "--json", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "was stopped before its end: this is its checkpoint after 6 iterations" in err


def test_saved_agents_predict_the_same_without_jax(tmp_path, rng):
    agent = PPO("Pendulum-v1", seed=2, **SMALL).learn(64 * 4)
    agent.save(tmp_path)
    seen = rng.normal(size=(5, 3)).astype(np.float32)
    again = PPO.load(tmp_path)
    np.testing.assert_array_equal(agent.predict(seen)[0], again.predict(seen)[0])
    np.testing.assert_array_equal(
        agent.predict(seen, deterministic=False)[0], again.predict(seen, deterministic=False)[0]
    )
    assert agent.predict(seen[0])[0].shape == (1,)
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "import numpy as np; from vpac.deep import load_policy\n"
        f"print(load_policy({str(tmp_path)!r}).act(np.array({seen.tolist()}, np.float32), None, True).tolist())"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=dict(os.environ)
    )
    np.testing.assert_array_equal(np.array(json.loads(said.stdout), np.float32), agent.predict(seen)[0])
    sample = vpac.evaluate(load_policy(tmp_path), "Pendulum-v1", 3, seed=0)
    assert len(sample.returns) == 3


def test_wrong_folders_are_refused(tmp_path):
    agent = PPO("CartPole-v1", **SMALL)
    agent.save(tmp_path)
    with pytest.raises(UserError, match=r"use PPO\.load"):
        VPACPPO.load(tmp_path)
    with pytest.raises(UserError, match="shape"):
        PPO.load(tmp_path, "Pendulum-v1")
    forge(tmp_path, {"seed": "x"})
    with pytest.raises(UserError, match="seed"):
        PPO.load(tmp_path)
    for bad, words in (("{}", "format"), ("[", "JSON")):
        (tmp_path / "agent.json").write_text(bad)
        with pytest.raises(UserError, match=words):
            PPO.load(tmp_path)


def test_a_missing_extra_is_named():
    code = "import sys; sys.modules['optax'] = None\nimport vpac\ntry:\n    vpac.PPO\nexcept vpac.UserError as e:\n    print(e)"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'vpac[deep]'" in said.stdout
    code = "import sys; sys.modules['mujoco'] = None\nimport vpac.cli\nsys.exit(vpac.cli.main(['check', 'Hopper-v5']))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (2, "vpac: Hopper-v5 needs MuJoCo: pip install 'vpac[mujoco]'\n")


def test_who_could_step_faster_is_noted(monkeypatch, tmp_path, capsys):
    words = [
        "train",
        "ppo",
        "Hopper-v5",
        "--steps",
        "64",
        "--envs",
        "2",
        "--json",
        "--option",
        "steps=32",
        "hidden=[4]",
    ]
    for name, missing in (("with", False), ("without", True)):
        if missing:
            monkeypatch.setitem(sys.modules, "envpool", None)
        assert main([*words, "--out", str(tmp_path / name)]) == 0
        assert ("pip install 'vpac[envpool]'" in capsys.readouterr().err) is missing


@pytest.mark.parametrize(
    "wrong", [[0.0], np.zeros((7, 1)), np.zeros(3), np.zeros((2, 3)), ([0.0], 1), {"a": 1}, "left"]
)
def test_what_is_no_observation_gets_no_action(wrong):
    agent = PPO("CartPole-v1", **SMALL)
    with pytest.raises(UserError, match="observation"):
        agent.predict(wrong)
    assert agent.predict(np.zeros((7, 4)))[0].shape == (7,)
    assert agent.predict(np.zeros(4))[0].shape == ()


def test_a_number_beyond_the_last_gets_no_action():
    agent = PPO("FrozenLake-v1", **SMALL)
    for wrong in (-1, 99, 2.7, [0, 16]):
        with pytest.raises(UserError, match="whole numbers from 0 to 15"):
            agent.predict(wrong)
    assert agent.predict([0, 15])[0].shape == (2,)
    assert agent.predict(np.int64(3))[0].shape == ()


def test_numbers_of_episodes_are_those_of_the_steps_that_are_counted():
    """Episodes of one step, of which each second one only begins: half as many have ended as steps were taken."""
    agent = PPO(probes.Bandit, seed=0, **{**SMALL, "envs": 2, "steps": 8, "checkpoint_every": 3}).learn(16 * 7)
    assert [(row["timesteps"], row["episodes"]) for row in agent.history] == [(16.0 * k, 8.0 * k) for k in range(1, 8)]


class Whole(probes.Probe):
    """Takes whole numbers from −2 to 2 and pays for being near 1."""

    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.int32)

    def step(self, action):
        assert self.action_space.contains(action), action
        return self.see(), -abs(float(action[0]) - 1.0), True, False, {}


def test_box_actions_of_whole_numbers_are_whole(tmp_path):
    agent = PPO(Whole, seed=0, **SMALL).learn(64 * 4)
    agent.save(tmp_path)
    for policy in (agent, PPO.load(tmp_path, Whole), load_policy(tmp_path)):
        action = (
            policy.predict(np.zeros(1, np.float32))[0]
            if isinstance(policy, PPO)
            else policy.act(np.zeros((1, 1)), None, True)[0]
        )
        assert action.dtype == np.int32
        assert agent.environments.action_space.contains(action)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_way_to_start_episodes_teaches_the_same(mode):
    """Steps that only start an episode do not count; what is bootstrapped at a cut is the last observation."""
    vector = SyncVectorEnv([probes.Countdown] * 4, autoreset_mode=mode)
    agent = PPO(vector, seed=1, reward_scale=1.0, gamma=0.5, **{k: v for k, v in SMALL.items() if k != "envs"})
    rollouts, estimates = [], []
    improve = agent._improve
    agent._improve = lambda rollout, found: (rollouts.append(rollout), estimates.append(found), improve(rollout, found))
    agent.learn(64 * 4)
    for rollout, (batch, _, _, targets, _) in zip(rollouts, estimates, strict=True):
        valid = np.asarray(batch.valid) > 0
        assert valid.all() == (mode != AutoresetMode.NEXT_STEP)
        shown = rollout.observations[:-1].argmax(axis=-1)[valid]  # which step of the episode it is, from 0
        np.testing.assert_array_equal(rollout.rewards[valid], shown + 1)
        np.testing.assert_array_equal((np.asarray(batch.running) == 0)[valid], shown == 6)
        assert np.isfinite(np.asarray(targets["value"])).all()
    lengths, scores = {episode.length for episode in agent.recent}, {episode.score for episode in agent.recent}
    assert (lengths, scores) == ({7.0}, {28.0})


@pytest.mark.parametrize("make", [lambda: gymnasium.make("CartPole-v1"), lambda: "CartPole-v1", lambda: probes.Countdown,
                                  lambda: vpac.FiniteMDP.from_gymnasium("vpac/CatchUp-v0")])  # fmt: skip
def test_environments_of_every_kind(make):
    agent = VPACPPO(make(), seed=0, psi=0.1, **SMALL).learn(64)
    assert agent.timesteps == 64


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_numbers_that_are_not_finite_stop_the_run_and_keep_the_checkpoint(what, tmp_path):
    agent = PPO(SerialEnvironments([probes.Breaks(what, 70) for _ in range(SMALL["envs"])], "Breaks"), **SMALL)
    with pytest.raises(NotFinite, match=f"the {what} of environment 0 .* is not finite at step"):
        agent.learn(10_000, checkpoints=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["00000003"]
    assert np.isfinite(agent.policy().weights[0]).all()


class BadEnd(probes.Constant):
    """Its episodes end in a state that is not a number."""

    def see(self):
        return np.array([np.nan if self.t == self.limit else 0.0], np.float32)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_end_of_an_episode_is_looked_at_however_the_next_one_starts(mode):
    vector = SyncVectorEnv([BadEnd] * 4, autoreset_mode=mode)
    agent = PPO(vector, **{k: v for k, v in SMALL.items() if k != "envs"})
    with pytest.raises(NotFinite, match=r"the observation of environment 0 .* is not finite at step 8"):
        agent.learn(64 * 4)


@pytest.mark.parametrize(
    ("reward", "kind", "what"),
    [(1e25, PPO, "policy gradient"), (1e25, VPACPPO, "target of the spread critic"), (1e60, VPACPPO, "scaled reward")],
)
def test_of_a_chain_of_numbers_that_are_not_finite_the_first_is_named(monkeypatch, reward, kind, what):
    """The squares of rewards may be too large for 32 bits, or the rewards themselves."""
    monkeypatch.setattr(probes.Constant, "pay", lambda *_: reward)
    with pytest.raises(NotFinite, match=f"the {what} is not finite"):
        kind(probes.Constant, psi=0.1 if kind is VPACPPO else 0.0, reward_scale=1.0, **SMALL).learn(64 * 4)


def test_a_diverging_policy_keeps_the_networks_it_had(tmp_path):
    agent = PPO("Pendulum-v1", seed=0, learning_rate=1e30, max_grad_norm=None, **SMALL)
    with pytest.raises(NotFinite, match=r"is not finite in the iteration after step \d+ \(seed 0\)"):
        agent.learn(64 * 20, checkpoints=tmp_path)
    assert all(np.isfinite(W).all() for W in agent.policy().weights)


def test_settings_are_checked():
    for settings, words in (
        ({"psy": 1}, "did you mean 'psi'"), ({"gamma": 1.5}, "gamma"), ({"envs": 0}, "envs"), ({"hidden": ()}, "hidden"),
        ({"form": "wrong"}, "form"), ({"preset": "papers"}, "did you mean 'paper'"), ({"steps": 1.5}, "steps"),
        ({"backend": "envpol"}, "did you mean 'envpool'"),
        ({"normalise_observations": 1}, "true or false"), ({"psi": -1}, "psi"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=words):
            PPO("CartPole-v1", **settings)


def test_every_option_is_read():
    """Changing any field changes what is learned, or how it is computed."""
    import ast
    import dataclasses

    from vpac.deep.options import PPOOptions

    source = Path(vpac.__file__).parent / "deep"
    used = {
        node.attr for path in source.glob("*.py") if path.name != "options.py" for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }  # fmt: skip
    assert {field.name for field in dataclasses.fields(PPOOptions)} <= used


def test_discrete_observations_stay_zeros_and_a_one():
    """Normalised, a rare state would be a huge number; and their default rate is a higher one."""
    tables, vectors = (PPO(env, seed=0, **SMALL).learn(128) for env in ("FrozenLake-v1", "CartPole-v1"))
    assert (tables.observation_moments.count, vectors.observation_moments.count > 0) == (0.0, True)
    np.testing.assert_array_equal(tables.policy().normalise(np.eye(16)), np.eye(16))
    rates = [agent.history[0]["learning_rate"] for agent in (tables, vectors)]
    np.testing.assert_allclose(rates, [2.5e-3, 3e-4])
    given = PPO("FrozenLake-v1", seed=0, learning_rate=1e-3, **SMALL).learn(64)
    assert given.history[0]["learning_rate"] == pytest.approx(1e-3)


@pytest.mark.parametrize(("env", "bonus"), [("FrozenLake-v1", 0.1), ("CartPole-v1", 0.01), ("Pendulum-v1", 0.0)])
def test_the_bonus_for_entropy_is_that_of_the_spaces_unless_it_is_given(env, bonus):
    left, same, other = (
        PPO(env, seed=0, entropy=entropy, **SMALL).learn(64).policy().weights[-1] for entropy in (None, bonus, 0.5)
    )
    np.testing.assert_array_equal(left, same)
    assert not np.array_equal(left, other)


def test_scaled_and_raw_prices_agree():
    """ψ on rewards × 0.01 is a hundred times ψ on raw rewards."""
    common = {**SMALL, "reward_scale": 0.01, "seed": 1}
    raw = VPACPPO("Pendulum-v1", psi=0.001, **common).learn(64 * 4)
    scaled = VPACPPO("Pendulum-v1", psi=0.1, psi_units="scaled", **common).learn(64 * 4)
    np.testing.assert_array_equal(raw.policy().weights[0], scaled.policy().weights[0])


def test_a_price_that_nothing_would_read_is_refused():
    with pytest.raises(UserError, match=r"PPO has no price of variance, got psi=0.1: use VPACPPO"):
        PPO("CartPole-v1", psi=0.1)
