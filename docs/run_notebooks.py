"""Run the notebooks of examples/ and keep what they print and draw: `python docs/run_notebooks.py [tour] [practitioner]`.

All cells run one after the other in one Python, as the tests run them. A digest of the code is kept beside the outputs, so that
a test can tell outputs of code that has changed since. SCALE below 1 in the environment makes it a quick look; keep those of 1.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "examples"
MARK = "\x1d"
"""Stands before each cell's output and around pictures; nothing prints it otherwise."""
PRELUDE = f"""
import base64 as _base64, io as _io
import matplotlib.pyplot as _plt

def _show():
    _file = _io.BytesIO()
    _plt.savefig(_file, format="png", dpi=72, metadata={{"Software": None}})
    print({MARK!r} + "png" + _base64.b64encode(_file.getvalue()).decode() + {MARK!r} + "text", end="")
    _plt.close("all")

_plt.show = _show
"""


def digest(cells: list[dict[str, Any]]) -> str:
    """Of the code of a notebook."""
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def run(path: Path) -> None:
    """Run a notebook and write its outputs into it."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    begin = f"print({MARK + 'cell' + MARK + 'text'!r}, end='', flush=True)"
    script = PRELUDE + "\n\n".join(f"{begin}\n{''.join(cell['source'])}" for cell in code)
    with tempfile.TemporaryDirectory() as results:
        settings = {
            "MPLBACKEND": "agg",
            "RESULTS": results,
            "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": str(FOLDER.parent / "src"),
        }
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=FOLDER,
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    outputs = done.stdout.split(f"{MARK}cell")[1:]
    for number, (cell, output) in enumerate(zip(code, outputs, strict=True), 1):
        parts = [part for part in output.split(MARK)[1:] if part not in ("text", "text\n")]
        cell["outputs"], cell["execution_count"] = [_kept(part) for part in parts], number
    notebook["metadata"]["vpac"] = {"code": digest(notebook["cells"]), "scale": float(os.environ.get("SCALE", "1"))}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _kept(part: str) -> dict[str, Any]:
    kind, content = (part[:3], part[3:]) if part.startswith("png") else (part[:4], part[4:].lstrip("\n"))
    if kind == "png":
        data = {"image/png": content, "text/plain": ["a figure"]}
        return {"data": data, "metadata": {}, "output_type": "display_data"}
    return {"name": "stdout", "output_type": "stream", "text": content.splitlines(keepends=True)}


if __name__ == "__main__":
    for name in sys.argv[1:] or ["tour", "practitioner"]:
        run(FOLDER / f"{name}.ipynb")
