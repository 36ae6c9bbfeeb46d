"""All readers of untrusted files as functions of bytes: they may raise only `UserError` and `Damaged`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
import warnings
from pathlib import Path

from vpac.cli.arguments import gather, key_values, wrappers
from vpac.cli.check import read_policy
from vpac.envs.maps import GridMap, grid_world
from vpac.envs.worlds import RiskyShortcut
from vpac.errors import UserError
from vpac.evaluation.actors import load_agent
from vpac.files import sealed
from vpac.lab.experiments.catalogue import read_experiment
from vpac.lab.report.build import build
from vpac.lab.store.backend import backend_at
from vpac.lab.store.records import Damaged, index, read_study, studies
from vpac.lab.store.run import Run
from vpac.lab.store.store import Store
from vpac.risk.sample import ReturnSample
from vpac.risk.schedules import as_schedule
from vpac.tabular import VPAC
from vpac.tabular.options import StepSizeOrder

FIXTURES = Path(__file__).parents[1] / "fixtures"


class Readers:
    """Readers of files, each in a folder of its own that is never left."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(shutil.copytree(FIXTURES / "format-2", folder / "read", dirs_exist_ok=True))
        shutil.copytree(self.folder / "agent", self.folder / "checkpoints" / "00000003")
        (self.run,) = (self.folder / "store" / "runs").glob("ac-*")
        (self.failed,) = (self.folder / "store" / "failed").iterdir()
        self.mdp = RiskyShortcut().mdp
        self.good = {name: self.file(name).read_bytes() for name in (*FILES, *DEEP)}

    def file(self, name: str) -> Path:
        if name == "failed.json":
            return self.failed
        return self.run / name.removeprefix("run/") if name.startswith("run/") else self.folder / name

    def put(self, name: str, content: bytes) -> None:
        """Write a file, and everything that checks it, so that it is looked into."""
        path = self.file(name)
        path.write_bytes(content)
        digest = {"sha256": hashlib.sha256(content).hexdigest()}
        if name in NOTES:
            note = json.loads(self.good[NOTES[name]]) | digest
            note.pop("checksum")
            self.file(NOTES[name]).write_text(sealed(note))
        elif name.startswith("run/") and name != "run/run.json":
            record = json.loads(self.good["run/run.json"])
            record["files"][path.name] = digest | {"bytes": len(content)}
            record.pop("checksum")
            (self.run / "run.json").write_text(sealed(record))

    def restore(self) -> None:
        for name, content in self.good.items():
            self.file(name).write_bytes(content)

    def read(self, name: str, content: bytes) -> None:
        """Read what stands in that file."""
        self.put(name, content)
        try:
            with contextlib.suppress(UserError, Damaged):
                self.look(name)
        finally:
            for other in {name, NOTES.get(name, name), "run/run.json" if name.startswith("run/") else name}:
                self.file(other).write_bytes(self.good[other])

    def report(self, name: str, content: bytes) -> None:
        """Build the page of a store in which that file is another; it is always built."""
        self.put(name, content)
        try:
            page, _ = build(Store(self.folder / "store"), quiet=True)
            assert page.is_relative_to(self.folder / "store")
        finally:
            self.restore()

    def look(self, name: str) -> None:
        if name.startswith("learner/"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", StepSizeOrder)  # any step sizes may be read
                VPAC.load(self.folder / "learner").predict(0)
        elif name.startswith("checkpoints/") or name == "agent/weights.safetensors":
            from vpac.deep import VPACPPO
            from vpac.deep.checkpoint import latest_checkpoint

            latest_checkpoint(VPACPPO, self.folder / "checkpoints")
            VPACPPO.load(self.folder / "agent")
        elif name.startswith("agent/"):
            policy = load_agent(self.folder / "agent")
            if policy.interface.first_observation is None and policy.interface.inputs == 4:
                policy([0.0] * 4)
        elif name.startswith("run/"):
            store = Store(self.folder / "store")
            index(store)
            record = store.read(self.run.name)
            record.metrics()
            record.policy()
        elif name.startswith("store/studies/"):
            list(studies(Store(self.folder / "store")))
            read_study(Store(self.folder / "store"), "little")
        elif name == "failed.json":
            store = Store(self.folder / "store")
            rows = index(store)
            assert len(rows) == 3
            assert all(isinstance(row["status"], str) and isinstance(row["settings"], dict) for row in rows)
            store.failure(self.failed.stem)
        elif name.startswith("sample"):
            ReturnSample.load(self.folder / name)
        else:
            read_policy(str(self.folder / name), self.mdp, 0.9)

    def forge(self, name: str, data: object) -> None:
        """The same with data that has a good checksum, and for a run the name that its content gives."""
        if not isinstance(data, dict):
            self.read(name, json.dumps(data).encode())
            return
        data = {key: value for key, value in data.items() if key != "checksum"}
        with contextlib.suppress(KeyError, TypeError, AttributeError, ValueError):
            if name == "run/run.json":
                data["name"] = Run.read(data).name
        try:
            text = sealed(data)
        except ValueError:  # half a character
            return
        self.read(name, text.encode(errors="replace"))


FILES = (
    "learner/agent.json", "learner/weights.safetensors", "agent/agent.json", "agent/policy.json", "agent/policy.safetensors",
    "run/run.json", "run/metrics.parquet", "run/policy.safetensors", "store/studies/little.json",
    "sample.json", "sample.parquet", "failed.json",
)  # fmt: skip
DEEP = ("agent/weights.safetensors", "checkpoints/00000003/agent.json", "checkpoints/00000003/weights.safetensors")
"""These need JAX, and are slow."""
NOTES = {
    "learner/weights.safetensors": "learner/agent.json", "agent/policy.safetensors": "agent/policy.json",
    "agent/weights.safetensors": "agent/agent.json", DEEP[2]: DEEP[1],
}  # fmt: skip


def read_text(name: str, text: str) -> None:
    """Readers of text."""
    with contextlib.suppress(UserError):
        TEXTS[name](text)


def _toml(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.toml"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        read_experiment(path)


def _policy(ending: str):
    mdp = RiskyShortcut().mdp

    def read(text: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"policy.{ending}"
            code = "latin-1" if ending == "npy" else "utf-8"  # a character is a byte there
            path.write_bytes(text.encode(code, errors="replace" if ending == "npy" else "surrogatepass"))
            read_policy(str(path), mdp, 0.9)

    return read


def _small_map(text: str) -> None:
    GridMap.parse(text)
    if len(text) < 200:
        grid_world(text)


TEXTS = {
    "a study": _toml,
    "a map": _small_map,
    "a schedule": lambda text: as_schedule(text).values(3),
    "KEY=VALUE": lambda text: (
        key_values(text.split("\n")),
        wrappers(text.split("\n")),
        gather(text.split("\n")),
    ),
    "an address": lambda text: backend_at(f"s3://{text}"),
    "a place": lambda text: backend_at(text),
    "policy.json": _policy("json"),
    "policy.csv": _policy("csv"),
    "policy.npy": _policy("npy"),
}
SEEDS = {
    "a study": 'env = "vpac/CatchUp-v0"\nalgorithm = "vpac"\nepisodes = 5\nruns = 2\nsettings = { gamma = 0.9 }\n[grid]\n'
    'psi = [0.0, 0.1]\n[[figures]]\nkind = "curves"\ntitle = "x"\n',
    "a map": "wwwww\nws.gw\nwfx.w\nwwwww\n",
    "a schedule": "warm-up:0.05:300:500",
    "KEY=VALUE": "slip=0.1\nmap_name=8x8\n--set\nRewardNoise",
    "an address": "bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1",
    "a place": "results/s3://x?y",
    "policy.json": "[[0.5, 0.5], [1.0, 0.0]]",
    "policy.csv": "0.5,0.5\n1,0\n",
    "policy.npy": "\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }",
}
