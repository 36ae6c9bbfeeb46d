from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


def needed(texts, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """The distributions of this environment that requirements name, and those that these need in turn."""
    for requirement in map(Requirement, texts):
        if requirement.name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found[requirement.name] = distribution(requirement.name)
            needed(found[requirement.name].requires or [], found)
    return found


def link(wheel: Path, site: Path) -> None:
    """Put what a wheel says that it needs, and nothing else, into an environment: by links, which takes no time."""
    with ZipFile(wheel) as file:
        metadata = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        lines = file.read(metadata).decode().partition("\n\n")[0].splitlines()
    declared = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    for one in needed(declared, {}).values():
        for name in {path.parts[0] for path in one.files or []} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(Path(str(one.locate_file(name))))


def test_the_wheel_installs_into_an_empty_environment_where_doctor_works(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", ROOT],
        check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = (tmp_path / "dist").glob("vpac-*.whl")
    venv.create(tmp_path / "empty")
    home = tmp_path / "empty" / "bin"
    (site,) = (tmp_path / "empty" / "lib").glob("python*/site-packages")
    link(wheel, site)
    pip = [sys.executable, "-m", "pip", "--python", home / "python", "install", "--quiet", "--no-compile", "--no-index"]
    subprocess.run([*pip, wheel], check=True, capture_output=True)
    alone = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run = {"cwd": tmp_path, "env": alone, "capture_output": True, "text": True}
    shown = subprocess.run([home / "vpac", "doctor"], check=True, **run)
    assert "missing" in shown.stdout
    found = json.loads(subprocess.run([home / "vpac", "doctor", "--json"], check=True, **run).stdout)
    assert None not in found["packages"].values()
    extras = {extra["name"]: extra for extra in found["extras"]}
    assert set(extras) >= {"deep", "mujoco", "envpool", "ray", "tensorboard", "docs", "bench", "dev"}
    assert extras["deep"]["packages"]["jax"] is None
    assert extras["deep"]["install"] == f'uv pip install --python {home / "python"} --upgrade "vpac[deep]"', (
        "it has no pip"
    )
    solved = subprocess.run([home / "vpac", "solve", "vpac/CatchUp-v0", "--json"], check=True, **run)
    assert json.loads(solved.stdout)["states"] == 11
    marker = "import vpac, pathlib; print((pathlib.Path(vpac.__file__).parent / 'py.typed').exists())"
    typed = subprocess.run([home / "python", "-c", marker], check=True, **run)
    assert typed.stdout.strip() == "True"
    page = (
        "from vpac.lab.report.chart import Document; from vpac.lab.report.page import render\n"
        "print(len(render(Document('title', 'subtitle', 'now'))))"
    )
    written = subprocess.run([home / "python", "-c", page], check=True, **run)
    assert int(written.stdout) > 1_000_000, "the templates, the styles and the scripts are in the wheel"
