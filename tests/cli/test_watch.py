from __future__ import annotations

import json
import subprocess
import sys
import types

import gymnasium
import numpy as np
import pytest
from PIL import Image

from cli.test_cli import run
from vpac.deep.policy import NumpyPolicy
from vpac.deep.spaces import Interface
from vpac.envs.tables import make_env
from vpac.evaluation.play import seeds_from
from vpac.lab.report.video import pace
from vpac.lab.store.run import Run
from vpac.lab.store.store import Result, Store
from vpac.saved import write_agent
from vpac.tabular import VPAC


def policy_for(env: str) -> NumpyPolicy:
    """A policy that does nothing in particular, of the right size."""
    made = make_env(env)
    interface = Interface.of(made.observation_space, made.action_space, env)
    weights = [np.zeros((interface.inputs, interface.actions), np.float32)]
    biases = [np.linspace(1.0, 0.0, interface.actions, dtype=np.float32)]
    log_std = None if interface.discrete_actions else np.full(interface.actions, -1.0, np.float32)
    zeros = np.zeros(interface.inputs, np.float32)
    return NumpyPolicy(interface, weights, biases, "tanh", log_std, zeros, zeros + 1.0, True, 0.99)


def trained(folder, env, **arguments):
    """A folder as `vpac train` writes it, made without JAX."""
    policy_for(env).save(folder)
    empty = {"options": {}, "counters": {}, "generators": {}, "history": {}, "recent": []}
    about = {"format": 1, "algorithm": "VPACPPO", "env": env, "arguments": arguments, "seed": 0, **empty}
    return write_agent(folder, about, {})


def frames(path):
    with Image.open(path) as film:
        return film.n_frames, film.size


def test_a_learner_that_remembers_is_shown_its_memory_whatever_is_around_the_environment(capsys, tmp_path):
    agent = VPAC("vpac/CatchUp-v0", gamma=0.95, remember="return")
    agent.weights.theta[:, 1] = 50.0  # it runs, and would wait if states without memory were taken for its own
    agent.weights.theta[:11, 2] = 99.0
    agent.save(tmp_path / "run-0")
    for wrap in ([], ["--wrap", "none"]):
        command = ("watch", tmp_path, "--out", tmp_path / "a.gif", "--json", *wrap)
        code, text, _ = run(capsys, *command)
        assert code == 0
        assert [e["ended"] for e in json.loads(text)["episodes"]] == ["terminated"]


def test_a_tabular_learner_is_filmed(capsys, tmp_path):
    VPAC("vpac/FourRooms-v0", seed=0).save(tmp_path / "fr" / "run-0")
    out = tmp_path / "rooms.gif"
    command = ("watch", tmp_path / "fr", "--set", "max_episode_steps=15", "--out", out, "--episodes", 2, "--json")
    code, text, _ = run(capsys, *command)
    found = json.loads(text)
    assert code == 0
    assert [e["steps"] for e in found["episodes"]] == [15, 15]
    assert {e["ended"] for e in found["episodes"]} == {"truncated"}
    assert found["frames"] == 2 * 16 == frames(out)[0]
    first = out.read_bytes()
    run(capsys, *command)
    assert out.read_bytes() == first
    run(capsys, *command, "--seed", 1)
    assert out.read_bytes() != first


def test_the_greedy_policy_is_the_most_preferred_action(capsys, tmp_path):
    learner = VPAC("vpac/CatchUp-v0", seed=0)
    learner.weights.theta[...] = [2.0, 0.0, 0.0]
    learner.save(tmp_path / "one")
    command = ("watch", tmp_path / "one", "--out", tmp_path / "x.gif", "--json", "--episodes", 8)
    env = gymnasium.make("vpac/CatchUp-v0")
    expected = []
    for seed in seeds_from(np.random.SeedSequence(0).spawn(2)[1], 8).tolist():
        env.reset(seed=seed)
        score, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(0)
            score, over = score + reward, terminated or truncated
        expected.append(score)
    found = json.loads(run(capsys, *command, "--deterministic")[1])
    assert [e["score"] for e in found["episodes"]] == expected
    drawn = json.loads(run(capsys, *command)[1])
    assert [e["score"] for e in drawn["episodes"]] != expected


def test_a_deep_policy_is_filmed_without_jax(tmp_path):
    trained(tmp_path / "deep", "vpac/CatchUp-v0")
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "from vpac.cli import main\n"
        f"sys.exit(main(['watch', {str(tmp_path / 'deep')!r}, '--out', {str(tmp_path / 'd.gif')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert frames(tmp_path / "d.gif")[0] > 1


