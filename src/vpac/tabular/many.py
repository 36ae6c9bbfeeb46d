"""Many independent runs at once, on all cores: compiled code releases the GIL, so threads suffice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, TypeVar

import gymnasium

from vpac.checks import seeds_of, whole
from vpac.envs.make import remake
from vpac.errors import Diverged
from vpac.progress import Bar
from vpac.tabular.agents import Learner

ADVICE = ": pass its id or its specification, so that every run has its own"
L = TypeVar("L", bound=Learner)


def learn_many(
    kind: type[L],
    env: Any,
    seeds: Iterable[int],
    episodes: int,
    *,
    threads: int | None = None,
    callback: Callable[[L], bool | None] | None = None,
    every: int | None = None,
    progress: bool = False,
    diverged: list[Diverged] | None = None,
    **settings: Any,
) -> list[L]:
    """Train one learner for each seed; the result of a run depends on its seed only.

    Args:
        kind: the algorithm, e.g. `VPAC`.
        env: the environment, its id or its specification. Of an environment that is not compiled every run gets its own,
            made from the specification.
        seeds: one for each run.
        episodes: of each run.
        threads: how many runs at a time; default: one for each core.
        callback: as for `Learner.learn`, called from the run's own thread.
        every: as for `Learner.learn`.
        progress: show a progress bar.
        diverged: a list to collect the errors of runs that diverge, which are then missing from the result; default: the
            first such error is raised.
        settings: of the algorithm.
    """
    chosen = seeds_of(seeds)
    workers = os.cpu_count() if threads is None else whole(threads, "threads", 1)

    def run(learner: L) -> L | Diverged:
        try:
            return learner.learn(episodes, callback=callback, every=every, progress=bar or False)
        except Diverged as error:
            if diverged is None:
                raise
            return error

    def make(seed: int) -> L:
        return kind(remake(env.spec, ADVICE) if stepped else env, seed=seed, **settings)

    first = kind(env, seed=chosen[0], **settings)
    stepped = isinstance(env, gymnasium.Env) and first.environment.world is None and len(chosen) > 1
    first = make(chosen[0]) if stepped else first
    bar = Bar(whole(episodes, "episodes") * len(chosen)) if progress else None
    with bar or nullcontext():
        found = [run(first)]  # compiles, if need be, before the threads start
        with ThreadPoolExecutor(workers) as pool:
            found += pool.map(lambda seed: run(make(seed)), chosen[1:])
    if diverged is not None:
        diverged += [result for result in found if isinstance(result, Diverged)]
    return [result for result in found if not isinstance(result, Diverged)]
