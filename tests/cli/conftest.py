from __future__ import annotations

from contextlib import contextmanager

import pytest

from vpac.evaluation import certification
from vpac.lab.report import draw, measured
from vpac.risk.monitoring import delay_rows


@contextmanager
def quick_style():
    """Every figure is drawn, by the same code, without what takes matplotlib longest: `tests/lab/report` looks at figures."""
    with STYLE() as plt, plt.rc_context({"pdf.fonttype": 3, "savefig.bbox": None}):
        yield plt


STYLE = draw.figure_style


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Commands write all that they write, with quick figures and short simulations of a certificate's alarms."""
    monkeypatch.setattr(draw, "figure_style", quick_style)
    monkeypatch.setattr(measured, "figure_style", quick_style)
    monkeypatch.setattr(certification, "delay_rows", lambda watch, **how: delay_rows(watch, **how | {"trials": 10}))
