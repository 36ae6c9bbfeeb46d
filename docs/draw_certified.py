"""Draws the pictures of docs/certified.md from the certificates that examples/dependable.py wrote.

python docs/draw_certified.py FOLDER …        # folders that hold some of warehouse, battery and robot

The pictures are those of the first folder; what every certificate says becomes docs/data/certified.json.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from vpac.files import write_bytes
from vpac.lab.report.draw import save
from vpac.lab.report.geometry import look
from vpac.lab.report.measured import CertificateSummary, StressSummary, heat_map
from vpac.risk import PolicyCertificate, ReturnSample

IMAGES = Path(__file__).parent / "images"
DATA = Path(__file__).parent / "data" / "certified.json"


def main(folder: Path) -> None:
    """Returns beside the baseline's, and what hurts."""
    if (folder / "robot").is_dir():
        draw_falls(folder / "robot")
    for name in ("warehouse", "battery"):
        if not (folder / name).is_dir():
            continue
        summary = CertificateSummary(PolicyCertificate.load(folder / name / "certificate" / "certificate.json"))
        save(replace(summary._evaluation(True).charts()[0], name=f"certified-{name}"), IMAGES / f"certified-{name}.png")
        stress = summary.data["stress"]
        if len(stress["axes"]) == 2:
            write_bytes(IMAGES / f"certified-{name}-stress.png", heat_map(stress, "png"))
        else:
            save(StressSummary(stress).charts()[0], IMAGES / f"certified-{name}-stress.png")


def draw_falls(folder: Path) -> None:
    """The share of episodes without a fall up to each step, after each stage of the robot."""
    figure, axis = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    steps = np.arange(1001)
    for number, words in enumerate(("hop", "hop for longer", "do not fall")):
        (path,) = (folder / f"episodes-{number + 1}").glob("*.parquet")
        sample, style = ReturnSample.load(path), look(number)
        fell = np.where(sample.terminated, sample.lengths, steps[-1] + 1)
        upright = np.mean(fell[:, None] > steps, axis=0)
        label = f"stage {number + 1}, {words}: score {sample.undiscounted.mean:.0f}"
        axis.plot(
            steps, 100 * upright, color=style.colour, linestyle=("-", "--", ":")[number], linewidth=2, label=label
        )
    axis.set(xlabel="steps", ylabel="episodes without a fall, %", ylim=(-3, 103))
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=9, loc=(0.42, 0.12))
    figure.savefig(IMAGES / "certified-robot.png", dpi=150)


def figures(path: Path) -> dict[str, object]:
    """What the page quotes of a certificate."""
    data, name = PolicyCertificate.load(path / "certificate.json").data, path.relative_to(path.parents[2])
    found = {"certificate": str(name), "episodes": len(data["episodes"]["seed"]), "limits": data["limits"]}
    metrics = data["metrics"]["discounted"]
    found |= {name: metrics[name] for name in ("mean", "variance", "standard deviation") if name in metrics}
    return found | ({"against_baseline": data["baseline"]["comparison"]} if data["baseline"] else {})


def store(folders: list[Path]) -> None:
    """Write the figures of all certificates."""
    found = sorted(path.parent for folder in folders for path in folder.glob("*/certificate*/certificate.json"))
    write_bytes(DATA, (json.dumps([figures(path) for path in found], indent=1, ensure_ascii=False) + "\n").encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    store([Path(folder) for folder in sys.argv[1:]])
