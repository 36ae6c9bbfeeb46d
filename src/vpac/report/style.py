"""One look for every figure: quiet axes, colours that colour-blind readers can tell apart, and never colour alone."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vpac.errors import one_of
from vpac.files import write_bytes

__all__ = ["CORRECTED", "INK", "MUTED", "PUBLISHED", "figure_kind", "figure_style", "plain", "save_figure"]

INK, MUTED, PUBLISHED, CORRECTED = "#1c2230", "#7a8290", "#c1440e", "#1f5f99"
FORMATS = ("png", "svg", "pdf")


@contextmanager
def figure_style() -> Iterator[Any]:
    """matplotlib.pyplot, without a screen, in our style."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    look: Any = {
        "axes.edgecolor": MUTED, "axes.labelcolor": INK, "axes.spines.right": False, "axes.spines.top": False,
        "axes.titlelocation": "left", "axes.titlesize": 11, "axes.titleweight": "bold", "figure.dpi": 120,
        "font.family": "DejaVu Sans", "font.size": 9, "legend.frameon": False, "pdf.fonttype": 42, "savefig.bbox": "tight",
        "savefig.dpi": 160, "svg.fonttype": "none", "svg.hashsalt": "vpac", "text.color": INK, "xtick.color": INK,
        "ytick.color": INK,
    }  # fmt: skip
    with plt.rc_context(look):
        try:
            yield plt
        finally:
            plt.close("all")


def figure_kind(path: Path) -> str:
    """png, svg or pdf, by the file's ending."""
    return one_of(Path(path).suffix.lstrip("."), FORMATS, "kind of figure")


def save_figure(figure: Any, path: Path) -> Path:
    """Write a figure whole or not at all; the file's ending says the format."""
    kind = figure_kind(path)
    dated = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, metadata=dated)
    return write_bytes(path, drawn.getvalue())


def plain(text: str, width: int = 48) -> str:
    """Text as it is, in at most three lines: matplotlib reads dollars as mathematics and hides what begins with _."""
    text = "\n".join(textwrap.wrap(text, width, max_lines=3, placeholder=" …")).replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text
