"""False alarms and delays of `vpac.monitor`: the tables of docs/monitor.md.

    python benchmarks/monitor.py            # half a minute; writes docs/data/monitor.json

A false alarm is one in 1000 episodes that come from the same distribution as those of the certificate, which is drawn anew in
every trial, so that its luck is part of the rate. At most 5 % are promised, over any number of episodes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from vpac.files import write_text
from vpac.risk.monitoring import Monitor, delay_rows

RESULTS = Path(__file__).parents[1] / "docs" / "data" / "monitor.json"

RETURNS = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "exponential losses": lambda rng, size: -rng.exponential(size=size),
    "Student's t, 3 degrees of freedom": lambda rng, size: rng.standard_t(3, size),
    "a loss of 10 in one of ten episodes": lambda rng, size: -10.0 * (rng.random(size) < 0.1),
    "lognormal losses": lambda rng, size: -rng.lognormal(0.0, 1.0, size),
}


def false_alarms(name: str, trials: int, certified: int, episodes: int, rng: np.random.Generator) -> float:
    """The share of trials with an alarm."""
    alarms = 0
    for _ in range(trials):
        watch = Monitor(RETURNS[name](rng, certified))
        limits = np.array(list(watch.thresholds.values()))[:, None]
        alarms += bool((watch.paths(RETURNS[name](rng, (1, episodes)), rng)[0] >= limits).any())
    return alarms / trials


def main() -> None:
    """Print both tables and store them."""
    parser = argparse.ArgumentParser(description="False alarms and delays of vpac.monitor.")
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--certified", type=int, default=300, help="episodes of each certificate")
    parser.add_argument("--episodes", type=int, default=1000, help="episodes that are watched")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the figures are stored")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    alarms = {}
    for name in RETURNS:
        alarms[name] = false_alarms(name, given.trials, given.certified, given.episodes, rng)
        print(f"{name:<40}{100 * alarms[name]:5.1f} % false alarms")
    delays = delay_rows(Monitor(rng.standard_normal(1000)), trials=100)
    for row in delays:
        print(f"{row['shift']:<40}after {row['after']:>4}: median {row['median']}, 9 of 10 within {row['most']}")
    settings = {key: value for key, value in vars(given).items() if key != "out"}
    write_text(given.out, json.dumps({**settings, "false_alarms": alarms, "delays": delays}, indent=1) + "\n")


if __name__ == "__main__":
    main()
