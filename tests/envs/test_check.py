"""The check of environments: one mistake at a time, each with its own message."""

from __future__ import annotations

import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vpac
from vpac.envs import check_env, look_over, make_env
from vpac.errors import UserError


class Right(gymnasium.Env):
    """An environment that does everything right; tests put in what is wrong."""

    def __init__(self, seen=None, acts=None, **wrong):
        self.observation_space = spaces.Box(0, 1, (2,), np.float64) if seen is None else seen
        self.action_space = spaces.Discrete(2) if acts is None else acts
        self.wrong, self.steps = wrong, 0

    def look(self):
        shown = np.array([min(self.steps / 10, 1.0), self.np_random.random()])
        return self.wrong.get("observation", shown)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.wrong["reset"] if "reset" in self.wrong else (self.look(), {})

    def step(self, action):
        self.steps += 1
        answer = [self.look(), 1.0, self.steps >= 10, False, {}]
        for place, name in enumerate(("later", "reward", "terminated", "truncated", "info")):
            answer[place] = self.wrong.get(name, answer[place])
        return tuple(answer[: self.wrong.get("parts", 5)])


class Unseeded(Right):
    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.random.default_rng().random(2), {}


class SeededStartOnly(Right):
    def step(self, action):
        return np.random.default_rng().random(2), *super().step(action)[1:]


class Forgetful(Right):
    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed)
        self.resets = self.steps = getattr(self, "resets", 0) + 1
        return answer


class Old(Right):
    def reset(self):
        return np.zeros(2)


class Crashing(Right):
    def step(self, action):
        return 1 / 0


class OneBuffer(Right):
    def look(self):
        self.buffer = getattr(self, "buffer", np.zeros(2))
        self.buffer[:] = super().look()
        return self.buffer


