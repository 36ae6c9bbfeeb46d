"""Figures of trainings: bands end where quantities do."""

from __future__ import annotations

import numpy as np

from vpac.lab.report.style import figure_style
from vpac.lab.report.training import _band


def test_the_band_of_a_variance_ends_at_zero():
    """Two runs have intervals of 12.7 standard errors."""
    rows = np.array([[1.0, 1.0], [3.0, 1.1]])
    with figure_style() as plt:
        cut, whole = plt.subplots(1, 2)[1]
        _band(cut, [1.0, 2.0], rows, "black", cut=True)
        _band(whole, [1.0, 2.0], rows, "black")
        lows = [axis.collections[0].get_paths()[0].vertices[:, 1].min() for axis in (cut, whole)]
    assert lows[0] == 0.0
    assert lows[1] < -10.0
