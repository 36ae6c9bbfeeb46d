"""Frontiers as figures and tables: layout and text."""

from __future__ import annotations

import pytest

from lab.test_frontier import spec
from vpac.cli.output import as_rich
from vpac.lab.frontier import FrontierResult
from vpac.lab.report.trade_off import TracedFrontier
from vpac.risk import FrontierPoint, Interval, TradeOff

WORLD = "vpac/RiskyShortcut-v0"


def point(psi, mean, std, bars=(0.1, 0.1), step=None):
    return FrontierPoint(
        psi, Interval(mean, mean - bars[0], mean + bars[0]), Interval(std, max(0.0, std - bars[1]), std + bars[1]),
        None if step is None else Interval(step, step, step),
    )  # fmt: skip


def found(*points, seeds=3, mvpi=None):
    return FrontierResult(spec(WORLD, "vpac", length=60, seeds=seeds), TradeOff(points), {}, mvpi=mvpi)


def chart_of(frontier):
    (chart,) = TracedFrontier(frontier).charts()
    return chart


def test_the_axes_make_room_for_bars_as_far_as_points_stay_apart():
    (panel,) = chart_of(found(point(0.0, 10.0, 5.0, (2.0, 1.0)), point(0.1, 6.0, 3.0, (1.0, 50.0)))).panels
    assert panel.y_range == (pytest.approx(5.0 - 0.4), pytest.approx(12.0 + 0.4))  # both bars, and a little more
    assert panel.x_range == (pytest.approx(2.0 - 0.2), pytest.approx(6.0 + 0.2))  # half of the points' spread at most


def test_every_point_has_its_price():
    mvpi = TradeOff((point(0.0, 10.0, 5.0, step=1.0), point(0.5, 5.0, 3.0, step=0.5)))
    ours = (point(0.0, 10.0, 5.0, step=1.0), point(0.1, 9.99, 4.99, step=1.0), point(0.2, 8.0, 5.0, step=0.9))
    for panel in chart_of(found(*ours, mvpi=mvpi)).panels:
        words = [name for spots in panel.series for name in spots.names]
        assert sorted(words) == ["λ = 0", "λ = 0.5", "ψ = 0", "ψ = 0.1", "ψ = 0.2"]


def test_the_figure_names_the_environment_and_its_bars():
    both = (point(0.0, 10.0, 5.0), point(0.1, 6.0, 3.0))
    drawn = chart_of(found(*both))
    assert drawn.title == f"{WORLD}: mean against spread"
    assert "95 % intervals over 3 seeds" in drawn.foot
    assert "60 episodes" in drawn.foot
    assert "over the episodes" in chart_of(found(*both, seeds=1)).foot


def test_more_spread_is_added_and_numbers_keep_their_sign_of_percent(capsys):
    (table,) = TracedFrontier(found(point(0.0, 10.0, 5.0), point(0.1, 9.0, 5.3), point(0.2, 8.0, 2.0))).tables()
    said = [row[4].replace("\N{NO-BREAK SPACE}", "_") for row in table.rows]
    assert said == ["keeps 100_%\nremoves 0_%", "keeps 90_%\nadds 6_%", "keeps 80_%\nremoves 60_%"]
    from rich.console import Console

    Console(width=50).print(as_rich(table))
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("adds 6\N{NO-BREAK SPACE}%", "removes 60\N{NO-BREAK SPACE}%"))
