"""Figures and certificates without what takes longest, for tests that do not look at them: `tests/lab/report` and
`tests/evaluation` do."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from unittest import mock

import numpy as np

from vpac.evaluation import certification
from vpac.lab.report import draw, measured
from vpac.risk.monitoring import delay_rows

STYLE, SAVE, SVG = draw.figure_style, draw.save, draw.static_svg
DRAWN: dict[tuple[str, str], bytes | str] = {}
"""What was drawn, by the chart's content and the kind of file: the same chart is the same drawing."""


def content(chart) -> str:
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return repr(chart)


def save(chart, *paths):
    key = content(chart)
    known = [path for path in paths if (key, path.suffix) in DRAWN]
    for path in known:
        path.write_bytes(DRAWN[key, path.suffix])
    for path in SAVE(chart, *(path for path in paths if path not in known)):
        DRAWN[key, path.suffix] = path.read_bytes()
    return list(paths)


def static_svg(chart):
    key = content(chart), "page"
    if key not in DRAWN:
        DRAWN[key] = SVG(chart)
    return DRAWN[key]


@contextmanager
def quick_style():
    """Every figure is drawn, by the same code, without what takes matplotlib longest."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    no_layout = mock.patch.object(ConstrainedLayoutEngine, "execute", return_value=None)
    with STYLE() as plt, plt.rc_context({"pdf.fonttype": 3, "savefig.bbox": None}), no_layout:
        yield plt


def make_quick(setattr=setattr):
    """Everything is written as before, with quick figures and short simulations of a certificate's alarms."""
    for module in (draw, measured):
        setattr(module, "figure_style", quick_style)
        setattr(module, "static_svg", static_svg)
    setattr(draw, "save", save)
    setattr(certification, "delay_rows", lambda watch, **how: delay_rows(watch, **how | {"trials": 10}))