def test_a_stored_run_is_found_by_its_name_or_its_folder(capsys, tmp_path):
    policy = policy_for("vpac/CatchUp-v0")
    task = {
        "kind": "deep",
        "env": "vpac/CatchUp-v0",
        "env_settings": {},
        "algorithm": "ppo",
        "settings": {"preset": "paper"},
    }
    arrays = {"weight.0": policy.weights[0], "bias.0": policy.biases[0], "mean": policy.mean, "scale": policy.scale}
    stored, store = Run(task, 0, 1), Store(tmp_path / "store")
    store.write(stored, Result({"timesteps": [1.0]}, arrays, {}), {})
    code, *_ = run(capsys, "watch", stored.name, "--store", store.root, "--deterministic")
    assert code == 0
    assert frames(store.root / "videos" / f"{stored.name}.gif")[0] > 1
    code, *_ = run(capsys, "watch", store.root / "runs" / stored.name, "--out", tmp_path / "b.gif")
    assert code == 0
    code, _, error = run(capsys, "watch", stored.name[:-2], "--store", store.root)
    assert code == 2
    assert f"did you mean {stored.name!r}" in error


def test_a_stored_tabular_run(capsys, tmp_path):
    task = {
        "kind": "training", "env": "vpac/CatchUp-v0", "env_settings": {}, "algorithm": "vpac", "settings": {"gamma": 0.9},
    }  # fmt: skip
    theta = VPAC("vpac/CatchUp-v0").weights.theta
    store = Store(tmp_path / "store")
    for number, array in enumerate((theta, theta[:-1])):
        store.write(Run(task, number, 1), Result({"episode": [1.0]}, {"theta": np.array(array)}, {}), {})
    assert run(capsys, "watch", Run(task, 0, 1).name, "--store", store.root)[0] == 0
    code, _, error = run(capsys, "watch", Run(task, 1, 1).name, "--store", store.root)
    assert code == 2
    assert "this one has" in error


def test_cart_pole(capsys, tmp_path):
    out = tmp_path / "pole.gif"
    code, _, error = run(capsys, "watch", trained(tmp_path / "p", "CartPole-v1"), "--out", out)
    try:
        import pygame  # noqa: F401
    except ModuleNotFoundError:
        assert code == 2
        assert "pip install 'vpac[video]'" in error
        pytest.skip("CartPole is drawn by pygame, which is not installed")
    assert code == 0
    assert frames(out)[0] > 1


def test_mujoco_without_a_display(capsys, tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "x")  # so that what the verb chooses is forgotten afterwards
    monkeypatch.delenv("MUJOCO_GL")
    folder = trained(tmp_path / "hopper", "Hopper-v5", reset_noise_scale=0.0)
    code, text, error = run(
        capsys, "watch", folder, "--out", tmp_path / "h.gif", "--set", "max_episode_steps=12", "--json"
    )
    if "cannot" in error:
        pytest.skip(error)
    assert code == 0
    assert json.loads(text)["frames"] == 4  # 125 steps a second: every fourth is shown
    assert frames(tmp_path / "h.gif")[1] == (400, 418)


def test_without_any_way_to_draw_mujoco_it_says_what_to_install(capsys, tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    for name in ("DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    code, _, error = run(capsys, "watch", trained(tmp_path / "h", "Hopper-v5"), "--out", tmp_path / "h.gif")
    assert code == 2
    assert "apt install libegl1" in error
    assert "libosmesa6" in error


def test_mp4_gets_every_frame_or_says_what_is_missing(capsys, tmp_path, monkeypatch):
    command = ("watch", trained(tmp_path / "d", "vpac/CatchUp-v0"), "--out", tmp_path / "d.mp4", "--json")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    code, _, error = run(capsys, *command)
    assert code == 2
    assert "pip install 'vpac[video]'" in error
    sizes: list[int] = []

    def write_frames(path, size, **options):
        with open(path, "wb") as file:
            while True:
                frame = yield
                sizes.append(len(frame))
                assert len(frame) == size[0] * size[1] * 3
                assert size[0] % 2 == size[1] % 2 == 0
                file.write(b"x")

    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", types.SimpleNamespace(write_frames=write_frames))
    code, text, _ = run(capsys, *command)
    assert code == 0
    assert json.loads(text)["frames"] == len(sizes) > 1


def test_a_real_mp4(capsys, tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    out = tmp_path / "d.mp4"
    code, text, _ = run(capsys, "watch", trained(tmp_path / "d", "vpac/CatchUp-v0"), "--out", out, "--json")
    assert code == 0
    assert ffmpeg.count_frames_and_secs(str(out))[0] == json.loads(text)["frames"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "x.avi"), "ending in .gif or .mp4"),
        (("--env", "vpac/FourRooms-v0"), "this policy takes"),
        (("--env", "vpac/CachUp-v0"), "did you mean"),
        (("--episodes", 0), "from 1 up"),
        (("--set", "wind=1"), "no argument 'wind'"),
    ],
)
def test_mistakes_are_named(capsys, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, _, error = run(capsys, "watch", trained(tmp_path / "d", "vpac/CatchUp-v0"), *words)
    assert code == 2
    assert said in error


def test_a_folder_without_a_policy(capsys, tmp_path):
    code, _, error = run(capsys, "watch", tmp_path)
    assert code == 2
    assert "holds no policy" in error


def test_films_run_in_real_time():
    assert pace(8.0, ".gif") == (1, 8.0)
    assert pace(125.0, ".gif") == (4, 31.25)
    assert pace(125.0, ".mp4") == (3, 125.0 / 3.0)
