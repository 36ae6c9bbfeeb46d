"""The preset "paper" has the settings of the paper's experiments, independent of the defaults."""

from __future__ import annotations

from vpac.deep.options import PRESETS, PPOOptions

PAPER = {
    # one network each, 128 and 64 units, then √(128·d), tanh; as the framework starts them
    "hidden": (128, 64),
    "closing_layer": True,
    "activation": "tanh",
    "initialisation": "uniform",
    # 8 environments × 2048 steps, reset at the start of every iteration
    "envs": 8,
    "steps": 2048,
    "reset_every_iteration": True,
    # 5 epochs of 4 minibatches of 512
    "epochs": 5,
    "minibatches": 4,
    "minibatch": 512,
    # AdamW with fixed rates
    "learning_rate": 9e-4,
    "critic_learning_rate": 1e-3,
    "decay_learning_rate": False,
    "weight_decay": 0.01,
    "adam_eps": 1e-8,
    # only the policy's gradient is clipped
    "max_grad_norm": 1.0,
    "critic_max_grad_norm": None,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    # the value target is the return, continued by the critic at the cut
    "target_lambda": 1.0,
    "clip": 0.2,
    "target_kl": None,
    "entropy": 0.0,
    # rewards are max(reward, −1000) × 0.01, and ψ is a price of those
    "reward_floor": -1000.0,
    "reward_scale": 0.01,
    "psi_units": "scaled",
    "normalise_observations": False,
    "normalise_advantages": False,
    # the variance of the actions starts at 1
    "log_std": 0.0,
    "form": "published",
    # critics see what the policy sees, and the whole price is asked from the first step on
    "time_aware": False,
    "psi_warm_up": 0.0,
}


def test_the_preset_is_the_paper_field_by_field():
    found = PPOOptions.read({}, "paper")
    assert {name: getattr(found, name) for name in PAPER} == PAPER


def test_it_names_every_one_of_them_so_that_no_default_can_change_it():
    assert {name: PRESETS["paper"].get(name, "not named") for name in PAPER} == PAPER
    assert set(PRESETS["paper"]) - set(PAPER) == {"checkpoint_every"}  # ours: the paper has no checkpoints
