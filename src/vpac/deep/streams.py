"""The random streams of an agent."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

__all__ = ["starts", "streams"]

STREAMS = ("policy weights", "value weights", "spread weights", "act", "policy", "value", "spread", "predict")
"""A variant has those of PPO and more, so that ψ = 0 is PPO bit for bit."""


LATER = {"score weights": 10, "score": 11, "luck weights": 12, "luck": 13}
"""Streams of critics that not every agent has; 8 and 9 are those of starts and of prices."""


def streams(seed: int, critics: Collection[str] = ()) -> dict[str, np.random.Generator]:
    """One generator for each purpose, independent of the others."""
    children = np.random.SeedSequence(seed).spawn(len(STREAMS))
    found = {name: np.random.default_rng(child) for name, child in zip(STREAMS, children, strict=True)}
    for name, key in LATER.items():
        if name.partition(" ")[0] in critics:
            found[name] = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(key,)))
    return found


def starts(seed: int, iteration: int, n: int) -> Any:
    """Seeds of `n` environments that begin anew in an iteration; the same whether or not the run was resumed."""
    return np.random.SeedSequence(seed, spawn_key=(len(STREAMS), iteration)).generate_state(n)
