from __future__ import annotations

import csv
import io
import json
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import demo
from vpac.envs.maps import EIGHT_MOVES
from vpac.lab.report.chart import (
    Arrow,
    Chart,
    Grid,
    Line,
    Lines,
    Points,
    Reference,
    Region,
    Spots,
    Table,
    Trajectory,
    shown,
)
from vpac.lab.report.draw import draw, figure_style, static_svg, write
from vpac.lab.report.explorer import policy_arrows
from vpac.lab.report.geometry import (
    DARK,
    LIGHT,
    MARKERS,
    SERIES_STYLES,
    along,
    arrow_strokes,
    covered,
    hatching,
    legend,
    look,
    outline,
    place_labels,
    strokes,
)
from vpac.lab.report.interactive import figures
from vpac.oracle import evaluate

EVERY = (demo.curves, demo.effect_of_price, demo.plane, demo.maps, demo.ways)


def chart(*panels, **options):
    return Chart("name", "title", "caption", panels, **options)


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="y has 1 values, x has 2"):
        Line("a", [1, 2], [1])
    with pytest.raises(ValueError, match="needs low and high, or neither"):
        Line("a", [1], [1], low=[0])
    with pytest.raises(ValueError, match="low is above its high"):
        Line("a", [1], [1], [2], [1])
    with pytest.raises(ValueError, match="mixes categories and numbers"):
        Points([Spots("a", ["x"], [1]), Spots("b", [1.0], [1])])
    with pytest.raises(ValueError, match="1 names for 2 points"):
        Spots("a", [1, 2], [1, 2], names=["x"])
    with pytest.raises(ValueError, match="chart name"):
        Chart("../x", "t", "c", [Lines([])])
    with pytest.raises(ValueError, match="no panels"):
        chart()
    with pytest.raises(ValueError, match=r"values are \(1, 2\), walls \(2, 2\)"):
        Grid(np.zeros((2, 2), bool), [[1, 2]])
    with pytest.raises(ValueError, match="unknown style of a series"):
        look("VPAX")


def test_a_table_holds_every_number_that_is_drawn():
    line = Line("a", np.array([0, 1]), np.array([0.1, 2.0]), [0, 1], [1, 3])
    table = chart(Lines([line], "episodes", "mean", references=[Reference(4.0, "paper")])).table()
    assert table.columns == ("series", "episodes", "mean", "low", "high")
    assert table.rows == (("a", 0, 0.1, 0, 1), ("a", 1, 2.0, 1, 3), ("paper (reference)", None, 4.0, None, None))
    rows = list(csv.reader(io.StringIO(table.as_csv())))
    assert [float(x) for x in rows[1][1:]] == [0, 0.1, 0, 1]
    assert rows[3] == ["paper (reference)", "", "4.0", "", ""]


def test_panels_that_measure_different_things_share_the_column():
    table = chart(
        Lines([Line("a", [1], [2])], "x", "mean", "A"), Lines([Line("a", [1], [3])], "x", "variance", "B")
    ).table()
    assert table.columns == ("panel", "series", "x", "y")
    assert table.rows == (("A", "a", 1, 2), ("B", "a", 1, 3))


def test_a_map_as_a_table():
    frozen = Region("frozen", np.array([[True, False, False]]))
    grid = Grid(
        [[False, False, True]], [[1.5, np.nan, 7.0]], "value", regions=[frozen], goal=(0, 1),
        arrows=[Arrow(0, 0, 0, 1, 0.75), Arrow(0, 0, -1, 0, 0.25)], trajectories=[Trajectory("w", [(0, 0), (0, 1)])],
    )  # fmt: skip
    table = chart(grid).table()
    assert table.columns == ("row", "column", "cell", "value", "policy", "trajectory", "step")
    assert table.rows[0] == (0, 0, "frozen", 1.5, "→ 0.75 ↑ 0.25", None, None)
    assert table.rows[1][2:4] == ("goal", None)
    assert table.rows[2:] == ((0.0, 0.0, None, None, None, "w", 0), (0.0, 1.0, None, None, None, "w", 1))


