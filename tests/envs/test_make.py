"""Environments by id, import path, class, specification and object; wrappers by import path; flattening."""

from __future__ import annotations

import json
import sys
import textwrap

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

from vpac import AC, VPAC
from vpac.envs import CatchUp, RewardNoise, make_env, spec_of
from vpac.errors import UserError
from vpac.files import sealed
from vpac.tabular import learn_many

MODULE = """
import gymnasium, numpy as np
from gymnasium import spaces

class Parts(gymnasium.Env):
    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict({
        "kind": spaces.Discrete(3),
        "inner": spaces.Dict({
            "x": spaces.Box(0, 1, (2,), np.float32),
            "pair": spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,)))),
        }),
    })

    def __init__(self, length=4, bonus=0.0):
        self.length, self.bonus = length, bonus

    def look(self):
        draw = self.np_random
        pair = (int(draw.integers(2)), draw.uniform(-1, 1, 1).astype(np.float32))
        return {"kind": int(draw.integers(3)), "inner": {"x": draw.random(2, np.float32), "pair": pair}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.look(), {}

    def step(self, action):
        self.steps += 1
        return self.look(), float(action) + self.bonus, self.steps >= self.length, False, {}

class Double(gymnasium.Wrapper):
    def __init__(self, env, by=2.0):
        super().__init__(env)
        self.by = by

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return (observation, self.by * reward, *rest)

def small(length=2):
    return Double(Parts(length))

def nothing():
    return 3

gymnasium.register("OurParts-v0", "ours_for_tests:Parts", max_episode_steps=3)
"""


@pytest.fixture(autouse=True)
def ours(tmp_path, monkeypatch):
    (tmp_path / "ours_for_tests.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "broken_for_tests.py").write_text("import does_not_exist_at_all\n")
    (tmp_path / "crash_for_tests.py").write_text("1 / 0\n")
    (tmp_path / "later_for_tests.py").write_text("def register_all():\n    pass\ndef made():\n    1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    gymnasium.registry.pop("OurParts-v0", None)
    sys.modules.pop("ours_for_tests", None)


@pytest.mark.parametrize("name", ["ours_for_tests:OurParts-v0", "ours_for_tests:Parts", "ours_for_tests:small"])
def test_import_paths(name):
    env = make_env(name, length=3)
    assert env.unwrapped.length == 3
    assert type(env.unwrapped).__name__ == "Parts"
    env.reset(seed=0)
    assert env.step(1)[1] == (2.0 if name.endswith("small") else 1.0)
    again = gymnasium.make(env.spec)
    assert again.unwrapped.length == 3
    assert str(again) == str(env)


def test_classes_factories_specifications_and_objects():
    assert make_env(CatchUp, lucky=3).unwrapped.mdp.transition[0, 0, 3] == 0.5
    assert make_env(lambda: CatchUp(lucky=3)).unwrapped.mdp.transition[0, 0, 3] == 0.5
    assert make_env(gymnasium.spec("vpac/CatchUp-v0"), lucky=3).unwrapped.mdp.transition[0, 0, 3] == 0.5
    env = CatchUp()
    assert make_env(env) is env
    with pytest.raises(UserError, match="is made already and takes no argument 'lucky'"):
        make_env(env, lucky=3)


def test_a_step_limit_goes_with_any_of_them():
    for name in ("ours_for_tests:Parts", "ours_for_tests:OurParts-v0"):
        env = make_env(name, length=50, max_episode_steps=7)
        env.reset(seed=0)
        flags = [env.step(0)[3] for _ in range(7)]
        assert flags == [False] * 6 + [True]
        assert env.spec.max_episode_steps == 7
    with pytest.raises(UserError, match="max_episode_steps must be a whole number from 1 up, got 0"):
        make_env("CartPole-v1", max_episode_steps=0)


def test_dictionaries_and_tuples_are_flattened():
    env = make_env("ours_for_tests:Parts")
    assert isinstance(env, FlattenObservation)
    assert env.observation_space.shape == (3 + 2 + 2 + 1,)
    flat, nested = env.reset(seed=5)[0], env.env.reset(seed=5)[0]
    assert flat in env.observation_space
    assert sorted(flat) == sorted([*np.eye(3)[nested["kind"]], *nested["inner"]["x"], *np.eye(2)[nested["inner"]["pair"][0]],
                                   *nested["inner"]["pair"][1]])  # fmt: skip
    learner = AC("ours_for_tests:Parts", seed=0, tilings=2, tiles=2).learn(3)
    assert learner.predict(flat)[0] in (0, 1)


class Seen(gymnasium.Env):
    """An environment with a given observation space."""

    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2)


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.MultiDiscrete([2, 3]), 5),
        (spaces.MultiBinary(4), 4),
        (spaces.Box(-1, 1, (2, 3)), 6),
        (spaces.Box(0, 1, (15, 40)), 600),
        (spaces.Box(-np.inf, np.inf, (30, 20)), 600),
        (spaces.Box(np.zeros((20, 20)), np.arange(1.0, 401.0).reshape(20, 20), dtype=np.float64), 400),
        (spaces.Box(-np.inf, np.inf, (60, 5, 3)), 900),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2, start=1))), 4),
    ],
)
def test_what_becomes_a_vector(space, size):
    env = make_env(Seen(space))
    assert env.observation_space.shape == (size,)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(0, 255, (84, 84), np.uint8), "the observation is an image"),
        (spaces.Box(0, 1, (84, 84)), "the observation is an image .* if it is no image, give its numbers as a vector"),
        (spaces.Box(-1, 1, (16, 16, 2), np.float64), "the observation is an image"),
        (spaces.Box(0, 255, (4, 84, 84), np.int32), "the observation is an image"),
        (spaces.Box(-np.inf, np.inf, (32, 32, 3)), "the observation is an image"),
        (spaces.Dict(eye=spaces.Box(0, 1, (3, 64, 64))), r"observation \['eye'\] is an image .* numbers that matter"),
        (spaces.Tuple((spaces.Text(5),)), r"observation \[0\] is text .Text., which no network here reads: remove it"),
        (None, "observation_space is None: set self.observation_space in __init__"),
    ],
)
def test_what_is_refused(space, message):
    with pytest.raises(UserError, match=message):
        make_env(Seen(space))


