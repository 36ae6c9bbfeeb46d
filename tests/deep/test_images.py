"""Images: the encoder is the same in NumPy and JAX, pixels stay uint8, and numbers are appended to the features."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vpac
from seeds import bounds, seeds
from vpac import UserError
from vpac.envs import arranged, check_env
from vpac.evaluation.actors import load_agent

jax = pytest.importorskip("jax")

from vpac.deep import PPO, VPACPPO, load_policy  # noqa: E402
from vpac.deep.networks import make_critic, make_policy, on_device  # noqa: E402
from vpac.deep.options import PPOOptions  # noqa: E402
from vpac.deep.spaces import Interface  # noqa: E402

SMALL = {"envs": 4, "steps": 16, "epochs": 2, "minibatch": 32, "hidden": (16,)}
PICTURE = spaces.Box(0, 255, (7, 7, 2), np.uint8)


class Spot(gymnasium.Env):
    """Eight steps; a bright spot is in one of four corners, and the action that names its corner pays 1.

    Another channel is noise. With `beside`, a vector says whether it is action 0 that pays instead.
    """

    action_space = spaces.Discrete(4)

    def __init__(self, beside=False, seen=PICTURE, masked=False):
        self.beside, self.masked = beside, masked
        self.picture, self.observation_space = seen, seen
        if beside:
            self.observation_space = spaces.Dict(eye=seen, sign=spaces.Box(-1, 1, (1,), np.float32))

    def _show(self):
        self.corner, self.sign = int(self.np_random.integers(4)), self.np_random.choice([-1.0, 1.0])
        drawn = self.np_random.integers(0, 256, (7, 7, 2)).astype(np.uint8)
        drawn[..., 1] = 0
        row, column = divmod(self.corner, 2)
        drawn[row * 4 : row * 4 + 3, column * 4 : column * 4 + 3, 1] = 10
        sign = np.array([self.sign], np.float32)
        info = {"action_mask": np.arange(4) % 2 == self.corner % 2} if self.masked else {}
        return ({"eye": drawn, "sign": sign} if self.beside else drawn), info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._show()

    def step(self, action):
        wanted = self.corner if self.sign > 0 or not self.beside else 0
        reward, self.t = float(action == wanted), self.t + 1
        seen, info = self._show()
        return seen, reward, self.t == 8, False, info


@pytest.mark.parametrize("shape", [(84, 84, 4), (36, 40), (7, 7, 3), (2, 3), (3, 20, 20), (2, 16, 16, 3), (5, 40, 4)])
@pytest.mark.parametrize("numbers", [0, 3])
def test_a_policy_sees_in_numpy_what_it_learns_from_in_jax(shape, numbers, rng):
    image, vector = spaces.Box(0, 255, shape, np.uint8), spaces.Box(-1, 1, (numbers,))
    seen = spaces.Dict(image=image, vector=vector) if numbers else image
    interface, options = Interface.of(seen, spaces.Discrete(5), "x"), PPOOptions(hidden=(8,))
    found = {"image": rng.integers(0, 256, (3, *shape), np.uint8), "vector": rng.normal(size=(3, numbers))}
    agent = make_policy(rng, interface, options)
    from vpac.deep.policy import NumpyPolicy

    channels, encoder = interface.sides[-1], agent.net.encoder
    policy = NumpyPolicy(
        interface, [np.asarray(W) for W in agent.net.weights], [np.asarray(b) for b in agent.net.biases], "tanh", None,
        rng.normal(100, 10, numbers + channels).astype(np.float32), np.full(numbers + channels, 0.01, np.float32), True, 0.9,
        kernels=[np.asarray(W) for W in encoder.kernels], kernel_biases=[np.asarray(b) for b in encoder.biases],
        strides=encoder.strides,
    )  # fmt: skip
    rows = policy.normalise(interface.rows(found if numbers else found["image"]))
    assert rows["pixels"].dtype == np.uint8
    assert rows["pixels"].shape[1:] == interface.sides
    on = on_device(rows)
    critic = make_critic(rng, interface, options, False, context=2)
    assert critic.net.weights[0].shape[0] == encoder.biases[-1].size + numbers + 2
    beside = [np.concatenate([on.numbers, np.tile([1.0, last], (3, 1))], axis=1, dtype=np.float32) for last in (1, -1)]
    wide = jax.tree.map(lambda x: np.stack([x, x]), on)._replace(numbers=np.stack(beside))
    both = jax.jit(lambda policy, seen, critic, more: (policy.net(seen), critic(more)))
    outputs, (ones, others) = both(agent, on, critic, wide)
    np.testing.assert_allclose(policy.outputs(rows), outputs, rtol=1e-3, atol=1e-5)
    assert ones.shape == (3,)
    assert (ones != others).all()


def test_a_convolution_is_the_sum_that_defines_it(rng):
    interface = Interface.of(PICTURE, spaces.Discrete(2), "x")
    agent = PPO(Spot, **SMALL)
    policy = agent.policy()
    pixels = interface.rows(rng.integers(0, 256, (1, 7, 7, 2), np.uint8))
    W, b, x = policy.kernels[0], policy.kernel_biases[0], pixels["pixels"][0] / 255.0
    by_hand = np.array(
        [[[(x[i : i + 3, j : j + 3] * W[..., f]).sum() for f in range(16)] for j in range(5)] for i in range(5)]
    )
    first = type(policy)(**{**vars(policy), "kernels": [W], "kernel_biases": [b], "strides": (1,)})
    found = first._features(pixels["pixels"], policy.normalise(pixels)["levels"])
    np.testing.assert_allclose(found[0].reshape(5, 5, 16), np.maximum(by_hand + b, 0.0), rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # five trainings with convolutions for each of two environments
@pytest.mark.parametrize("beside", [False, True])
def test_a_spot_is_found_and_bytes_stay_bytes(tmp_path, beside):
    """Values up to 10 of 255 are enough: each channel is normalised."""

    def make():
        return Spot(beside)

    check_env(make())
    scores = []
    for seed in seeds():
        agent = PPO(
            make, seed=seed, gamma=0.5, learning_rate=2e-3, envs=8, steps=64, epochs=4, minibatch=64, hidden=(32,)
        )
        agent.learn(4_000 if beside else 2_000)
        scores.append(vpac.evaluate(agent, make, 10, gamma=1.0, deterministic=True).mean)
    assert bounds(scores)[0] > 5.0  # of 8; at random 2
    assert agent._collector._rows["pixels"].dtype == np.uint8
    agent.save(tmp_path / "agent")
    found = [vpac.evaluate(each, make, 4, seed=2).returns for each in (agent, load_agent(tmp_path / "agent"))]
    np.testing.assert_array_equal(*found)
    seen, _ = arranged(make()).reset(seed=1)
    assert load_policy(tmp_path / "agent")(seen) == agent.predict(seen)[0]
    with pytest.raises(UserError, match="this policy takes"):
        agent.predict({"eye": np.zeros((7, 7, 2))})


def test_variants_prices_masks_and_checkpoints_work_with_images(tmp_path):
    def make():
        return Spot(beside=True, masked=True)

    settings = {"psi": "conditioned", "psi_range": (0.0, 1.0), **SMALL}
    agent = VPACPPO(make, **settings).learn(64)
    again = VPACPPO.load(agent.save(tmp_path / "agent"), make)
    np.testing.assert_array_equal(agent.learn(64).policy().kernels[0], again.learn(64).policy().kernels[0])
    assert agent.interface.masked
    assert agent.networks.policy.net.encoder is not None
    seen = [arranged(make(), True).reset(seed=seed)[0] for seed in range(20)]
    batch = {name: np.stack([one[name] for one in seen]) for name in seen[0]}
    for psi in (0.0, 1.0):
        drawn = again.at(psi).act(batch, np.random.default_rng(0))
        assert batch["action_mask"][np.arange(20), drawn].all()


def test_a_stack_of_a_vector_environment_is_an_image():
    envs = gymnasium.vector.SyncVectorEnv([Spot] * 3)
    agent = PPO(envs, steps=8, epochs=1, minibatch=24, hidden=(4,)).learn(24)
    assert agent.interface.sides == (7, 7, 2)
    assert agent.policy().kernels[-1].shape[-1] == 128


def test_a_damaged_policy_of_images_is_refused(tmp_path):
    from dataclasses import replace

    policy = PPO(Spot, **SMALL).policy()
    for wrong in (
        {"strides": (1, 1)},
        {"strides": (1, 9, 0)},
        {"kernels": policy.kernels[:-1]},
        {"kernels": [], "strides": ()},
    ):
        replace(policy, **wrong).save(tmp_path / "policy")
        with pytest.raises(UserError, match="layers"):
            load_policy(tmp_path / "policy")


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Dict(eye=PICTURE, said=spaces.Text(9)), r"observation \['said'\] is text .*FilterObservation"),
        (spaces.Dict(left=PICTURE, right=PICTURE), r"observation \['right'\] is a second image .*channels of one"),
        (spaces.Box(0, 255, (2, 2, 8, 8, 3), np.uint8), r"expected \[height, width\], with channels"),
    ],
)
def test_what_no_network_reads_is_refused_in_words(space, message):
    env = Spot()
    env.observation_space = space
    with pytest.raises(UserError, match=message):
        PPO(env, envs=1)