def test_long_tables_are_thinned_evenly():
    table = Table.of(["n"], [[n] for n in range(1000)])
    few = [row[0] for row in table.thinned(11).rows]
    assert few == pytest.approx(np.linspace(0, 999, 11), abs=0.5)
    assert table.thinned(1000) is table
    assert [shown(x) for x in (None, math.nan, -1.5, 2, True, math.inf, 1 / 3)] == [
        "–",
        "–",
        "−1.5",
        "2",
        "yes",
        "∞",
        "0.333333",
    ]


def test_maps_share_a_colour_scale_if_asked():
    one, two = Grid([[False]], [[1.0]], "v"), Grid([[False]], [[3.0]], "v")
    other = Grid([[False]], [[9.0]], "w")
    assert chart(one, two, other).limits(one) == (1.0, 1.0)
    assert chart(one, two, other, shared_scale=True).limits(one) == (1.0, 3.0)


def test_no_two_series_look_alike_without_colour():
    looks = [look(number) for number in range(len(LIGHT))]
    assert len({(seen.marker, str(seen.line)) for seen in looks}) == len(LIGHT) == len(DARK) == len(MARKERS)
    assert len({seen.symbol for seen in looks}) == len({seen.dash for seen in looks}) == len(LIGHT)
    assert len({SERIES_STYLES[name] for name in ("AC", "VPAC", "VAAC", "VAAC_TD")}) == 4


def luminance(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("colours", "ground"), [(LIGHT, "#ffffff"), (DARK, "#14171c")])
def test_series_stand_out_from_the_ground(colours, ground):
    """A contrast of 4.5, what text needs, too: references are labelled in the series' colours."""
    for colour in colours:
        low, high = sorted((luminance(colour), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, colour


def test_arrows_point_up_for_up():
    ((tail, tip), _) = arrow_strokes(Arrow(5, 2, -1, 0))
    assert tip[1] < tail[1]
    assert tip[0] == tail[0] == 2.0
    (_, tip), _ = arrow_strokes(Arrow(0, 0, 0, 1, 0.25))
    assert tip == (pytest.approx(0.17), 0.0)
    mdp, neutral, _ = demo.four_rooms()
    arrows = {(a.row, a.column): (a.down, a.right) for a in policy_arrows(mdp, neutral)}
    row, column = mdp.layout.position[mdp.goal][0]
    assert arrows[row - 1, column] == EIGHT_MOVES["down"]
    assert arrows[row + 1, column] == EIGHT_MOVES["up"]
    assert len(arrows) == mdp.n_states - 1


def test_outline_and_hatching():
    cells = np.zeros((3, 3), bool)
    cells[1, 1] = cells[1, 2] = True
    assert sorted(outline(cells)) == sorted(
        [[(0.5, 0.5), (2.5, 0.5)], [(0.5, 1.5), (2.5, 1.5)], [(0.5, 0.5), (0.5, 1.5)], [(2.5, 0.5), (2.5, 1.5)]]
    )
    assert len(hatching(cells)) == 4


def test_arrows_contrast_with_their_cell():
    grid = Grid([[False] * 3], [[0.0, 10.0, np.nan]], arrows=[Arrow(0, k, 0, 1) for k in range(3)])
    found = {ground: np.unique(np.round(x[np.isfinite(x)])) for _, ground, x, _ in strokes(grid, 0.0, 10.0)}
    assert found == {"deep": [0], "bright": [1], "bare": [2]}


@pytest.mark.parametrize("make", EVERY)
def test_drawing_twice_gives_the_same_bytes(make, tmp_path, monkeypatch):
    if make is demo.curves:
        monkeypatch.setattr("vpac.lab.report.draw.figure_style", figure_style)  # with the fonts that readers get
    one, other = (write(make(), tmp_path / name) for name in ("one", "other"))
    assert [p.name for p in one] == [f"{make().name}.{kind}" for kind in ("pdf", "png", "csv")]
    assert one[2].read_text() == make().table().as_csv()
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, other, strict=True))
    svg = static_svg(make())
    assert svg == static_svg(make())
    assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert "DejaVu Sans', Verdana, sans-serif" in svg


