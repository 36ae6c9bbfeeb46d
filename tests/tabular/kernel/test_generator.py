from __future__ import annotations

import numpy as np

from simulate import assert_mean
from vpac.envs import ContinuousPuddleWorld, FourRooms
from vpac.tabular.environment import compile_mdp, compile_puddle, move, reset
from vpac.tabular.features import tile_coder
from vpac.tabular.kernel.generator import generator, normal, pick, uniform
from vpac.tabular.kernel.jit import compiled


@compiled
def draw(rng, uniforms, normals, picks, chances):
    for index in range(len(uniforms)):
        uniforms[index] = uniform(rng)
        normals[index] = normal(rng)
        picks[index] = pick(chances, rng)


@compiled
def walk(world, rng, positions, actions, rewards, ends, starts):
    for index in range(len(rewards)):
        starts[index] = 0.0
        reset(world, positions[index], rng)
        for axis in range(2):
            starts[index] += positions[index, axis]
        for axis in range(2):
            actions[index, axis] = positions[index, axis]
        rewards[index], ends[index] = move(world, positions[index], index % world.n_actions, rng)


def test_the_first_number_of_xoshiro_by_hand():
    """State (1, 2, 3, 4): rotl(1 + 4, 23) + 1 = 41943041, the reference implementation's first output."""
    rng = np.array([1, 2, 3, 4], np.uint64)
    outs = [np.zeros(1), np.zeros(1), np.zeros(1, np.int64)]
    draw(rng, *outs, np.array([1.0]))
    assert outs[0][0] == (41943041 >> 11) / 2**53


def test_distributions():
    n = 400_000
    uniforms, normals, picks = np.zeros(n), np.zeros(n), np.zeros(n, np.int64)
    chances = np.array([0.1, 0.0, 0.6, 0.3])
    draw(generator(np.random.SeedSequence(1)), uniforms, normals, picks, chances)
    assert_mean(uniforms, 0.5)
    assert_mean((uniforms - 0.5) ** 2, 1 / 12)
    assert uniforms.min() >= 0.0
    assert uniforms.max() < 1.0
    assert_mean(normals, 0.0)
    assert_mean(normals**2, 1.0)
    assert_mean(normals**4, 3.0)
    assert_mean(uniforms[1:] * uniforms[:-1], 0.25)
    assert_mean(np.eye(4)[picks], chances)


def test_streams_of_one_seed_are_different():
    one, other = (generator(s) for s in np.random.SeedSequence(0).spawn(2))
    assert not np.array_equal(one, other)


def sampled(world, n=200_000):
    columns = np.zeros((n, 2)), np.zeros((n, 2)), np.zeros(n), np.zeros(n, bool), np.zeros(n)
    walk(world, generator(np.random.SeedSequence(2)), *columns)
    return columns


def test_the_compiled_finite_world_is_the_process():
    mdp = FourRooms().mdp
    there, here, reward, ended, _ = sampled(compile_mdp(mdp))
    # A finite position is a whole number kept in the bits of a float.
    state, successor = (np.ascontiguousarray(position[:, 0]).view(np.int64) for position in (here, there))
    action = np.arange(len(reward)) % 4
    assert_mean(np.eye(104)[state][:, ~mdp.terminal], mdp.start[~mdp.terminal])
    assert np.array_equal(ended, mdp.terminal[successor])
    p, r, v = mdp.transition, mdp.reward_mean, mdp.reward_variance
    assert (p[state, action, successor] > 0).all()
    seen = np.zeros((len(state), 104))
    seen[np.arange(len(state)), successor] = 1.0
    assert_mean(seen - p[state, action], np.zeros(104))
    spread = v[state, action, successor]
    assert np.array_equal((reward != r[state, action, successor])[spread == 0.0], np.zeros((spread == 0.0).sum(), bool))
    assert_mean(((reward - r[state, action, successor]) ** 2 / np.maximum(spread, 1e-9))[spread > 0], 1.0)


def test_the_compiled_puddle_world_is_the_environment():
    env = ContinuousPuddleWorld()
    there, here, reward, ended, _ = sampled(compile_puddle(env, tile_coder([0, 0], [1, 1])))
    action = np.arange(len(reward)) % 4
    stride = np.array([[-0.05, 0], [0.05, 0], [0, -0.05], [0, 0.05]])[action]
    inside = ((here > 0.1) & (here < 0.9)).all(axis=1)
    jitter = (there - here - stride)[inside]
    assert np.abs(jitter).max() <= 0.025 + 1e-12
    assert_mean(jitter, np.zeros(2))
    assert_mean(jitter**2, np.full(2, 0.05**2 / 12))
    assert there.min() >= 0.0
    assert there.max() <= 1.0
    assert np.array_equal(ended, np.abs(there - 1.0).sum(axis=1) < 0.1)
    puddle = ((here >= 0.3) & (here <= 0.7)).all(axis=1)
    assert np.array_equal(reward[~puddle], 50.0 * ended[~puddle])
    assert_mean(reward[puddle], 0.0)
    assert_mean(reward[puddle] ** 2, 64.0)
