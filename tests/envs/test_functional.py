"""Functional environments: agreement with their originals, state by state; names; episodes."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import vpac
from vpac import UserError
from vpac.envs import FiniteEnv, FiniteMDP, make_env
from vpac.envs.functional import FunctionalEnv, FunctionalEnvironments, FunctionalGym
from vpac.envs.jax_worlds import jax_version
from vpac.envs.make import is_named_by_user
from vpac.envs.vector import environments

jax = pytest.importorskip("jax")
jnp = jax.numpy

EXAMPLES = Path(__file__).parents[2] / "examples"
GRID = 2000


@pytest.fixture
def examples(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])


def same_process(env, mdp):
    """Every transition from every state: probabilities on a grid of random numbers, mean and spread of rewards exactly."""
    live = np.flatnonzero(~mdp.terminal)
    state, action = (x.ravel() for x in np.meshgrid(live, np.arange(mdp.n_actions), indexing="ij"))
    step = jax.jit(jax.vmap(jax.vmap(env.step, (0, None, None)), (None, 0, 0)))
    uniform = ((np.arange(GRID) + 0.5) / GRID).astype(np.float32)
    after, _, mean, over, _ = (np.asarray(x) for x in step((uniform, np.zeros(GRID, np.float32)), state, action))
    spread = np.asarray(step((uniform, np.ones(GRID, np.float32)), state, action)[2]) - mean
    entry = {(row, head): k for k, (row, head) in enumerate(zip(mdp.row, mdp.successor, strict=True))}
    for k, row in enumerate(state * mdp.n_actions + action):
        heads, counts = np.unique(after[k], return_counts=True)
        known = slice(mdp.indptr[row], mdp.indptr[row + 1])
        found = dict(zip(heads, counts / GRID, strict=True))
        for head, probability in zip(mdp.successor[known], mdp.probability[known], strict=True):
            assert found.pop(head, 0.0) == pytest.approx(probability, abs=1.5 / GRID)
        assert not found
        entries = [entry[row, head] for head in after[k]]
        np.testing.assert_allclose(mean[k], mdp.reward[entries], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(spread[k], np.sqrt(mdp.noise[entries]), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(over, mdp.terminal[after])
    starts = np.asarray(jax.vmap(env.reset)((uniform, uniform))[0])
    np.testing.assert_allclose(np.bincount(starts, minlength=mdp.n_states) / GRID, mdp.start, atol=1.5 / GRID)


@pytest.mark.parametrize(
    "name", ["vpac/CatchUp-v0", "vpac/RiskyShortcut-v0", "vpac/FourRooms-v0", "vpac/PuddleWorld-v0", "FrozenLake-v1"]
)
def test_a_finite_world_and_its_twin(name):
    found = jax_version(name)
    same_process(found, FiniteMDP.from_gymnasium(name))
    assert found.limit == make_env(name).spec.max_episode_steps


def test_the_shop_and_the_inventory(examples):
    import inventory
    from shop import shop

    same_process(jax_version(inventory.Inventory()), inventory.Inventory().mdp)
    mdp = shop()
    same_process(FiniteEnv(mdp), mdp)


class Fixed:
    """A generator that returns given numbers."""

    def __init__(self, uniform, normal):
        self.uniforms, self.normal = uniform, normal

    def random(self, size=None):
        return self.uniforms

    def uniform(self, low, high, size):
        return low + (high - low) * self.uniforms

    def standard_normal(self, shape=None):
        return self.normal


def test_the_continuous_puddle_world_step_by_step(rng):
    world = make_env("vpac/ContinuousPuddleWorld-v0").unwrapped
    step = jax.jit(jax_version("vpac/ContinuousPuddleWorld-v0").step)
    for position in [*rng.random((60, 2)), [0.3, 0.5], [0.97, 0.96], [0.0, 1.0]]:
        for action in range(4):
            uniform, normal = rng.random(2), float(rng.standard_normal())
            world.reset(options={"position": list(position)})
            world._np_random = Fixed(uniform, normal)
            there, reward, over, _, _ = world.step(np.int64(action))
            world._np_random = None
            found = step((uniform.astype(np.float32), np.float32(normal)), np.float32(position), action)
            np.testing.assert_allclose(found[0], there, atol=1e-6)
            assert float(found[2]) == pytest.approx(reward, rel=1e-5)
            assert bool(found[3]) == over


def test_the_portfolio_step_by_step(rng, examples):
    import portfolio

    market = portfolio.Portfolio()
    step = jax.jit(jax_version("portfolio:Portfolio").step)
    for quarter in range(market.quarters):
        for action in range(5):
            mood, luck, drift = rng.random(), rng.standard_normal(), rng.standard_normal()

            class Given:
                standard_normal = staticmethod(lambda shape, luck=luck: luck)
                normal = staticmethod(lambda mean, std, shape, drift=drift: std * drift)

            gain, after = market.pass_quarter(action, mood, Given)
            found = step((np.float32([luck, drift]), np.float32(0.0)), (quarter, np.float32(mood)), action)
            assert float(found[2]) == pytest.approx(gain, rel=1e-5)
            np.testing.assert_allclose(found[1], [(quarter + 1) / 8.0, after], atol=1e-6)
            assert bool(found[3]) == (quarter == 7)


def test_names_stand_for_functional_environments():
    made = environments("jax:vpac/RiskyShortcut-v0", 3)
    assert isinstance(made, FunctionalEnvironments)
    assert made.recipe.env == "jax:vpac/RiskyShortcut-v0"
    assert made.limit == environments("vpac/RiskyShortcut-v0", 1).limit
    assert environments("jax:vpac/RiskyShortcut-v0", 3, arguments={"max_episode_steps": 7}).limit == 7
    assert is_named_by_user("jax:vpac/CatchUp-v0")
    assert is_named_by_user("gymnax:CartPole-v1")
    assert not is_named_by_user("jax:somewhere:Else")
    played = make_env("jax:vpac/RiskyShortcut-v0", max_episode_steps=7)
    assert isinstance(played.unwrapped, FunctionalGym)
    with pytest.raises(
        UserError, match=r"CartPole-v1 has no version in JAX: it has no method `functional`, and CartPole"
    ):
        make_env("jax:CartPole-v1")


def test_copies_begin_anew_within_a_step_and_are_cut():
    mdp = FiniteMDP(np.ones((1, 1, 1)), 1.0)
    copies = FunctionalEnvironments(FiniteEnv(mdp, limit=3), 2)
    copies.reset([0, 1])
    cuts = [copies.step(np.zeros(2, np.int64)).truncated.tolist() for _ in range(6)]
    assert cuts == [[False] * 2, [False] * 2, [True] * 2] * 2


def test_one_copy_is_played_with_gymnasium(rng):
    """The mean score of random actions is that of the process, to four standard errors."""
    name = "vpac/CatchUp-v0"
    ours, theirs = (
        vpac.evaluate(lambda seen: int(rng.integers(3)), env, episodes=300, seed=1) for env in (f"jax:{name}", name)
    )
    error = np.hypot(ours.std, theirs.std) / np.sqrt(300)
    assert abs(ours.mean - theirs.mean) < 4.0 * error


class Walk(FunctionalEnv):
    """A walk on a line, with one of its functions replaced."""

    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, **functions):
        vars(self).update(functions)

    def reset(self, key):
        return jnp.zeros(1), jnp.zeros(1)

    def step(self, key, state, action):
        return state + action, state + action, -jnp.abs(state[0]), False, False


def returning(*last):
    return lambda key, state, action: (state, state, *last)


def keeping(key, state, action, kept=[]):  # noqa: B006
    """A step that keeps a traced value outside of the function."""
    kept.append(state)
    return state, state, 0.0, False, False


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        (
            {"step": returning(jnp.ones(2), False, False)},
            r"step returns reward of shapes \[\[2\]\], expected one number",
        ),
        ({"step": returning(0.0, jnp.zeros(3, bool), False)}, r"step returns terminated of shapes \[\[3\]\]"),
        ({"step": returning(0.0, False, (False, False))}, r"step returns truncated of shapes \[\[\], \[\]\]"),
        ({"step": returning(0.0, False)}, "step must return state, .* and truncated, got 4 things"),
        ({"step": returning(1j, False, False)}, "step returns reward as complex64, expected a real number"),
        ({"step": returning(0.0, jnp.nan, False)}, "step returns terminated as float32, expected a truth value"),
        ({"limit": 0}, "limit must be None or at least 1, got 0"),
        (
            {"action_space": gymnasium.spaces.MultiDiscrete([2, 2])},
            ".* have Discrete or Box actions, got MultiDiscrete",
        ),
        (
            {
                "observation_space": gymnasium.spaces.Discrete(3),
                "reset": lambda key: (jnp.zeros(1), jnp.float32(1.0)),
                "step": lambda key, state, action: (state, jnp.float32(1.0), 0.0, False, False),
            },
            "reset observes float32, a Discrete space needs whole numbers",
        ),
        ({"step": keeping}, r"JAX cannot trace step \([^()]*\)$"),
        ({"reset": lambda key: jnp.zeros(1)}, "reset must return state and observation, got one thing"),
        ({"draws": lambda key, shape: 1 / 0}, r"JAX cannot trace draws \(ZeroDivisionError: division by zero\)"),
        (
            {"step": lambda key, state, action: returning(float(state[0]), False, False)(key, state, action)},
            r"JAX cannot trace step \(ConcretizationTypeError: [^()]*float32\[\]\)$",
        ),
        (
            {"step": lambda key, state, action: (np.asarray(state), state, 0.0, False, False)},
            r"JAX cannot trace step \(TracerArrayConversionError: [^.]*\.[^.]* shape float32\[1\]\)$",
        ),
    ],
)
def test_a_bad_function_is_named_in_one_sentence(functions, message):
    FunctionalEnvironments(Walk(), 2)
    with pytest.raises(UserError, match=f"^Walk: {message}"):
        FunctionalEnvironments(Walk(**functions), 2)
