"""The random streams of an agent."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["starts", "streams"]

STREAMS = ("policy weights", "value weights", "spread weights", "act", "policy", "value", "spread", "predict")
"""A variant has those of PPO and more, so that ψ = 0 is PPO bit for bit."""


def streams(seed: int) -> dict[str, np.random.Generator]:
    """One generator for each purpose, independent of the others."""
    children = np.random.SeedSequence(seed).spawn(len(STREAMS))
    return {name: np.random.default_rng(child) for name, child in zip(STREAMS, children, strict=True)}


def starts(seed: int, iteration: int, n: int) -> Any:
    """Seeds of `n` environments that begin anew in an iteration; the same whether or not the run was resumed."""
    return np.random.SeedSequence(seed, spawn_key=(len(STREAMS), iteration)).generate_state(n)
