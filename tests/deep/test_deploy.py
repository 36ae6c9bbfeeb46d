"""Exported policies give what `NumpyPolicy.act` gives: ONNX by onnxruntime, C by the system's compiler."""

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
from vpac.errors import UserError
from vpac.tabular import VPAC

BOX = spaces.Box(-np.inf, np.inf, (5,), np.float32)
BOUNDED = spaces.Box(np.array([[-0.3, -np.inf]], np.float32), np.array([[0.3, np.inf]], np.float32))
SPACES = {
    "box-discrete": (BOX, spaces.Discrete(4, start=2)),
    "box-box": (BOX, BOUNDED),
    "matrix-box": (spaces.Box(-1.0, 1.0, (2, 3), np.float32), spaces.Box(-1.0, 1.0, (), np.float32)),
    "box-whole": (BOX, spaces.Box(0, 9, (3,), np.uint8)),
    "discrete-discrete": (spaces.Discrete(6, start=-1), spaces.Discrete(3)),
}
KINDS = [
    (name, activation, priced)
    for name in SPACES
    for activation, priced in (("tanh", ""), ("relu", "open"), ("silu", "one"))
]


def policy_of(name: str, activation: str = "tanh", priced: str = "", normalised: bool = True) -> NumpyPolicy:
    """Random weights, moments far from 0 and 1, one hidden layer narrower than what follows."""
    rng = np.random.default_rng(list(name.encode()))
    interface = Interface.of(*SPACES[name], name)
    widths = [interface.inputs + bool(priced), 3, 7, interface.actions]
    pairs = list(pairwise(widths))
    weights = [(rng.normal(size=pair) / pair[0] ** 0.5).astype(np.float32) for pair in pairs]
    biases = [(0.3 * rng.normal(size=m)).astype(np.float32) for _, m in pairs]
    log_std = None if interface.discrete_actions else rng.normal(size=interface.actions).astype(np.float32)
    mean, scale = rng.normal(size=interface.inputs) * 3, rng.uniform(0.2, 4.0, interface.inputs)
    if interface.discrete_observations:
        mean, scale = 0.1 * mean, np.ones_like(scale)
    prices = PriceRange(0.03, 0.6) if priced else None
    made = NumpyPolicy(
        interface, weights, biases, activation, log_std,
        mean.astype(np.float32), scale.astype(np.float32), normalised, 0.99, prices,
    )  # fmt: skip
    return made.at(0.1) if priced == "one" else made


def seen_by(policy: NumpyPolicy, count: int = 200):
    """Observations, some of them beyond the bound of normalised ones."""
    rng, interface = np.random.default_rng(1), policy.interface
    if interface.first_observation is not None:
        return rng.integers(interface.first_observation, interface.first_observation + interface.inputs, count)
    return (rng.normal(size=(count, interface.inputs)) * rng.choice([1.0, 30.0], (count, 1))).astype(np.float32)


def expected(policy: NumpyPolicy, observations, psi):
    """Outputs and actions of the policy itself, one observation at a time where each has its own price."""
    if psi is None:
        return policy.outputs(policy.view(policy.interface.rows(observations))), policy.act(observations, None)
    each = [expected(policy.at(float(p)), observations[i : i + 1], None) for i, p in enumerate(psi)]
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
    psi = prices_of(policy, len(observations))
    given = {"observation": observations} | ({} if psi is None else {"psi": psi})
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True))
    outputs, actions = expected(policy, observations, psi)
    assert close(found["logits" if policy.log_std is None else "mean"], outputs)
    assert found["action"].shape == actions.shape
    assert np.ptp(outputs, axis=0).min() > 0.01, "the observation matters"
    if policy.log_std is None:
        assert (found["action"] == actions).all()
    else:
        assert found["action"].dtype == actions.dtype
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
        my_policy_outputs(o%s, outputs);
        for (int j = 0; j < MY_POLICY_ACTIONS; j++) printf("%%.9g ", outputs[j]);
%s
    }
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
@pytest.mark.parametrize(("name", "activation", "priced"), KINDS)
def test_the_c_header_gives_the_same_actions(tmp_path, name, activation, priced):
    policy = policy_of(name, activation, priced, normalised=activation != "relu")
    policy.export(tmp_path / "my-policy.h")
    observations = seen_by(policy)
    psi = prices_of(policy, len(observations))
    discrete, extra = policy.interface.discrete_observations, "" if psi is None else ", psi"
    declared = "long o; float psi;" if discrete else "float o[MY_POLICY_INPUTS], psi;"
    read = (
        'scanf("%ld", &o) == 1'
        if discrete
        else "".join(f'scanf("%f", o + {i}) == 1 && ' for i in range(policy.interface.inputs))
    )
    read = (read if discrete else read[:-4]) + ' && scanf("%f", &psi) == 1'
    if policy.log_std is None:
        act = f'printf("%ld\\n", my_policy_act(o{extra}));'
    else:
        act = f"my_policy_act(o{extra}, outputs);"
        act += ' for (int j = 0; j < MY_POLICY_ACTIONS; j++) printf("%.9g ", outputs[j]); puts("");'
    (tmp_path / "main.c").write_text(MAIN % (declared, read, extra, act))
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]
    subprocess.run(["cc", *flags, "-o", "main", "main.c", "-lm"], cwd=tmp_path, check=True)
    prices = np.zeros(len(observations)) if psi is None else psi
    rows = [
        " ".join(map(repr, [*np.atleast_1d(o).tolist(), float(p)])) for o, p in zip(observations, prices, strict=True)
    ]
    printed = subprocess.run(
        [tmp_path / "main"], input="\n".join(rows), capture_output=True, text=True, check=True
    ).stdout
    found = np.array([line.split() for line in printed.splitlines()], float)
    outputs, actions = expected(policy, observations, psi)
    assert close(found[:, : policy.interface.actions], outputs)
    assert close(found[:, policy.interface.actions :], actions.reshape(len(actions), -1))


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
    assert (code, out) == (0, f"wrote {tmp_path / 'cart.onnx'}\n")
    for wrong, words in (("cart.txt", "ends in .onnx or .h"), ("cart", "ends in .onnx or .h")):
        code, _, error = run(capsys, "export", folder, tmp_path / wrong)
        assert code == 2
        assert words in error
    code, _, error = run(capsys, "export", folder, tmp_path / "x.h", "--psi", "1")
    assert (code, "one price" in error) == (2, True)
    code, _, error = run(capsys, "export", tmp_path, tmp_path / "x.h")
    assert (code, "holds no policy" in error) == (2, True)


def test_without_onnx_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"pip install 'vpac\[export\]'"):
        onnx_bytes(policy_of("box-discrete"))


def test_a_header_names_its_functions_after_its_file():
    assert "static inline long policy_3_act(" in c_header(policy_of("box-discrete"), "3")
    assert "gamma: 0.99" in c_header(replace(policy_of("box-discrete"), memory=None), "p")


def test_what_cannot_be_exported_yet_is_said_in_words(tmp_path):
    policy = policy_of("box-discrete")
    for change in ({"masked": True}, {"image": (8, 8, 1)}):
        other = replace(policy, interface=replace(policy.interface, **change))
        with pytest.raises(UserError, match="without images and masks, can be exported"):
            other.export(tmp_path / "policy.h")
    assert not list(tmp_path.iterdir())
