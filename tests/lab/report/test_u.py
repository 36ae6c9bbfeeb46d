"""The interval of U = mean − ψ · variance covers U about as often as it says, if there are enough episodes."""

from __future__ import annotations

import numpy as np
import pytest

from vpac.lab.report.measured import Evaluation
from vpac.risk import ReturnSample

LAWS = {
    "normal": (lambda rng, n: rng.normal(size=n), 0.0, 1.0),
    "exponential": (lambda rng, n: rng.exponential(size=n), 1.0, 1.0),
    "one in twenty": (lambda rng, n: -10.0 * (rng.random(n) < 0.05), -0.5, 4.75),
}
TRIALS = 1000


@pytest.mark.parametrize("aversion", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("episodes", "least"), [(1000, 0.93), (100, 0.85)])
def test_u_lies_within_its_interval(law, aversion, episodes, least):
    draw, mean, variance = LAWS[law]
    rng, psi, hits = np.random.default_rng(0), aversion / variance**0.5, 0
    evaluation = Evaluation({}, psi=psi)
    for _ in range(TRIALS):
        x = draw(rng, episodes)
        found = evaluation._u(ReturnSample(x, x, np.ones(episodes, int), np.ones(episodes, bool), gamma=1.0))
        hits += found.low <= mean - psi * variance <= found.high
    assert hits / TRIALS > least - 4.0 * (least * (1.0 - least) / TRIALS) ** 0.5
