"""Writes docs/data/mujoco.json, what each run of the MuJoCo experiments came down to, and prints the table of docs/mujoco.md.

python docs/summarise.py [STORE]        reads a store first
python docs/summarise.py --table        the table only, from the file that is there
"""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from vpac.lab.store.records import studies
from vpac.lab.store.store import Store
from vpac.risk import mean_interval

OUT = Path(__file__).parent / "data" / "mujoco.json"
COLUMNS = {
    "fixed_mean": "mean, one start", "fixed_variance": "variance, one start", "mean": "mean", "variance": "variance",
    "sharpe": "Sharpe", "cvar": "CVaR 10 %", "discounted_mean": "discounted mean", "discounted_variance": "discounted variance",
}  # fmt: skip


def main() -> None:
    """Summarise, then show."""
    where = sys.argv[1] if len(sys.argv) > 1 else "results"
    if where != "--table":
        rows = summaries(Store(where)) if Path(where).is_dir() else []
        if not rows:
            sys.exit(f"{where} holds no run of the MuJoCo experiments.\n\n{__doc__}")
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
        print(f"{OUT}: {len(rows)} runs, {OUT.stat().st_size:,} bytes\n")
    print("\n".join(table(json.loads(OUT.read_text(encoding="utf-8")))))


def summaries(store: Store) -> list[dict[str, Any]]:
    """The finished runs of the studies whose names begin with mujoco."""
    rows = []
    for study in studies(store):
        if study.experiment.name.startswith("mujoco/"):
            for arm, runs in study.runs.items():
                for record in (store.read(run) for run in runs if store.has(run)):
                    final = {key: float(f"{value:.6g}") for key, value in record.final.items() if value is not None}
                    rows.append({"experiment": study.experiment.name, "arm": arm, "run": record.run.name, **final})
    return rows


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Averages over runs ± half of their 95 % intervals (Student's), in Markdown."""
    lines = [f"| experiment | | runs | {' | '.join(COLUMNS.values())} |", "|---|---|---:|" + "---:|" * len(COLUMNS)]
    for (name, arm), group in groupby(rows, key=lambda row: (row["experiment"], row["arm"])):
        runs = list(group)
        cells = []
        for column in COLUMNS:
            values = np.array([row[column] for row in runs])
            found = mean_interval(values) if len(values) > 1 else None
            spread = "" if found is None else f" ± {short((found.high - found.low) / 2.0)}"
            cells.append(f"{short(float(values.mean()))}{spread}")
        lines.append(f"| `{name}` | {arm} | {len(runs)} | {' | '.join(cells)} |")
    return lines


def short(x: float) -> str:
    """A number in few characters."""
    return f"{x:.0f}" if 100.0 <= abs(x) < 1e5 else f"{x:.1e}".replace("e+0", "e") if abs(x) >= 1e5 else f"{x:.2g}"


if __name__ == "__main__":
    main()
