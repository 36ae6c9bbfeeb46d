"""The arithmetic of docs/cluster.md: what the paper's MuJoCo study takes on a cluster, and a hundred times that.

Every number that was measured or assumed is at the top of this file, once. The table that this prints stands in the docs.

    python benchmarks/cluster_plan.py
"""

from __future__ import annotations

STEPS_PER_SECOND, CORES_A_RUN = 10_900, 2
"""Environment steps a second of one run on that many cores: `benchmarks/deep.py`, 64 environments."""
DRIVER_SECONDS = 845e-6
"""Of the driver's processor for each run: `benchmarks/scheduler.py`, no-op tasks."""
FEWEST, MOST = 24.6e6, 41.0e6
"""Steps of a run in the paper."""
RUNS = 3 * 4 * 20
"""Environments × algorithms × seeds."""
BYTES, CHECKPOINT, OBJECTS = 0.5e6, 0.3e6, 3
"""ASSUMED: of a finished run, of a checkpoint (two networks of 64 × 64 with their optimisers); files of a run."""
REQUESTS = 6
"""To the store for each run: is it there, two files, the record, forget an earlier failure; one more when it is read."""


def row(times: int, cores: int) -> str:
    """One size of study on one size of cluster; the runs last evenly between the fewest and the most steps."""
    runs = RUNS * times
    work = runs * (FEWEST + MOST) / 2 / STEPS_PER_SECOND * CORES_A_RUN
    slots = min(runs, cores // CORES_A_RUN)
    longest = MOST / STEPS_PER_SECOND
    waves = work / CORES_A_RUN / slots
    wall = longest if slots == runs else waves + longest / 2  # at the end slots idle while the last long runs finish
    messages = 2 * runs / wall
    cells = (
        f"{runs:,}", f"{cores:,}", f"{work / 3600:,.0f}", f"{wall / 3600:,.1f} h", f"{runs * BYTES / 1e9:,.1f} GB",
        f"{slots * CHECKPOINT / 1e9:,.2f} GB", f"{runs * OBJECTS:,}", f"{messages:.2f}", f"{REQUESTS * runs / wall:.2f}",
        f"{runs * DRIVER_SECONDS:.1f} s",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main() -> None:
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
