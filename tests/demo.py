"""A page with every kind of panel and synthetic numbers: test data, no results.

The explorer is the exception: its world is four rooms and its numbers are the oracle's, of policies that are greedy in
Q − ψσ rather than the best ones, because those take a while to find.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from vpac.envs import FourRooms
from vpac.lab.report.chart import (
    Chart,
    ClaimEstimate,
    ClaimRow,
    Document,
    Failure,
    Grid,
    Line,
    Lines,
    Points,
    Reference,
    Region,
    Section,
    Spots,
    Table,
    Trajectory,
)
from vpac.lab.report.explorer import explore, policy_arrows
from vpac.oracle import Frontier, evaluate, greedy, optimal_policy

GAMMA = 0.99
HOSTILE = "</script><script>window.hacked = true</script><img src=x onerror='window.hacked = true'>"
ALGORITHMS = ("AC", "VPAC", "VAAC", "VAAC_TD")


def curves() -> Chart:
    random = np.random.default_rng(1)
    x = np.arange(0, 1001, 10)
    panels = []
    for title, ends in (("mean return", (44, 43, 41, 36)), ("variance of the return", (126, 74, 92, 150))):
        series = []
        for name, end, speed in zip(ALGORITHMS, ends, (90, 130, 220, 300), strict=True):
            y = end * (1 - np.exp(-x / speed)) + random.normal(0, 0.01 * end, len(x))
            spread = 0.04 * end + 0.1 * end * np.exp(-x / speed)
            series.append(Line(name, x, y, y - spread, y + spread, style=name))
        marks = [Reference(ends[1] * 1.06, "paper, VPAC", style="VPAC")]
        panels.append(Lines(series, "episodes", title, title, references=marks))
    caption = (
        "Learning curves, mean over 50 runs with 95 % intervals. The dashed line is the number in the paper's table."
    )
    return Chart("four-rooms-curves", "Learning curves on four rooms", caption, panels, notes=["Made-up numbers."])


def effect_of_price() -> Chart:
    psi = np.array([0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05])
    numbers = []
    for name, scale in (("VPAC", 40), ("VAAC", 60)):
        y = 130 * np.exp(-psi * scale)
        numbers.append(Spots(name, psi, y, y - 8, y + 8, joined=True, style=name))
    words = []
    for name, base in zip(ALGORITHMS, (126, 74, 92, 150), strict=True):
        y = base * np.array([1.0, 0.95, 1.1])
        words.append(Spots(name, ["four rooms", "puddle world", "risky shortcut"], y, y - 9, y + 9, style=name))
    return Chart(
        "effect-of-price", "The effect of ψ", "Variance of the final policy, with 95 % bootstrap intervals over runs.",
        [Points(numbers, "ψ", "variance", "four rooms", x_log=True), Points(words, "", "variance", "final variance")],
    )  # fmt: skip


def plane() -> Chart:
    random = np.random.default_rng(2)
    spots = []
    for name in ALGORITHMS[:3]:
        x, y = random.uniform(30, 130, 4), random.uniform(38, 46, 4)
        spots.append(
            Spots(name, x, y, y - 0.6, y + 0.6, x - 5, x + 5, ["ψ = 0.1", "ψ = 0.2", "ψ = 0.3", ""], style=name)
        )  # fmt: skip
    lengths = ["VPAC, step-size ratio 0.1", "VPAC, step-size ratio 1", "VAAC, temperature 100 (default)"]
    ours = Spots("ours", lengths, [1.2, 0.9, 1.4], [1.0, 0.8, 1.1], [1.4, 1.0, 1.7])
    paper = Spots("the paper's", lengths, [1.1, 1.3, 1.4], style="paper")
    return Chart(
        "mean-variance-plane", "Mean and variance", "Each point is an algorithm at a price. Up and to the left is better.",
        [Points(spots, "variance", "mean", "final policies"),
         Points([ours, paper], "", "ratio of variances to AC", "against the paper", sideways=True,
                references=[Reference(1.0, "as AC")])],
        columns=1,
    )  # fmt: skip


@cache
def four_rooms():
    """The world, and a cautious and a neutral policy."""
    mdp = FourRooms().mdp
    return mdp, optimal_policy(mdp, GAMMA), cautious(mdp, 0.05)


def cautious(mdp, psi):
    moments = evaluate(mdp, optimal_policy(mdp, GAMMA), GAMMA)
    for _ in range(10):
        moments = evaluate(mdp, greedy(moments.action_value - psi * moments.action_variance), GAMMA)
    return moments.policy


def maps() -> Chart:
    mdp, neutral, careful = four_rooms()
    layout = mdp.layout
    panels = []
    for title, policy in (("ψ = 0", neutral), ("ψ = 0.05", careful)):
        moments = evaluate(mdp, policy, GAMMA)
        values = layout.fill(np.where(mdp.terminal, np.nan, moments.variance))
        panels.append(
            Grid(layout.state < 0, values, "variance of the return", title, [Region("frozen", layout.letters == "f")],
                 goal=tuple(layout.position[mdp.goal][0].tolist()), arrows=policy_arrows(mdp, policy))
        )  # fmt: skip
    return Chart(
        "four-rooms-policies", "What the policies do", "Arrows show the likeliest move, colours the variance of the return "
        "from each cell. Frozen cells are hatched.", panels, shared_scale=True,
    )  # fmt: skip


def ways() -> Chart:
    mdp, _, _ = four_rooms()
    layout = mdp.layout
    walk = [
        (10, 2),
        (9, 2),
        (8, 2),
        (7, 2),
        (6, 2),
        (5, 2),
        (4, 3),
        (3, 4),
        (3, 5),
        (3, 6),
        (3, 7),
        (4, 8),
        (5, 9),
        (6, 9),
        (7, 9),
    ]
    around = [(10, 2), (10, 3), (10, 4), (10, 5), (10, 6), (10, 7), (9, 8), (8, 9), (7, 9)]
    grid = Grid(
        layout.state < 0, None, "", "four rooms", [Region("frozen", layout.letters == "f")], (7, 9),
        trajectories=[Trajectory("AC", walk, "AC"), Trajectory("VPAC", around, "VPAC")],
    )  # fmt: skip
    t = np.linspace(0, 1, 60)
    random = np.random.default_rng(4)
    straight = np.column_stack([18 - 17 * t, 4 + 15 * t]) + random.normal(0, 0.2, (60, 2))
    curved = np.column_stack([18 - 17 * t**0.5, 4 + 15 * t**3]) + random.normal(0, 0.2, (60, 2))
    puddle = np.zeros((20, 20), bool)
    puddle[6:14, 6:14] = True
    square = Grid(
        np.zeros((20, 20)), title="continuous puddle world", regions=[Region("puddle", puddle)], goal=(0, 19),
        trajectories=[Trajectory("AC", straight, "AC"), Trajectory("VPAC", curved, "VPAC")],
    )  # fmt: skip
    return Chart("ways", "Ways walked", "A ring marks where a way begins, a filled mark where it ends.", [grid, square])


@cache
def explorer():
    mdp, neutral, _ = four_rooms()
    psis = np.array([0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064])
    policies = np.stack([neutral] + [cautious(mdp, psi) for psi in psis[1:]])
    moments = [evaluate(mdp, policy, GAMMA) for policy in policies]
    means, variances = (np.array([float(getattr(m, name)) for m in moments]) for name in ("mean", "total_variance"))
    found = Frontier(psis, means, variances, policies, "return")
    about = "Drag the slider: each position is another price of variance, and the policy is evaluated exactly."
    return explore(mdp, found, GAMMA, about)


def claims() -> list[ClaimRow]:
    return [
        ClaimRow("Four rooms, on-policy", "VPAC has lower variance than AC in the performance.", "77 % of AC's",
                 ClaimEstimate(58.73, 55.1, 62.4, "%", ".1f"), "holds", "The ratio of variances lies below 100 %.",
                 "vpac reproduce four-rooms --claim variance", "four-rooms"),
        ClaimRow("Four rooms, on-policy", "VPAC reaches about the same mean return as AC.", "",
                 ClaimEstimate(-0.331, -0.52, -0.141, "", ".3f"), "does not hold",
                 "The difference of means is below zero with 95 % confidence.",
                 "vpac reproduce four-rooms --claim mean", "four-rooms"),
        ClaimRow("Puddle world, off-policy", "VPAC is the least sensitive to the step-size ratio.", "", None, "undecided",
                 "Too few runs ended.", "vpac reproduce puddle-world --claim ratio", "puddle-world"),
    ]  # fmt: skip


def document(hostile: str = "") -> Document:
    """The page; `hostile` is put wherever text can stand."""
    settings = Table.of(
        ("arm", "ψ", "α_θ", "α_w", "temperature"),
        [("AC" + hostile, 0.0, 0.005, 0.5, 1.0), ("VPAC", 0.01, 0.005, 0.5, 1.0), ("VAAC_TD", 0.015, 0.01, 0.25, 1.0)],
    )
    final = Table.of(
        ("algorithm" + hostile, "mean", "variance", "Sharpe ratio"),
        [("AC", 44.1, 126.2, 3.9), ("VPAC" + hostile, 43.2, 74.1, 5.0)], "Final policies",
    )  # fmt: skip
    provenance = {
        "runs": 200,
        "seeds": "0–49",
        "commit": "0123abc" + hostile,
        "machine": "test machine, 2 cores",
        "numpy": "2.4",
    }
    rooms = Section(
        "four-rooms", "Four rooms, on-policy" + hostile, "What the paper's figure 2 shows.\n\nA second paragraph." + hostile,
        (curves(), maps(), effect_of_price()), (final,), settings, provenance, 754.2, "vpac reproduce four-rooms" + hostile,
    )  # fmt: skip
    puddle = Section(
        "puddle-world", "Puddle world, off-policy", "Made-up numbers.", (plane(), ways()), (), settings, provenance, 43.6,
        "vpac reproduce puddle-world",
    )  # fmt: skip
    rows = claims()
    if hostile:
        rows.append(
            ClaimRow(
                hostile, hostile, hostile, ClaimEstimate(1.0, 0.5, 2.0, hostile), "holds", hostile, hostile, hostile
            )
        )
        line = Line(hostile, [0, 1], [1, 2])
        spots = Spots(hostile, [hostile], [1.0], names=[hostile])
        nasty = [
            Lines([line, line], hostile, hostile, hostile, references=[Reference(1.0, hostile)]),
            Points([spots], hostile, hostile, hostile),
            Grid([[False, True]], [[1.0, 2.0]], hostile, hostile, [Region(hostile, np.array([[True, False]]))],
                 trajectories=[Trajectory(hostile, [(0, 0)])]),
        ]  # fmt: skip
        chart = Chart("nasty", hostile, hostile, nasty, [hostile])
        rooms = Section(**{**vars(rooms), "charts": (*rooms.charts, chart)})
    failures = [
        Failure("VAAC seed 7" + hostile, "Diverged: the weights are not finite", "Traceback (most recent call last):\n"
                '  File "loop.py", line 3, in <module>' + hostile, "vpac reproduce four-rooms --seed 7" + hostile),
    ]  # fmt: skip
    return Document(
        "Variance penalised actor-critics: the reproduction" + hostile,
        "Every claim of the paper, rerun. Test data only." + hostile, "2026-01-31 12:00 UTC" + hostile, rows,
        (rooms, puddle), failures, explorer(), {"vpac": "0.1.0" + hostile, "numpy": "2.4"},
    )  # fmt: skip