@pytest.mark.parametrize("make", EVERY)
def test_interactive_figures_are_plain_data(make):
    found = figures(make())
    assert len(found) == len(make().panels)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    labels = {label for label, *_ in legend(make())}
    assert {t["legendgroup"] for figure in found for t in figure["data"] if "legendgroup" in t} == labels


def test_interactive_numbers_are_the_charts():
    for panel, figure in zip(demo.effect_of_price().panels, figures(demo.effect_of_price()), strict=True):
        for spots, trace in zip(panel.series, figure["data"], strict=True):
            assert trace["y"] == pytest.approx(spots.y, rel=1e-6)
            high = np.array(trace["y"]) + trace["error_y"]["array"]
            assert high == pytest.approx(spots.high, rel=1e-6)
    grid, figure = demo.maps().panels[0], figures(demo.maps())[0]
    z = np.array(figure["data"][0]["z"], float)
    assert np.array_equal(np.isnan(z), np.isnan(grid.values))
    assert np.nanmax(np.abs(z - grid.values)) < 1e-4
    assert figure["layout"]["yaxis"]["range"] == [12.5, -0.5], "row 0 is at the top"


def test_long_curves_are_thinned():
    x = np.arange(5000)
    long = chart(Lines([Line("a", x, 2 * x, x, 3 * x)]), Grid([[False]]))
    low, high, curve = figures(long.thinned(600))[0]["data"]
    assert len(curve["x"]) == len(low["y"]) == len(high["y"]) == 600
    assert (curve["x"][0], curve["x"][-1], curve["y"][-1]) == (0.0, 4999.0, 9998.0)
    assert len(long.table().rows) == 5001


def test_strange_numbers_are_drawn_without_warnings(tmp_path):
    gaps = Line("gaps", [1, 2, 3], [np.nan, np.inf, 1.0], [np.nan] * 3, [np.nan] * 3)
    panels = [
        Lines([gaps, Line("empty", [], [])], y_log=True, references=[Reference(1.0, "a $b$ _c")]),
        Points([Spots("one", [0.0], [np.nan], [np.nan], [np.nan])], x_log=False),
        Points([Spots("_hidden $name", ["a", "b"], [2.0, 1.0], [2.5, 0.0], [3.0, 2.0])], sideways=True),
        Grid([[True, False]], None),
        Grid([[False, False]], [[2.0, 2.0]], "same"),
    ]
    strange = chart(*panels)
    write(strange, tmp_path)
    json.dumps(figures(strange), allow_nan=False)
    assert static_svg(strange)


def test_the_explorer_is_the_oracles():
    found, (mdp, neutral, _) = demo.explorer().data, demo.four_rooms()
    moments, point = evaluate(mdp, neutral, demo.GAMMA), found["points"][0]
    assert point["mean"] == moments.mean
    assert point["variance"] == moments.total_variance
    assert demo.explorer().table().rows[0][:3] == (0.0, moments.mean, moments.total_variance)
    shape = found["rows"], found["columns"]
    cells = np.array(point["cellVariance"], float).reshape(shape)
    assert len(point["actions"]) == len(point["visitation"]) == cells.size
    for state in np.flatnonzero(~mdp.terminal)[::7]:
        assert cells[tuple(mdp.layout.position[state])] == pytest.approx(moments.variance[state], rel=1e-6)
    assert np.isnan(cells[tuple(found["goal"])])
    assert sum(found["walls"]) == np.prod(shape) - mdp.n_states


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_words_keep_out_of_each_others_way():
    """Twelve points nearly in one place, as the bold end of two frontiers is."""
    rng = np.random.default_rng(0)
    at = 100.0 + rng.normal(0.0, 6.0, (12, 2))
    bars = np.concatenate([along([(x - 40.0, y), (x + 40.0, y)]) for x, y in at])
    sizes, frame = [(38.0, 9.0)] * 12, (0.0, 0.0, 260.0, 220.0)
    found = place_labels(at, sizes, frame, at, bars)
    assert found == place_labels(at, sizes, frame, at, bars)
    assert not any(overlap(a, b) for k, a in enumerate(found) for b in found[:k])
    assert all(min(a[:2]) >= 0.0 and a[2] <= 260.0 and a[3] <= 220.0 for a in found)
    for left, bottom, right, top in found:
        assert not ((at[:, 0] > left) & (at[:, 0] < right) & (at[:, 1] > bottom) & (at[:, 1] < top)).any()
    (alone,) = place_labels([(50.0, 50.0)], [(38.0, 9.0)], frame, np.array([[50.0, 50.0]]), np.empty((0, 2)))
    assert (alone[0], alone[1]) == (pytest.approx(50.0 + 4.5 / 2**0.5), pytest.approx(50.0 + 4.5 / 2**0.5))


