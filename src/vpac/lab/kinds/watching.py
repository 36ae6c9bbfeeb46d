"""Episodes of a learned policy as pictures, with or without a display."""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from vpac.envs.make import EnvRecipe, name_of
from vpac.errors import UserError
from vpac.evaluation.actors import Actor
from vpac.evaluation.play import seeds_from, walk

LONGEST = 10_000
"""Steps after which an episode that has no end of its own is left."""
HEADLESS = {"egl": ("EGL", "libegl1 libgl1 libegl-mesa0"), "osmesa": ("OSMesa", "libosmesa6")}
"""Ways in which MuJoCo draws without a display: the library each needs and Debian's packages of it."""


class Shot(NamedTuple):
    """A moment of an episode."""

    picture: Any
    """Pixels [height, width, 3]; None for a step that is not to be seen."""
    episode: int
    step: int
    reward: float
    """Of the last step."""
    score: float
    """Sum of rewards so far."""
    ended: str
    """"terminated", "truncated", "left" after `LONGEST` steps, or empty while it goes on."""


def make_watched(recipe: EnvRecipe) -> gymnasium.Env[Any, Any]:
    """An environment that draws itself."""
    spec = gymnasium.registry.get(recipe.env)
    if spec is not None and "mujoco" in str(spec.entry_point):
        choose_renderer()
    refused = UserError(
        f"{recipe.env} does not draw itself: give its class metadata = {{'render_modes': ['rgb_array'], 'render_fps': 10}}, "
        "its __init__ an argument render_mode=None that is kept as self.render_mode, and a method render() that returns "
        "pixels, an array [height, width, 3] of uint8"
    )
    try:
        made = recipe.make(render_mode="rgb_array")
    except UserError as error:
        if "has no argument 'render_mode'" in str(error) or not _draws(recipe.make()):
            raise refused from None
        raise
    if not _draws(made):
        raise refused
    return made


def _draws(env: gymnasium.Env[Any, Any]) -> bool:
    return "rgb_array" in env.metadata.get("render_modes", ())


def choose_renderer() -> None:
    """Let MuJoCo draw without a window: by EGL, else by OSMesa; what MUJOCO_GL says already stays."""
    if "MUJOCO_GL" in os.environ or not sys.platform.startswith("linux"):
        return
    for name, (library, _) in HEADLESS.items():
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return
    if not os.environ.get("DISPLAY"):
        raise UserError(f"MuJoCo cannot draw here, for there is neither a display nor {_needed()}")


def _needed() -> str:
    return " nor ".join(f"{library} (apt install {packages})" for library, packages in HEADLESS.values())


def shots(
    env: gymnasium.Env[Any, Any], agent: Any, episodes: int, seed: int, deterministic: bool, every: int = 1
) -> Iterator[Shot]:
    """Play with an agent; every `every`-th step of an episode has a picture, and its first and last moment, too.

    A single episode is the one that `vpac.evaluate(agent, env, 1, seed=seed)` measures.
    """
    noise, world = np.random.SeedSequence(seed).spawn(2)
    actor = Actor(agent, env.observation_space, env.action_space, 1, deterministic)
    actor.begin(noise)

    def choose(observation: Any) -> Any:
        parts = observation if isinstance(observation, dict) else {"": observation}
        one = {name: np.asarray(part)[None] for name, part in parts.items()}
        return actor.actions(one.get("", one), np.zeros(1, bool))[0]

    for episode, start in enumerate(seeds_from(world, episodes).tolist()):
        observation, _ = env.reset(seed=start)
        yield Shot(_picture(env), episode, 0, 0.0, 0.0, "")
        score = 0.0
        for number, step in enumerate(walk(env, observation, choose, name_of(env)), 1):
            score += step.reward
            ended = step.ended or ("left" if number >= LONGEST else "")
            picture = _picture(env) if ended or number % every == 0 else None
            yield Shot(picture, episode, number, step.reward, score, ended)
            if ended:
                break


def _picture(env: gymnasium.Env[Any, Any]) -> Any:
    name = name_of(env)
    try:
        picture = np.asarray(env.render())
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"{name} cannot be drawn: {error}; pip install 'vpac[video]'") from None
    except Exception as error:  # whatever drivers and libraries of graphics make of it
        hint = ""
        if "mujoco" in type(env.unwrapped).__module__:
            hint = f"; MUJOCO_GL is {os.environ.get('MUJOCO_GL')!r}: another of {', '.join(HEADLESS)} may work, with "
            hint += " or ".join(f"apt install {packages}" for _, packages in HEADLESS.values())
        raise UserError(f"{name} cannot be drawn: {type(error).__name__}: {error}{hint}") from None
    if picture.ndim != 3 or picture.shape[2] != 3:
        raise UserError(f"{name} draws no picture: expected pixels [height, width, 3], got shape {list(picture.shape)}")
    return picture.astype(np.uint8)
