"""Exported policies agree with `NumpyPolicy.act`: ONNX in onnxruntime, C with the system's compiler."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from gymnasium import spaces

from cli.test_cli import run
from vpac.deep.deploy import c_header, onnx_bytes
from vpac.deep.policy import NumpyPolicy
from vpac.deep.price import PriceRange
from vpac.deep.spaces import Interface
from vpac.envs import arranged
from vpac.errors import UserError
from vpac.tabular import VPAC

BOX = spaces.Box(-np.inf, np.inf, (5,), np.float32)
BOUNDED = spaces.Box(np.array([[-0.3, -np.inf]], np.float32), np.array([[0.3, np.inf]], np.float32))


def picture(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


def seen_as(mask=0, **parts):
    return spaces.Dict(parts | ({"action_mask": spaces.MultiBinary(mask)} if mask else {}))


SPACES = {
    "box-discrete": (BOX, spaces.Discrete(4, start=2)),
    "box-box": (BOX, BOUNDED),
    "matrix-box": (spaces.Box(-1.0, 1.0, (2, 3), np.float32), spaces.Box(-1.0, 1.0, (), np.float32)),
    "box-whole": (BOX, spaces.Box(0, 9, (3,), np.uint8)),
    "discrete-discrete": (spaces.Discrete(6, start=-1), spaces.Discrete(3)),
    "box-parts": (BOX, spaces.MultiDiscrete([3, 2, 4], start=[5, 0, -1])),
    "box-bits": (BOX, spaces.MultiBinary((2, 2))),
    "masked": (seen_as(vector=BOX, mask=4), spaces.Discrete(4, start=2)),
    "masked-parts": (seen_as(vector=spaces.Discrete(6, start=-1), mask=9), spaces.MultiDiscrete([3, 2, 4])),
    "image": (picture(11, 9, 3), spaces.Discrete(4)),
    "image-first": (picture(2, 9, 9), spaces.Box(-1.0, 1.0, (2,), np.float32)),
    "grey": (spaces.Box(0.0, 1.0, (17, 16), np.float32), spaces.Discrete(3)),
    "frames": (picture(2, 9, 10, 3), spaces.Discrete(3)),
    "frames-first": (picture(2, 3, 9, 10), spaces.Discrete(3)),
    "nature": (picture(40, 40, 1), spaces.MultiBinary(3)),
    "everything": (seen_as(image=picture(10, 9, 2), vector=BOX, mask=9), spaces.MultiDiscrete([3, 2, 4])),
}
WAYS = (("tanh", ""), ("relu", "open"), ("silu", "one"))
KINDS = [(name, *way) for name in ("box-discrete", "box-box", "everything") for way in WAYS]
KINDS += [(name, *WAYS[place % 3]) for place, name in enumerate(SPACES) if name not in {kind[0] for kind in KINDS}]


def policy_of(name: str, activation: str = "tanh", priced: str = "", normalised: bool = True) -> NumpyPolicy:
    """Random weights, moments far from 0 and 1, one hidden layer narrower than what follows."""
    rng = np.random.default_rng(list(name.encode()))
    interface = Interface.of(*SPACES[name], name)
    kernels, strides = kernels_of(interface, rng)
    features = kernels[-1].shape[-1] if kernels else 0
    widths = [features + interface.inputs + bool(priced), 3, 7, interface.actions]
    pairs = list(pairwise(widths))
    weights = [(rng.normal(size=pair) / pair[0] ** 0.5).astype(np.float32) for pair in pairs]
    biases = [(0.3 * rng.normal(size=m)).astype(np.float32) for _, m in pairs]
    log_std = None if interface.discrete_actions else rng.normal(size=interface.actions).astype(np.float32)
    mean, scale = rng.normal(size=interface.inputs) * 3, rng.uniform(0.2, 4.0, interface.inputs)
    if interface.discrete_observations:
        mean, scale = 0.1 * mean, np.ones_like(scale)
    if kernels:
        top, channels = 255.0 if interface.pixels == "uint8" else 1.0, interface.sides[-1]
        mean = np.append(mean, rng.uniform(0.3, 0.7, channels) * top)
        scale = np.append(scale, rng.uniform(2.0, 4.0, channels) / top)
    prices = PriceRange(0.03, 0.6) if priced else None
    made = NumpyPolicy(
        interface, weights, biases, activation, log_std,
        mean.astype(np.float32), scale.astype(np.float32), normalised, 0.99, prices,
        kernels=kernels, kernel_biases=[(0.1 * rng.normal(size=W.shape[3])).astype(np.float32) for W in kernels],
        strides=strides,
    )  # fmt: skip
    return made.at(0.1) if priced == "one" else made


def kernels_of(interface, rng):
    """Random weights for layers like those of the encoders: "nature" has its kernels and strides, others two small ones."""
    if not interface.image:
        return [], ()
    height, width, channels = interface.sides
    layers = ((4, 8, 4), (5, 4, 2), (6, 3, 1)) if height >= 36 else ((4, 3, 1), (5, 3, 2))
    kernels = []
    for filters, side, stride in (*layers, (8, 99, 1)):
        shape = min(side, height), min(side, width), channels, filters
        kernels.append((rng.normal(size=shape) * (2.0 / np.prod(shape[:3])) ** 0.5).astype(np.float32))
        height, width = (height - shape[0]) // stride + 1, (width - shape[1]) // stride + 1
        channels = filters
    return kernels, (*(stride for *_, stride in layers), 1)


def seen_by(policy: NumpyPolicy, count: int = 200):
    """Observations, some of them beyond the bound of normalised ones."""
    rng, interface = np.random.default_rng(1), policy.interface
    vector = (rng.normal(size=(count, interface.inputs)) * rng.choice([1.0, 30.0], (count, 1))).astype(np.float32)
    if interface.first_observation is not None:
        vector = rng.integers(interface.first_observation, interface.first_observation + interface.inputs, count)
    if interface.plain:
        return vector
    found = {"vector": vector} if interface.inputs else {}
    if interface.image:
        image = rng.uniform(0.0, 1.0, (count, *interface.image))
        found["image"] = (255 * image).astype(np.uint8) if interface.pixels == "uint8" else image.astype(np.float32)
    if interface.masked:
        found["action_mask"] = rng.random((count, interface.actions)) < 0.5
        found["action_mask"][:, np.cumsum((0, *interface.choices[:-1]))] = True
    return found


def number_of(observations):
    return len(next(iter(observations.values())) if isinstance(observations, dict) else observations)


def row(observations, i):
    """One of them, still as a batch."""
    if isinstance(observations, dict):
        return {name: part[i : i + 1] for name, part in observations.items()}
    return observations[i : i + 1]


def expected(policy: NumpyPolicy, observations, psi):
    """Outputs and actions of the policy itself, one observation at a time where each has its own price."""
    if psi is None:
        return policy.outputs(policy.view(policy.interface.rows(observations))), policy.act(observations, None)
    each = [expected(policy.at(float(p)), row(observations, i), None) for i, p in enumerate(psi)]
    return tuple(np.concatenate(part) for part in zip(*each, strict=True))


def prices_of(policy: NumpyPolicy, count: int):
    asked = policy.prices is not None and policy.psi is None
    return np.linspace(0.04, 0.5, count).astype(np.float32) if asked else None


def close(found, wanted):
    return np.allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "activation", "priced"), KINDS)
def test_onnx_gives_the_same_actions(name, activation, priced):
    onnxruntime = pytest.importorskip("onnxruntime")
    policy = policy_of(name, activation, priced, normalised=activation != "relu")
    session = onnxruntime.InferenceSession(onnx_bytes(policy), providers=["CPUExecutionProvider"])
    observations = seen_by(policy)
    psi = prices_of(policy, number_of(observations))
    given = observations if isinstance(observations, dict) else {"observation": observations}
    given = given | ({} if psi is None else {"psi": psi})
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True))
    outputs, actions = expected(policy, observations, psi)
    assert close(found["logits" if policy.log_std is None else "mean"], outputs)
    assert found["action"].shape == actions.shape
    assert np.ptp(np.maximum(outputs, -50.0), axis=0).min() > 0.01, "the observation matters"
    assert found["action"].dtype == actions.dtype
    if policy.log_std is None:
        assert (found["action"] == actions).all()
    else:
        assert close(found["action"], actions)
        assert close(found["std"], np.exp(policy.log_std))


MAIN = """
#include <stdio.h>
#include "my-policy.h"
int main(void)
{
    float outputs[MY_POLICY_ACTIONS];
    %s
    while (%s) {
        my_policy_outputs(%s, outputs);
        for (int j = 0; j < MY_POLICY_ACTIONS; j++) printf("%%.9g ", outputs[j]);
        %s
    }
    return 0;
}
"""
READ = "fread({at}, sizeof({of}), {count}, stdin) == {count}"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
@pytest.mark.parametrize(("name", "activation", "priced"), KINDS)
def test_the_c_header_gives_the_same_actions(tmp_path, name, activation, priced):
    policy = policy_of(name, activation, priced, normalised=activation != "relu")
    policy.export(tmp_path / "my-policy.h")
    observations, interface = seen_by(policy), policy.interface
    psi = prices_of(policy, number_of(observations))
    given = dict(observations) if isinstance(observations, dict) else {"vector": observations}
    given |= {} if psi is None else {"psi": psi}
    kinds = {np.dtype(np.int64): "long", np.dtype(np.uint8): "unsigned char", np.dtype(bool): "unsigned char"}
    arguments, declared, read = [], [], []
    for key in [key for key in ("vector", "image", "action_mask", "psi") if key in given]:
        part = given[key].reshape(len(given[key]), -1)
        kind, count = kinds.get(part.dtype, "float"), part.shape[1]
        declared.append(f"{kind} {key}[{count}];")
        read.append(READ.format(at=key, of=kind, count=count))
        alone = key == "psi" or (key == "vector" and interface.discrete_observations)
        arguments.append(f"{key}[0]" if alone else key)
    passed = ", ".join(arguments)
    if interface.choices:
        declared.append("long action[MY_POLICY_PARTS];")
        act = f"my_policy_act({passed}, action);"
        act += ' for (int j = 0; j < MY_POLICY_PARTS; j++) printf("%ld ", action[j]); puts("");'
    elif policy.log_std is None:
        act = f'printf("%ld\\n", my_policy_act({passed}));'
    else:
        act = f"my_policy_act({passed}, outputs);"
        act += ' for (int j = 0; j < MY_POLICY_ACTIONS; j++) printf("%.9g ", outputs[j]); puts("");'
    (tmp_path / "main.c").write_text(MAIN % (" ".join(declared), " && ".join(read), passed, act))
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]
    subprocess.run(["cc", *flags, "-o", "main", "main.c", "-lm"], cwd=tmp_path, check=True)
    order = [given[key] for key in ("vector", "image", "action_mask", "psi") if key in given]
    records = b"".join(part[i].tobytes() for i in range(number_of(observations)) for part in order)
    printed = subprocess.run([tmp_path / "main"], input=records, capture_output=True, check=True).stdout.decode()
    found = np.array([line.split() for line in printed.splitlines()], float)
    outputs, actions = expected(policy, observations, psi)
    assert close(found[:, : interface.actions], outputs)
    assert close(found[:, interface.actions :], actions.reshape(len(actions), -1))


def test_a_table_is_exported_too(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    agent = VPAC("vpac/FourRooms-v0", seed=1).learn(50)
    session = onnxruntime.InferenceSession(agent.export(tmp_path / "rooms.onnx"), providers=["CPUExecutionProvider"])
    states = np.arange(agent.environment.n_features)
    action, logits = session.run(["action", "logits"], {"observation": states})
    assert (action == agent.act(states, np.random.default_rng(0), deterministic=True)).all()
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert close(chances, agent.policy())
    with pytest.raises(UserError, match=r"only a table can be exported, and this learner has tiles"):
        VPAC("vpac/ContinuousPuddleWorld-v0").export(tmp_path / "x.h")


def test_the_command_line_exports_what_was_trained(capsys, tmp_path):
    pytest.importorskip("jax")
    folder = tmp_path / "agent"
    assert (
        run(
            capsys,
            "train",
            "vpac-ppo",
            "CartPole-v1",
            "--psi",
            "0.01",
            "--steps",
            "256",
            "--envs",
            "2",
            "--out",
            folder,
        )[0]
        == 0
    )
    code, out, _ = run(capsys, "export", folder, tmp_path / "cart.h", "--json")
    assert code == 0
    about = json.loads(out)
    assert about["bytes"] == (tmp_path / "cart.h").stat().st_size
    assert "long cart_act(const float *observation)" in (tmp_path / "cart.h").read_text()
    code, out, _ = run(capsys, "export", folder, tmp_path / "cart.onnx")
    assert (code, out) == (0, f"wrote {tmp_path / 'cart.onnx'}, which gives the most likely action\n")
    for wrong, words in (("cart.txt", "ends in .onnx or .h"), ("cart", "ends in .onnx or .h")):
        code, _, error = run(capsys, "export", folder, tmp_path / wrong)
        assert code == 2
        assert words in error
    code, _, error = run(capsys, "export", folder, tmp_path / "x.h", "--psi", "1")
    assert (code, "one price" in error) == (2, True)
    code, _, error = run(capsys, "export", tmp_path, tmp_path / "x.h")
    assert (code, "holds no policy" in error) == (2, True)


def batch(one):
    """An observation as a batch of one."""
    return (
        {key: np.asarray(part)[None] for key, part in one.items()} if isinstance(one, dict) else np.asarray(one)[None]
    )


def trained(name):
    """An agent that learned a little in a world of other tests, and observations of random play there as it takes them."""
    from deep.test_images import Spot
    from deep.test_masks import Forbidding, Lights
    from vpac.deep import VPACPPO

    make = {
        "masks": lambda: Forbidding("dict"),
        "parts": Lights,
        "image": Spot,
        "image and vector": lambda: Spot(beside=True),
    }[name]
    small = {"envs": 2, "steps": 16, "epochs": 1, "minibatch": 16, "hidden": (8,), "learning_rate": 0.01}
    agent, env = VPACPPO(make, psi=0.1, **small).learn(64), arranged(make())
    found = [env.reset(seed=1)[0]]
    while len(found) < 20:
        mask = found[-1]["action_mask"].astype(np.int8) if agent.interface.masked else None
        seen, _, over, cut, _ = env.step(env.action_space.sample(mask))
        found.append(env.reset()[0] if over or cut else seen)
    return agent, found


@pytest.mark.parametrize("name", ["masks", "parts", "image", "image and vector"])
def test_what_was_learned_acts_in_onnx_as_predict_does(tmp_path, name):
    pytest.importorskip("jax")
    onnxruntime = pytest.importorskip("onnxruntime")
    agent, seen = trained(name)
    policy = agent.policy()
    session = onnxruntime.InferenceSession(policy.export(tmp_path / "p.onnx"), providers=["CPUExecutionProvider"])
    kinds = {i.name: {"tensor(float)": np.float32}.get(i.type) for i in session.get_inputs()}
    for one in seen:
        parts = one if isinstance(one, dict) else {next(iter(kinds)): one}
        given = {key: np.asarray(part, kinds[key])[None] for key, part in parts.items()}
        action, logits = session.run(["action", "logits"], given)
        wanted, _ = agent.predict(one, deterministic=True)
        assert (action[0] == wanted).all()
        assert close(logits, policy.outputs(policy.view(policy.interface.rows(batch(one)))))


def test_without_onnx_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"pip install 'vpac\[export\]'"):
        onnx_bytes(policy_of("box-discrete"))


def test_a_header_names_its_functions_after_its_file():
    assert "static inline long policy_3_act(" in c_header(policy_of("box-discrete"), "3")
    assert "gamma: 0.99" in c_header(replace(policy_of("box-discrete"), memory=None), "p")
