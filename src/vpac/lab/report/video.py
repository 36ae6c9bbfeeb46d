"""Films of a learned policy, with or without a display: GIF by Pillow alone, MP4 where imageio-ffmpeg is installed."""

from __future__ import annotations

import ctypes.util
import io
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import gymnasium
import numpy as np

from vpac.envs.make import EnvRecipe, name_of
from vpac.errors import UserError, needs_extra
from vpac.evaluation.actors import Actor
from vpac.evaluation.play import seeds_from, walk
from vpac.files import write_atomically, write_bytes

LONGEST_VIDEO = 10_000
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
    """Reward of the last step."""
    score: float
    """Sum of rewards so far."""
    ended: str
    """"terminated", "truncated", "left" after `LONGEST_VIDEO` steps, or empty while it goes on."""


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
        needed = " nor ".join(f"{library} (apt install {packages})" for library, packages in HEADLESS.values())
        raise UserError(f"MuJoCo cannot draw here, for there is neither a display nor {needed}")


def shots(
    env: gymnasium.Env[Any, Any], agent: Any, episodes: int, seed: int, deterministic: bool, every: int = 1
) -> Iterator[Shot]:
    """Play with an agent; every `every`-th step of an episode has a picture, and its first and last moment, too.

    A single episode is the one that `vpac.evaluate(agent, env, 1, seed=seed)` measures.
    """
    noise, world = np.random.SeedSequence(seed).spawn(2)
    actor = Actor(agent, env.observation_space, env.action_space, 1, deterministic)
    actor.begin(noise)

    for episode, start in enumerate(seeds_from(world, episodes).tolist()):
        observation, _ = env.reset(seed=start)
        yield Shot(_picture(env), episode, 0, 0.0, 0.0, "")
        score = 0.0
        for number, step in enumerate(walk(env, observation, actor.action, name_of(env)), 1):
            score += step.reward
            ended = step.ended or ("left" if number >= LONGEST_VIDEO else "")
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


FASTEST = {".gif": 100.0 / 3.0, ".mp4": 60.0}
"""Pictures per second that viewers of each kind of file can show."""
SLOWEST = 1.0
LONGER_SIDE = {".gif": 400, ".mp4": 1280}
"""Pixels of the longer side; larger pictures are made smaller."""
SHORTER_SIDE = 240
"""Pixels of the shorter side of a picture that words are still readable on; smaller pictures are enlarged."""
BAND = 18
"""Pixels of the line of numbers above the picture."""


def film_kind(path: Path) -> str:
    """.gif or .mp4, if it can be written."""
    kind = path.suffix.lower()
    if kind not in FASTEST:
        raise UserError(f"cannot film into {path}: expected a file ending in .gif or .mp4")
    if kind == ".mp4":
        _ffmpeg()
    return kind


def _ffmpeg() -> Any:
    try:
        import imageio_ffmpeg
    except ModuleNotFoundError as error:
        raise needs_extra("MP4", error, "video", "; GIF needs nothing: --out FILE.gif") from None
    return imageio_ffmpeg


def pace(fps: float, kind: str) -> tuple[int, float]:
    """Every how many-th step to show, and pictures per second: real time for an environment of `fps` steps per second."""
    every = max(1, math.ceil(fps / FASTEST[kind] - 1e-9))
    return every, max(fps / every, SLOWEST)


def write_film(path: Path, moments: Iterator[Shot], fps: float) -> int:
    """Write the moments that have a picture; returns how many there were."""
    kind, count = film_kind(path), 0

    def frames() -> Iterator[Any]:
        nonlocal count
        for moment in moments:
            if moment.picture is not None:
                count += 1
                yield _frame(moment, kind)

    if kind == ".gif":
        film = io.BytesIO()
        _write_gif(film, frames(), fps)
        write_bytes(path, film.getvalue())
    else:  # by ffmpeg, which wants a file
        write_atomically(path, lambda part: _write_mp4(part, frames(), fps))
    return count


def _frame(moment: Shot, kind: str) -> Any:
    """The picture with its numbers above it; sizes are even, which MP4 asks for."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.fromarray(moment.picture)
    width, height = picture.size
    factor = min(LONGER_SIDE[kind] / max(width, height), max(1.0, math.ceil(SHORTER_SIDE / min(width, height))))
    width, height = (max(2, round(side * factor) // 2 * 2) for side in (width, height))
    if picture.size != (width, height):
        how = Image.Resampling.NEAREST if factor > 1.0 else Image.Resampling.BOX
        picture = picture.resize((width, height), how)
    frame = Image.new("RGB", (width, height + BAND), (24, 28, 36))
    frame.paste(picture, (0, BAND))
    words = f"episode {moment.episode + 1}  step {moment.step}  reward {moment.reward:.2f}  score {moment.score:.1f}"
    font = ImageFont.load_default(11)
    ImageDraw.Draw(frame).text((5, 2), words, fill=(240, 242, 246), font=font)
    return frame


def _write_gif(file: IO[bytes], frames: Iterator[Any], fps: float) -> None:
    first = next(frames)
    reduced = (frame.quantize(256) for frame in frames)
    first.quantize(256).save(
        file, "GIF", save_all=True, append_images=reduced, duration=round(100.0 / fps) * 10, loop=0, disposal=1
    )


def _write_mp4(path: Path, frames: Iterator[Any], fps: float) -> None:
    first = next(frames)
    writer = _ffmpeg().write_frames(
        str(path), first.size, fps=fps, codec="libx264", macro_block_size=2, output_params=["-movflags", "+faststart"]
    )
    try:
        writer.send(None)
        writer.send(first.tobytes())
        for frame in frames:
            writer.send(frame.tobytes())
    except OSError as error:
        raise UserError(f"ffmpeg could not write the film: {error}") from None
    finally:
        writer.close()
