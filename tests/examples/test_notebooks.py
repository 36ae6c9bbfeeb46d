"""Notebooks: their outputs match their code, and they run at small scale, cell by cell, as in a kernel."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path, kind):
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["nbformat"] == 4
    return [cell for cell in found["cells"] if cell["cell_type"] == kind]


def test_there_is_a_tour_and_one_for_practitioners():
    assert [path.stem for path in NOTEBOOKS] == ["practitioner", "tour"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_those_of_the_code(path):
    """Outputs are stored, so that readers see figures without running code; run a notebook again after a change of its code."""
    spec = importlib.util.spec_from_file_location("run_notebooks", FOLDER.parent / "docs" / "run_notebooks.py")
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    again = f"python docs/run_notebooks.py {path.stem}"
    assert notebook["metadata"]["vpac"] == {"code": runner.digest(notebook["cells"]), "scale": 1.0}, again
    assert path.stat().st_size < 300_000
    for number, cell in enumerate(cells(path, "code"), 1):
        source = "".join(cell["source"])
        assert cell["execution_count"] == number
        assert any("image/png" in out.get("data", {}) for out in cell["outputs"]) == ("plt.show()" in source)
        assert any(out["output_type"] == "stream" for out in cell["outputs"]) == ("print(" in source)
    assert cells(path, "markdown")[0]["source"][0].startswith("# ")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    code = "\n\n".join("".join(cell["source"]) for cell in cells(path, "code"))
    small = {"MPLBACKEND": "agg", "SCALE": "0.01", "RESULTS": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER, env=os.environ | small, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") >= 10
