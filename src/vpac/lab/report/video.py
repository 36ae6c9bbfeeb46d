"""Pictures as a film: GIF by Pillow alone, MP4 where imageio-ffmpeg is installed."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from vpac.errors import UserError
from vpac.files import write_atomically, write_bytes
from vpac.lab.kinds.watching import Shot

FASTEST = {".gif": 100.0 / 3.0, ".mp4": 60.0}
"""Pictures per second that viewers of each kind of file can show."""
SLOWEST = 1.0
WIDEST = {".gif": 400, ".mp4": 1280}
"""Pixels of the longer side; larger pictures are made smaller."""
SMALLEST = 240
"""Pixels of the shorter side of a picture that words are still readable on; smaller pictures are enlarged."""
BAND = 18
"""Pixels of the line of numbers above the picture."""
Pace = tuple[int, float]
"""Every how many-th step is shown, and pictures per second."""


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
    except ModuleNotFoundError:
        raise UserError(
            "MP4 needs imageio-ffmpeg, of the extra `video`: pip install 'vpac[video]'; GIF needs nothing: --out FILE.gif"
        ) from None
    return imageio_ffmpeg


def pace(fps: float, kind: str) -> Pace:
    """For an environment that takes `fps` steps per second: real time, leaving out what no viewer can show."""
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
    factor = min(WIDEST[kind] / max(width, height), max(1.0, math.ceil(SMALLEST / min(width, height))))
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