BOX = spaces.Box(0, 1, (2,), np.float64)
DICT = spaces.Dict(a=spaces.Discrete(2), b=BOX)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (object(), r"it is a builtins.object: derive its class from gymnasium.Env"),
        (Right(acts=spaces.Tuple((spaces.Discrete(2),))), "use MultiDiscrete for several choices at once"),
        (Right(acts=spaces.Box(-1, 1, (0,))), "without a number"),
        (Right(acts=spaces.Box(1, 1, (1,))), "every lower bound must be below its upper bound"),
        (Right(acts=7), "action_space is 7: set self.action_space in __init__"),
        (Right(seen=spaces.Tuple((spaces.Box(0, 255, (32, 32, 3), np.uint8),) * 2)), r"observation \[1\] is a second image"),
        (Old(), r"reset takes no seed and no options: write def reset\(self, \*, seed=None, options=None\)"),
        (Right(reset=np.zeros(2)), "reset returned array.*: return two things, observation and a dictionary"),
        (Right(reset=(np.zeros(2), None)), "reset returned a tuple of 2: return two things"),
        (Right(parts=4), "step returned four things, as the old gym did: return five"),
        (Right(parts=3), "step returned a tuple of 3"),
        (Right(reward=None), "the reward None: return a number, on every path through step"),
        (Right(reward="1"), "the reward '1': return a number"),
        (Right(reward=np.ones(1)), r"an array: return a number, for example float\(reward\[0\]\)"),
        (Right(reward=float("nan")), "the reward nan: return a finite number"),
        (Right(reward=float("inf")), "the reward inf: return a finite number"),
        (Right(terminated=2), "terminated = 2: return True or False"),
        (Right(terminated=0.0), r"terminated = 0.0: return True or False"),
        (Right(truncated=None), "truncated = None: return True or False"),
        (Right(info=None), "the info None: return a dictionary"),
        (Right(observation=np.zeros(3)), r"reset returned an array of shape \[3\], observation_space has \[2\]"),
        (Right(observation=[0.0, 0.0]), "reset returned .0.0, 0.0. .list.: return an array"),
        (Right(observation=np.array(["a", "b"])), "an array of <U1: return numbers"),
        (Right(observation=np.array([0.0, np.nan])), "reset returned nan at place 1: every observation must be finite"),
        (Right(later=np.array([0.0, 2.0])), "step returned 2 at place 1, outside its bounds 0 to 1: widen"),
        (Right(seen=spaces.Discrete(3), observation=3), r"returned 3, outside Discrete\(3\): expected 0 to 2"),
        (Right(seen=spaces.Discrete(3), observation=1.0), "return a whole number"),
        (Right(seen=spaces.MultiDiscrete([2, 3]), observation=np.array([1, 3])), "3 at place 1, outside its bounds 0 to 2"),
        (Right(seen=DICT, observation={"a": 1}), r"return a dictionary with the keys of the space, \['a', 'b'\]"),
        (Right(seen=DICT, observation={"a": 1, "b": np.ones(3)}), r"observation\['b'\], returned an array of shape \[3\]"),
        (Right(seen=spaces.Tuple((BOX,)), observation=(1, 2)), "return a tuple of 1 like observation_space"),
        (Right(terminated=False), "no episode ended within 2000 random steps, and there is no step limit"),
        (Unseeded(), "reset ignores its seed.*--wrap SeedGlobals"),
        (SeededStartOnly(), "step 1 differs though seed and actions were the same: draw everything random from"),
        (Forgetful(), "let reset set every attribute that step changes"),
        (Crashing(), "step with action .* raised ZeroDivisionError: division by zero .*test_check.py, line"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_word(env, message):
    with pytest.raises(UserError, match=message):
        check_env(env, steps=2000)


def test_what_is_right_passes():
    found = check_env(Right())
    assert (found.errors, found.remarks, found.lengths) == ([], [], [10] * 20)
    assert check_env(Right(acts=spaces.Box(-1, 1, (3,))), seed=4).steps == 200
    assert check_env(Right(acts=spaces.Discrete(2, start=5))).errors == []


@pytest.mark.parametrize(
    "name",
    ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1", "CliffWalking-v1", "vpac/FourRooms-v0",
     "vpac/ContinuousPuddleWorld-v0", "vpac.envs:CatchUp"],
)  # fmt: skip
def test_known_environments_pass(name):
    assert check_env(make_env(name)).remarks == []


def test_a_remark_does_not_stop_anything():
    assert "step returns float64, observation_space says float32" in " ".join(
        check_env(Right(seen=spaces.Box(0, 1, (2,), np.float32))).remarks
    )
    assert check_env(OneBuffer()).remarks == [
        "step returns the same array every time and changes it: return a copy, observation.copy()"
    ]


@pytest.mark.parametrize("shape", [(210, 160, 3), (160, 100), (84, 84, 3), (4, 210, 160)])
def test_large_images_are_remarked_upon(shape):
    """What is suggested makes them small; channels that come first are not a small image."""
    pixels = spaces.Box(0, 255, shape, np.uint8)
    found = look_over(Right(seen=pixels, observation=np.zeros(shape, np.uint8)), 300).remarks
    said = [remark for remark in found if remark.startswith("images of ")]
    assert len(said) == (min(shape[:2]) > 84)
    if said:
        assert ("GrayscaleObservation" in said[0]) == (shape[-1] == 3)


