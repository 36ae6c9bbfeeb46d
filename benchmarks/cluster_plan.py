"""The arithmetic of docs/cluster.md: what the paper's MuJoCo study takes on a cluster, and a hundred times that.

Every number that was measured is at the top of this file, once. The table that this prints stands in the docs.

    python benchmarks/cluster_plan.py
    python benchmarks/cluster_plan.py --measure results    sizes of the stored runs and checkpoints of the PPO family
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

STEPS_PER_SECOND, CORES_A_RUN = 10_900, 2
"""Environment steps a second of one run on that many cores: `benchmarks/deep.py`, 64 environments."""
DRIVER_SECONDS = 845e-6
"""Of the driver's processor for each run: `benchmarks/scheduler.py`, no-op tasks."""
FEWEST, MOST = 24.6e6, 41.0e6
"""Steps of a run in the paper."""
RUNS = 3 * 4 * 20
"""Environments × algorithms × seeds."""
BYTES, CHECKPOINTS, OBJECTS = 0.14e6, 2 * 2.22e6, 3
"""Of a finished run with a curve of 1000 rows, of the two checkpoints of a run with a history of 4096 rows: none has more
(`--measure`; networks of 64 × 64 with their optimisers). Files of a run."""
REQUESTS = 6
"""To the store for each run: is it there, two files, the record, forget an earlier failure; one more when it is read."""
CHECKPOINT_REQUESTS, CHECKPOINT_STEPS = 8, 50 * 64 * 128
"""To a bucket for each checkpoint: four files come, four older ones go; steps from one to the next: 50 iterations."""


def row(times: int, cores: int) -> str:
    """One size of study on one size of cluster; the runs last evenly between the fewest and the most steps."""
    runs = RUNS * times
    work = runs * (FEWEST + MOST) / 2 / STEPS_PER_SECOND * CORES_A_RUN
    slots = min(runs, cores // CORES_A_RUN)
    longest = MOST / STEPS_PER_SECOND
    waves = work / CORES_A_RUN / slots
    wall = longest if slots == runs else waves + longest / 2  # at the end slots idle while the last long runs finish
    messages = 2 * runs / wall
    requests = runs * REQUESTS + runs * (FEWEST + MOST) / 2 / CHECKPOINT_STEPS * CHECKPOINT_REQUESTS
    cells = (
        f"{runs:,}", f"{cores:,}", f"{work / 3600:,.0f}", f"{wall / 3600:,.1f} h", f"{runs * BYTES / 1e9:,.2f} GB",
        f"{slots * CHECKPOINTS / 1e9:,.2f} GB", f"{runs * OBJECTS:,}", f"{messages:.2f}", f"{requests / wall:,.1f}",
        f"{runs * DRIVER_SECONDS:.1f} s",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def measure(store: Path) -> None:
    """What the runs and checkpoints of the PPO family in a store take, by the rows of their curves, and at the most rows."""
    import numpy as np

    from vpac.deep.logs import MOST_HISTORY_ROWS
    from vpac.lab.kinds.deep import CURVE_ROWS
    from vpac.lab.store.store import Store

    def tell(what: str, size: float, base: float, row: float, most: int) -> None:
        print(
            f"{what}: {size / 1e6:.3f} MB on average; {base / 1e6:.3f} MB and {row:.0f} bytes a row of the curve, ",
            end="",
        )
        print(f"so {(base + most * row) / 1e6:.2f} MB with {most} rows, which is the most")

    kept = Store(store)
    runs = [record for record in map(kept.read, kept.names()) if record.run.task["kind"] == "deep"]
    curves = np.array([(run.files["metrics.parquet"]["bytes"], run.metrics().height) for run in runs], float).mean(0)
    whole = np.mean([_bytes(store / "runs" / run.run.name) for run in runs])
    tell(f"{len(runs)} runs", whole, whole - curves[0], curves[0] / curves[1], CURVE_ROWS)
    folders = [path.parent for path in store.glob("checkpoints/*/[0-9]*/agent.json")]
    if folders:
        rows = [len(json.loads((folder / "agent.json").read_text())["history"]["timesteps"]) for folder in folders]
        sizes = [_bytes(folder) for folder in folders]
        slope, base = np.polyfit(rows, sizes, 1)
        tell(f"{len(folders)} checkpoints", float(np.mean(sizes)), base, slope, MOST_HISTORY_ROWS)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=Path, metavar="STORE")
    store = parser.parse_args().measure
    if store is not None:
        measure(store)
        return
    print("| runs | cores | core-hours | wall time | kept | checkpoints | objects | messages/s at the driver "
          "| requests/s at the store | driver's processor, in all |")  # fmt: skip
    print("|" + "---:|" * 10)
    for times, cores in ((1, 2), (1, 64), (1, 480), (100, 480), (100, 4800), (100, 48_000)):
        print(row(times, cores))
    print()
    print(f"a run: {FEWEST / STEPS_PER_SECOND / 3600:.2f} to {MOST / STEPS_PER_SECOND / 3600:.2f} h")
    print(
        f"the driver is full at {1 / DRIVER_SECONDS:,.0f} runs a second: runs of 0.1 s on {0.1 / DRIVER_SECONDS:,.0f} cores"
    )


if __name__ == "__main__":
    main()