def test_wrappers_the_innermost_first():
    env = make_env(
        "ours_for_tests:Parts",
        ["ours_for_tests:Double", ("ours_for_tests:Double", {"by": 5.0}), ("RewardNoise", {"std": 0})],
    )
    assert str(env).startswith("<Flattened<RewardNoise<Double<Double<")
    assert env.env.env.by == 5.0
    env.reset(seed=0)
    assert env.step(1)[1] == 10.0
    assert isinstance(make_env(CatchUp(), [("RewardNoise", {"std": 1.0})]), RewardNoise)


def test_every_run_makes_its_own_with_wrappers_that_record_nothing():
    spec = spec_of("ours_for_tests:Parts", [("ours_for_tests:Double", {"by": 3.0})], length=3)
    one = learn_many(VPAC, spec, [0, 1, 2], 4, threads=1, psi=0.1, tilings=2)
    three = learn_many(VPAC, spec, [0, 1, 2], 4, threads=3, psi=0.1, tilings=2)
    assert len({id(learner.environment.env) for learner in three}) == 3
    for a, b in zip(one, three, strict=True):
        assert np.array_equal(a.weights.theta, b.weights.theta)
    assert all(np.max(learner.returns) > 3.0 for learner in one)


def test_a_file_does_not_say_what_is_imported(tmp_path, monkeypatch):
    AC("ours_for_tests:Parts", seed=0, tilings=2).learn(2).save(tmp_path / "agent")
    assert AC.load(tmp_path / "agent").episodes == 2  # this process' user has named it
    monkeypatch.setattr("vpac.envs.make.NAMED_BY_USER", set())
    with pytest.raises(
        UserError, match=r"by an import path, 'ours_for_tests:Parts', .* AC.load\(.*'ours_for_tests:Parts'\)"
    ):
        AC.load(tmp_path / "agent")
    assert AC.load(tmp_path / "agent", "ours_for_tests:Parts").episodes == 2


def test_a_file_that_names_a_module_does_not_get_it_imported(tmp_path):
    AC("FrozenLake-v1", seed=0).learn(2).save(tmp_path / "agent")
    note = json.loads((tmp_path / "agent" / "agent.json").read_text())
    del note["checksum"]
    (tmp_path / "agent" / "agent.json").write_text(sealed(note | {"env": "crash_for_tests:X"}))
    with pytest.raises(UserError, match=r"by an import path, 'crash_for_tests:X', and files do not"):
        AC.load(tmp_path / "agent")


def test_a_flattened_environment_with_an_id_is_found_again(tmp_path):
    AC("Blackjack-v1", seed=0, tilings=2).learn(2).save(tmp_path / "agent")
    assert AC.load(tmp_path / "agent").environment.recipe.arguments == {"natural": False, "sab": True}


@pytest.mark.parametrize(
    ("name", "wrap", "arguments", "message"),
    [
        ("ours_for_tests:Prts", (), {}, "ours_for_tests has no environment 'Prts', .*; did you mean 'Parts'"),
        ("ours_for_tests:OurParts-v3", (), {}, "did you mean 'OurParts-v0'"),
        ("ours_for_tests:zzz", (), {}, "it has OurParts-v0, Parts"),
        ("later_for_tests:X-v0", (), {}, r"if later_for_tests.register_all\(\) registers it.*name it mine:X-v0"),
        ("later_for_tests:made", (), {}, "ZeroDivisionError: division by zero .*later_for_tests.py, line 4"),
        ("no_such_module:X", (), {}, "there is no module 'no_such_module' where Python looks"),
        ("broken_for_tests:X", (), {}, "it needs 'does_not_exist_at_all', which is not installed"),
        ("crash_for_tests:X", (), {}, "cannot import 'crash_for_tests' of 'crash_for_tests:X': ZeroDivisionError"),
        ("ours_for_tests:nothing", (), {}, "ours_for_tests:nothing cannot be made .TypeError: The environment must inherit"),
        ("ours_for_tests:Parts", (), {"lenth": 3}, "ours_for_tests:Parts has no argument 'lenth'; did you mean 'length'"),
        ("ours_for_tests:Parts", ["RewardNose"], {}, "unknown wrapper 'RewardNose': .*; did you mean 'RewardNoise'"),
        ("ours_for_tests:Parts", ["ours_for_tests:Duble"], {}, "no wrapper 'Duble'; did you mean 'Double'"),
        ("ours_for_tests:Parts", [("ours_for_tests:Double", {"bye": 1})], {}, "no argument 'bye'; did you mean 'by'"),
        ("ours_for_tests:Parts", [("RewardNoise", {"std": -1})], {}, "wrapper RewardNoise: std must be"),
        ("ours_for_tests:Parts", ["RewardNoise"], {}, "RewardNoise cannot be put around .*missing 1 required"),
        ("ours_for_tests:Parts", ["builtins:repr"], {}, "wrapper repr made a str: expected an environment"),
        (3, (), {}, "expected a Gymnasium environment, its id, its class or an import path, got int"),
    ],
)  # fmt: skip
def test_mistakes_are_named(name, wrap, arguments, message):
    with pytest.raises(UserError, match=message):
        make_env(name, wrap, **arguments)
