from __future__ import annotations

from contextlib import contextmanager

import pytest

from vpac.lab.report import draw

STYLE = draw.figure_style


@contextmanager
def quick_fonts():
    with STYLE() as plt, plt.rc_context({"pdf.fonttype": 3}):
        yield plt


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Fonts in PDF files are not cut down to the letters in use: that takes longer than to draw. `test_chart.py` does it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "figure_style", quick_fonts)
        yield
