"""A contestant of `deep.py` in its own process, so that memory and threads are not shared.

    python benchmarks/contestant.py '{"who": "ours", "envs": 64, …}'

prepares itself, prints a line, and then learns for as many iterations as each line of standard input says. It prints lines of
JSON: first the seconds of its first iteration and of a later one, then, for every line, seconds and processor seconds of an
iteration (on all threads, but not in worker processes), environment steps per second, and peak memory.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ENV, STEPS, HIDDEN, MINIBATCH, EPOCHS = "HalfCheetah-v5", 16_384, (256, 128), 512, 5
"""The task: steps of an iteration over all environments, and its gradient updates."""
OURS = {
    "ours": "VPAC-PPO",
    "three": "VPAC-PPO without the luck critic",
    "PPO": "PPO",
    "gymnasium": "VPAC-PPO (Gymnasium)",
}
"""Our contestants, and what tables call them."""
PAPER = {"paper": "VPAC-PPO (the paper's preset)"}
"""Three smaller networks, a few updates an iteration: most of its time should be EnvPool's."""
WARM = 2
"""Iterations before the clock starts."""
FIRST_LINE = "measured "
CACHE = "JAX_COMPILATION_CACHE_DIR"
"""A cache of the user's own would hide what compiling takes."""
TIMEOUT = 120.0
"""Seconds until a contestant counts as hanging: PyTorch with threads of its own beside forked workers sometimes does."""

Learn = Callable[[int], object]
"""Learns from so many more environment steps."""


def installed(name: str) -> bool:
    """Whether a distribution is there."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


@dataclass(frozen=True)
class Contestant:
    """Who takes part, and how."""

    who: str
    """ "ours", "three" (with three networks), "PPO", "gymnasium" (without EnvPool), "paper" (its preset), "SB3", "SBX" or
    "EnvPool"."""
    envs: int
    vector: str = ""
    """How SB3 and SBX step their environments: "dummy" (one after the other) or "subproc" (a process each)."""
    threads: int | None = None
    """Of PyTorch, XLA or EnvPool; None: as the library decides."""

    def __str__(self) -> str:
        count = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        how = [self.vector] * bool(self.vector) + [count] * (self.threads is not None)
        return f"{self.who} ({', '.join(how)})" if how else self.who

    def start(self, **environment: str) -> Started:
        """Let it make ready in a new process; `environment` variables are added to this one's."""
        if self.who == "SBX" and self.threads is not None:
            environment = {"PJRT_NPROC": str(self.threads), **environment}
        return Started(self, environment)


class Started:
    """A contestant that waits for its turn."""

    def __init__(self, who: Contestant, environment: dict[str, str]) -> None:
        self.who = who
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__), json.dumps(asdict(who))],
            env={name: value for name, value in {**os.environ, **environment}.items() if name != CACHE},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.warm = self._answer()

    def iterate(self, iterations: int) -> dict[str, float]:
        """Its turn."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{iterations}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        """The next answer; a process that hangs is stopped."""
        guard = threading.Timer(TIMEOUT, self._process.kill)
        guard.start()
        try:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if line.startswith(FIRST_LINE):
                    found: dict[str, float] = json.loads(line.removeprefix(FIRST_LINE))
                    return found
        finally:
            guard.cancel()
        self._errors.seek(0)
        raise RuntimeError(f"{self.who} with {self.who.envs} environments failed:\n{self._errors.read()[-2000:]}")

    def stop(self) -> None:
        """Let it go, with its workers."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def ours(who: str, envs: int) -> Learn:
    """VPAC in PPO with four networks, or PPO with two; observations and rewards normalised, statistics of episodes."""
    from vpac.deep import PPO, VPACPPO

    if who in PAPER:
        return VPACPPO(ENV, psi=0.15, form="published", preset="paper", envs=envs, steps=STEPS // envs, seed=0).learn
    settings: dict[str, Any] = {
        "seed": 0, "backend": "gymnasium" if who == "gymnasium" else "envpool", "envs": envs, "steps": STEPS // envs,
        "hidden": HIDDEN, "minibatch": MINIBATCH, "epochs": EPOCHS,
    }  # fmt: skip
    if who == "PPO":
        return PPO(ENV, **settings).learn
    return VPACPPO(ENV, psi=0.1, luck_critic=who != "three", **settings).learn


def library(who: str, envs: int, vector: str, threads: int | None) -> Learn:
    """SB3's or SBX's PPO: two networks, nothing normalised, environments without a Monitor."""
    import gymnasium
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    makers: list[Any] = [lambda: gymnasium.make(ENV)] * envs
    venv = DummyVecEnv(makers) if vector == "dummy" else SubprocVecEnv(makers, start_method="fork")
    settings = {
        "n_steps": STEPS // envs, "batch_size": MINIBATCH, "n_epochs": EPOCHS, "seed": 0,
        "policy_kwargs": {"net_arch": {"pi": list(HIDDEN), "vf": list(HIDDEN)}},
    }  # fmt: skip
    model: Any
    if who == "SB3":
        import stable_baselines3
        import torch

        if threads is not None:
            torch.set_num_threads(threads)
        model = stable_baselines3.PPO("MlpPolicy", venv, device="cpu", **settings)
    else:
        import sbx

        model = sbx.PPO("MlpPolicy", venv, **settings)
    return lambda steps: model.learn(steps, reset_num_timesteps=False)


def envpool_alone(envs: int, threads: int | None) -> Learn:
    """EnvPool with uniform actions that were drawn before, and nothing else."""
    import envpool
    import numpy as np

    venv = envpool.make(ENV, env_type="gymnasium", num_envs=envs, num_threads=threads or 0, seed=0)
    drawn = np.random.default_rng(0).uniform(-1.0, 1.0, (256, envs, *venv.action_space.shape)).astype(np.float32)
    venv.reset()

    def step(steps: int) -> None:
        for t in range(steps // envs):
            venv.step(drawn[t % len(drawn)])

    return step


def main() -> None:
    one = Contestant(**json.loads(sys.argv[1]))
    warnings.filterwarnings("ignore")
    if one.who in OURS | PAPER:
        learn = ours(one.who, one.envs)
    elif one.who == "EnvPool":
        learn = envpool_alone(one.envs, one.threads)
    else:
        learn = library(one.who, one.envs, one.vector, one.threads)
    warm = [timed(learn, STEPS) for _ in range(WARM)]
    answer(first=warm[0], later=warm[-1])
    for line in sys.stdin:
        began, iterations = time.process_time(), int(line)
        seconds = timed(learn, iterations * STEPS) / iterations
        processor = (time.process_time() - began) / iterations
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answer(seconds=seconds, speed=STEPS / seconds, processor=processor, memory=memory)


def answer(**numbers: float) -> None:
    """Say it in a line."""
    print(FIRST_LINE + json.dumps(numbers), flush=True)


def timed(learn: Learn, steps: int) -> float:
    """Seconds."""
    began = time.perf_counter()
    learn(steps)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
