"""Draws the pictures of docs/certified.md from the certificates that examples/dependable.py wrote.

python docs/draw_certified.py FOLDER        # the folder that holds warehouse and battery
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from vpac.lab.report.draw import save
from vpac.lab.report.measured import CertificateSummary, stress_chart, write_heat_map
from vpac.risk import PolicyCertificate

IMAGES = Path(__file__).parent / "images"


def main(folder: Path) -> None:
    """Returns beside the baseline's, and what hurts."""
    for name in ("warehouse", "battery"):
        summary = CertificateSummary(PolicyCertificate.load(folder / name / "certificate" / "certificate.json"))
        save(replace(summary.compared_chart(), name=f"certified-{name}"), IMAGES / f"certified-{name}.png")
        stress = summary.data["stress"]
        if len(stress["axes"]) == 2:
            write_heat_map(stress, IMAGES / f"certified-{name}-stress.png")
        else:
            save(stress_chart(stress), IMAGES / f"certified-{name}-stress.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
