"""Many independent runs at once, on all cores: compiled code releases the GIL, so threads suffice."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from vpac.learners.learner import Learner

__all__ = ["learn_many"]

L = TypeVar("L", bound=Learner)


def learn_many(
    kind: type[L],
    env: Any,
    seeds: Sequence[int],
    episodes: int,
    *,
    threads: int | None = None,
    callback: Callable[[L], bool | None] | None = None,
    every: int | None = None,
    **settings: Any,
) -> list[L]:
    """Train one learner for each seed; the result of a run depends on its seed only.

    Args:
        kind: the algorithm, e.g. `VPAC`.
        env: the environment or its id; environments that are not compiled must be given by id, one is made for each run.
        seeds: one for each run.
        episodes: of each run.
        threads: how many runs at a time; default: one for each core.
        callback: as for `Learner.learn`, called from the run's own thread.
        every: as for `Learner.learn`.
        settings: of the algorithm.
    """

    def run(seed: int) -> L:
        return kind(env, seed=seed, **settings).learn(episodes, callback=callback, every=every)

    first = run(seeds[0])  # compiles, if need be, before the threads start
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return [first, *pool.map(run, seeds[1:])]
