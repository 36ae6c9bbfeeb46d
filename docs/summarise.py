"""Writes docs/data/mujoco.json: what each run of the MuJoCo experiments came down to, small enough to be kept with the code.

python docs/summarise.py [STORE]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from vpac.execution.store import Store
from vpac.execution.study import studies

OUT = Path(__file__).parent / "data" / "mujoco.json"


def main() -> None:
    """Read the studies of a store whose names begin with mujoco."""
    store = Store(sys.argv[1] if len(sys.argv) > 1 else "results")
    rows = []
    for study in studies(store):
        name = study.experiment.name
        if not name.startswith("mujoco/"):
            continue
        for arm, runs in study.runs.items():
            for run in runs:
                if store.has(run):
                    record = store.read(run)
                    final = {key: float(f"{value:.6g}") for key, value in record.final.items() if value is not None}
                    rows.append({"experiment": name, "arm": arm, "run": run, "seed": record.run.seed, **final})
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
    print(f"{OUT}: {len(rows)} runs, {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