class Integers(Right):
    """Says with 0 and 1 what should be False and True, as many do."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), np.int64(truncated), info


def test_ends_that_are_integers():
    found = check_env(Integers())
    assert found.lengths == [10] * 20
    assert found.remarks[0].startswith("step returns terminated = 0, taken as False")
    agent = vpac.PPO(Integers, envs=2, steps=8, hidden=(4,), epochs=1, gamma=1.0).learn(64)
    assert agent.history[-1]["length_mean"] == 10
    assert vpac.evaluate(agent, Integers, episodes=3).returns.tolist() == [10.0] * 3
    assert vpac.AC(Integers, tilings=2, gamma=1.0).learn(3).history.lengths.tolist() == [10] * 3


@pytest.mark.parametrize(
    "acts",
    [
        spaces.Box(-np.inf, np.inf, (1,)), spaces.Box(0, np.inf, (1,)), spaces.Box(-1, 1, (2, 2)), spaces.Box(-1, 1, ()),
        spaces.Box(0, 9, (2,), np.int64),
    ],
)  # fmt: skip
def test_box_actions_of_every_kind_can_be_learned(acts):
    """PPO takes them as they are: those without bounds are remarked upon."""
    remarks = " ".join(check_env(Right(acts=acts)).remarks)
    assert ("finite bounds" in remarks) is not acts.is_bounded()
    agent = vpac.PPO(lambda: Right(acts=acts), envs=2, steps=8, hidden=(4,), epochs=1).learn(32)
    assert acts.contains(np.asarray(agent.predict(np.zeros(2))[0]))


def test_a_step_limit_makes_an_endless_task_fine():
    spec = gymnasium.envs.registration.EnvSpec("Endless-v0", entry_point=lambda: Right(terminated=False))
    env = gymnasium.make(spec, max_episode_steps=50)
    assert check_env(env, steps=400).lengths == [50] * 8
    assert check_env(env, steps=20).lengths == []


def test_episodes_and_steps_are_counted_not_seconds():
    """20 episodes, fewer if they have 2000 steps together, at least three; all returns are kept, with and without discount."""
    for length, episodes in ((2, 20), (100, 20), (300, 7), (1000, 3), (4000, 1)):
        env = gymnasium.wrappers.TimeLimit(Right(terminated=False), length)
        found = look_over(env, seed=length)
        assert found.lengths == [length] * episodes
        assert found.returns == [float(length)] * episodes
        assert found.discounted == pytest.approx([(1 - 0.99**length) / (1 - 0.99)] * episodes)


def test_a_check_reads_no_clock(monkeypatch):
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(time, name, lambda: pytest.fail("looked at a clock"))
    assert look_over(Right()).lengths == [10] * 20
    vpac.AC(lambda: Right(), tilings=2)


@pytest.mark.parametrize(("high", "said"), [(512.0, True), (0.01, True), (2.0, False), (0.4, False)])
def test_actions_of_another_scale_are_remarked_upon_with_a_wrapper_that_works(high, said):
    env = Right(acts=spaces.Box(0.0, high, (2,)))
    assert any("RescaleAction min_action=-1 max_action=1" in remark for remark in check_env(env).remarks) == said
    scaled = gymnasium.wrappers.RescaleAction(env, min_action=-1, max_action=1)
    assert not any("RescaleAction" in remark for remark in check_env(scaled).remarks)


@pytest.mark.parametrize("value", [1.0099, -0.0019, 1.0 + 1e-7])
def test_a_small_breach_of_bounds_is_a_remark_with_its_place(value):
    remarks = check_env(Right(later=np.array([0.5, value]))).remarks
    words = (
        "numbers at place 1 that are a little (at most 1 %) outside its bounds 0 to 1: widen observation_space or clip"
    )
    assert [words in remark for remark in remarks if "place" in remark] == ([True] if abs(value - 1.0) > 1e-6 else [])


def test_a_breach_of_more_than_a_hundredth_is_an_error():
    with pytest.raises(UserError, match=r"step returned 1\.0101 at place 1, outside its bounds 0 to 1"):
        check_env(Right(later=np.array([0.5, 1.0101])))
    remarks = check_env(Right(reset=(np.array([1.001, 1.0]), {}), later=np.array([1.0, 1.001]))).remarks
    assert sum("numbers at place" in remark for remark in remarks) == 1
    half = spaces.Box(np.zeros(2), np.full(2, np.inf), dtype=np.float64)
    assert "at place 0 that" in " ".join(check_env(Right(seen=half, later=np.array([-1e-3, 1.0]))).remarks)


class Scrolling(Right):
    """A picture of what matters, above some rows of ground that reset does not put back."""

    def __init__(self, rows):
        super().__init__(spaces.Box(0, 255, (20, 20), np.uint8))
        self.rows, self.shift = rows, 0

    def look(self):
        self.shift += 1
        shown = np.full((20, 20), self.np_random.integers(256), np.uint8)
        shown[20 - self.rows :] = (self.shift + np.arange(20)) % 7
        return shown


def test_a_background_that_goes_on_is_a_remark_and_more_is_an_error():
    remarks = check_env(Scrolling(2)).remarks
    assert any("images that differ in 10.0% of their values" in remark for remark in remarks)
    with pytest.raises(UserError, match="two resets with the same seed gave different first observations"):
        check_env(Scrolling(3))
    assert not any("images" in remark for remark in check_env(Scrolling(0)).remarks)


class Rounding(Right):
    """Rewards, or observations, differ a little in every step."""

    def __init__(self, size, what):
        super().__init__()
        self.size, self.what, self.number = size, what, 0

    def step(self, action):
        seen, reward, *rest = super().step(action)
        self.number += 1
        small = self.size * (self.number % 7)
        return (seen * (1.0 - small), reward, *rest) if self.what == "seen" else (seen, reward + small, *rest)


@pytest.mark.parametrize("what", ["seen", "reward"])
def test_a_rounding_error_is_a_remark_and_more_is_an_error(what):
    remarks = check_env(Rounding(1e-16 if what == "reward" else 1e-15, what)).remarks
    assert any("differs by a rounding error though seed and actions were the same" in remark for remark in remarks)
    assert not any("images" in remark for remark in remarks)
    with pytest.raises(UserError, match="differs though seed and actions were the same: draw everything"):
        check_env(Rounding(1e-4, what))


class Mended(gymnasium.Wrapper):
    """Takes seed and options, which `Old` does not, and clips observations."""

    def reset(self, *, seed=None, options=None):
        self.env.unwrapped._np_random, _ = gymnasium.utils.seeding.np_random(seed)
        self.env.steps = 0
        return np.zeros(2), {}

    def step(self, action):
        seen, *rest = self.env.step(action)
        return (np.clip(seen, 0.0, 1.0), *rest)


def test_wrappers_that_mend_something_are_judged():
    for env in (Old(), Right(observation=np.array([5.0, 0.0]))):
        assert look_over(env).errors
        found = look_over(gymnasium.wrappers.OrderEnforcing(Mended(env)))
        assert found.errors == []
    image = Right(seen=spaces.Box(0, 255, (20, 20), np.uint8), observation=np.zeros((20, 20), np.uint8))
    assert look_over(image).errors == []
    flat = gymnasium.wrappers.FlattenObservation(image)
    assert look_over(flat).errors == look_over(make_env(flat)).errors == []
    assert make_env(flat).observation_space.shape == (400,)


def test_all_mistakes_that_can_be_seen_at_once_are_listed():
    found = look_over(Right(seen=spaces.Text(3), acts=spaces.Text(2)))
    assert len(found.errors) == 2
    with pytest.raises(UserError, match=r"Right cannot be learned from yet:\n  1\. .*\n  2\. "):
        check_env(Right(seen=spaces.Text(3), acts=spaces.Text(2)))


class ZeroIsNone(Right):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed or None)


def test_a_package_that_takes_a_seed_of_0_for_none_can_be_learned_from():
    assert look_over(ZeroIsNone()).errors == []


class AlwaysTheSame(Right):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=7)


def test_a_reset_with_a_seed_of_its_own_is_remarked_upon():
    (remark,) = look_over(AlwaysTheSame()).remarks
    assert "reset seeds with 7 whatever its seed is" in remark
    assert look_over(Right()).remarks == []