def test_words_in_a_figure_do_not_overlap():
    x, names = np.array([1.0, 1.02, 1.04, 2.0, 2.03, 2.05]), [f"ψ = {k}" for k in range(6)]
    panel = Points([Spots(label, x + k / 50, x, x - 0.5, x + 0.5, names=names) for k, label in enumerate("ab")])
    with figure_style() as plt:
        figure = draw(plt, chart(panel))
        figure.draw_without_rendering()
        words = [text for text in figure.axes[0].texts if text.get_text()]
        boxes = [text.get_window_extent().extents for text in words]
    assert sorted(text.get_text() for text in words) == sorted(names * 2)
    assert not any(overlap(tuple(a), tuple(b)) for k, a in enumerate(boxes) for b in boxes[:k])


def test_bars_that_leave_the_panel_end_in_an_arrow():
    spots = Spots("a", [1.0, 2.0], [1.0, 2.0], [0.5, -9.0], [1.5, 2.5], [0.9, 1.5], [1.1, 99.0])
    with figure_style() as plt:
        axis = draw(plt, chart(Points([spots], x_range=(0.0, 3.0), y_range=(0.0, 3.0)))).axes[0]
        arrows = {
            line.get_marker(): tuple(line.get_xydata()[0]) for line in axis.lines if line.get_marker() in tuple("<>^v")
        }
        ends = np.concatenate([np.concatenate(bars.get_segments()) for bars in axis.collections])
    assert arrows == {">": (3.0, 2.0), "v": (2.0, 0.0)}
    assert ends.min() == 0.0
    assert ends.max() == 3.0


def test_a_point_upon_another_is_a_ring_around_it():
    one, other = Spots("one", [0.0, 10.0], [0.0, 5.0]), Spots("other", [10.01, 0.0], [5.0, 2.0])
    panel = Points([one, other, Spots("mark", [10.0], [5.0])])
    assert covered(panel) == [[0, 0], [1, 0], [2]]
    with figure_style() as plt:
        drawn = [line for line in draw(plt, chart(panel)).axes[0].lines if line.get_marker() in ("o", "s", "^")]
    size = {(line.get_marker(), line.get_markerfacecolor() == "none"): line.get_markersize() for line in drawn}
    assert size["^", True] > size["s", True] > size["s", False] == size["o", False]


def test_a_file_says_what_it_shows_and_the_page_has_the_title(tmp_path):
    panel = Points([Spots("a", [1.0], [1.0])])
    travels = chart(panel, foot="Bars: 95 % intervals")
    with figure_style() as plt:
        alone, embedded = (
            [t.get_text().strip() for t in draw(plt, travels, alone=alone).texts] for alone in (True, False)
        )
    assert alone == ["title", "Bars: 95 % intervals"]
    assert embedded == ["", "Bars: 95 % intervals"]  # also in a picture saved from the page
    assert "Bars" in static_svg(travels)
    assert ">title<" not in static_svg(travels)  # the page has it above
