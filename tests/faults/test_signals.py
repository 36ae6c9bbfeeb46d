"""SIGTERM and Ctrl-C: a checkpoint first, then the right exit code, without leftovers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tiny import SPEC, little
from vpac._start import is_command
from vpac.cli import main
from vpac.interruption import Terminated, stopped_by
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan

pytest.importorskip("jax")
from vpac.deep import VPACPPO
from vpac.deep.checkpoint import has_checkpoint, latest_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
"""A signal at a random moment may come between the opening of a file and the block that closes it."""

SETTINGS = {"envs": 4, "steps": 16, "epochs": 1, "minibatch": 64, "hidden": (4,), "psi": 0.1}
STEPS = 64 * 120


def train(folder: Path, every: int, *more: str) -> int:
    words = [
        "train",
        "vpac-ppo",
        "CartPole-v1",
        "--psi",
        "0.1",
        "--steps",
        str(STEPS),
        "--envs",
        "4",
        "--json",
        "--seed",
        "3",
    ]
    options = ["steps=16", "epochs=1", "minibatch=64", "hidden=[4]", f"checkpoint_every={every}"]
    return main([*words, "--option", *options, "--out", str(folder), *more])


class Signals(threading.Thread):
    """Sends signals to this process once there is a new checkpoint, or a first line of metrics."""

    def __init__(self, folder: Path, *numbers: int, wait_for: str = "checkpoints/[0-9]*") -> None:
        super().__init__(daemon=True)
        self.folder, self.numbers, self.wait_for = folder, numbers, wait_for
        self.before = set(folder.glob(wait_for))
        self.start()

    def ready(self) -> bool:
        found = set(self.folder.glob(self.wait_for)) - self.before
        return any(path.is_dir() or path.stat().st_size for path in found)

    def run(self) -> None:
        until = time.monotonic() + 120
        while not self.ready() and time.monotonic() < until:
            time.sleep(0.002)
        for number in self.numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.2)


def half_files(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob(".*")]


@pytest.mark.filterwarnings("ignore:the luck of episodes has a drift")  # so few steps teach critics little
def test_a_run_stops_at_its_next_checkpoint_and_goes_on_to_the_same_end(tmp_path, capfd):
    folder, handler = tmp_path / "run", signal.getsignal(signal.SIGTERM)
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        thread = Signals(folder, number)
        again = ["--resume", str(folder)] if has_checkpoint(folder / "checkpoints") else []
        assert train(folder, 10, *again) == code
        thread.join()
        said = capfd.readouterr().err
        assert "stopping at the next checkpoint" in said
        assert f"To go on: the same command with --resume {folder}" in said
        assert "Traceback" not in said
        assert half_files(folder) == []
        agent, damaged = latest_checkpoint(VPACPPO, folder / "checkpoints")
        assert damaged == []
        assert 0 < agent.timesteps < STEPS
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["timesteps"] == agent.timesteps
    assert signal.getsignal(signal.SIGTERM) is handler
    assert train(folder, 10, "--resume", str(folder)) == 0
    whole = VPACPPO("CartPole-v1", seed=3, checkpoint_every=10, **SETTINGS).learn(STEPS).save(tmp_path / "whole")
    for name in ("weights.safetensors", "policy.safetensors"):
        assert (whole / name).read_bytes() == (folder / name).read_bytes()


def test_a_second_ctrl_c_stops_at_once(tmp_path, capfd):
    """The iteration under way is long."""
    thread = Signals(tmp_path / "run", signal.SIGINT, signal.SIGINT, wait_for="metrics.jsonl")
    begun = time.monotonic()
    code = train(tmp_path / "run", 10**6, "--steps", str(10**9), "--option", "steps=20000", "epochs=30")
    thread.join()
    assert code == 130
    assert time.monotonic() - begun < 60
    said = capfd.readouterr().err
    assert "There is no checkpoint yet" in said
    assert half_files(tmp_path / "run") == []


def test_sigterm_of_a_tabular_training_leaves_nothing_behind(tmp_path, capfd):
    words = ["train", "ac", "FrozenLake-v1", "--episodes", "10000000", "--out", str(tmp_path / "run"), "--json"]
    now = Signals(tmp_path, signal.SIGTERM, wait_for="run")
    assert main(words) == 143
    now.join()
    assert "vpac: stopped" in capfd.readouterr().err
    assert list((tmp_path / "run").iterdir()) == []


def listens(process: subprocess.Popen) -> bool:
    """Whether it has taken over SIGTERM, which Python itself does not."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("how", ["module", "script"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_vpac_starts_ends_it_quietly(tmp_path, how, number, code):
    script = tmp_path / "vpac"
    script.write_text("import sys\nfrom vpac.cli import main\nsys.exit(main())\n")
    words = ["train", "ac", "FrozenLake-v1", "--episodes", "10000000", "--out", str(tmp_path / "run"), "--json"]
    for moment in (0.0, 0.05, 0.2, 0.5):
        process = subprocess.Popen(
            [sys.executable, *(["-m", "vpac"] if how == "module" else [str(script)]), *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            while not listens(process):
                time.sleep(0.001)
            early = "numpy" not in Path(f"/proc/{process.pid}/maps").read_text()
            time.sleep(moment)
        finally:
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        assert early  # it listens before everything that takes its time
        assert (process.returncode, out, err) == (code, "", "vpac: stopped\n")


@pytest.mark.parametrize("moment", ["it.threading.Thread.start", "it.signal.set_wakeup_fd", "it.signal.signal"])
def test_a_signal_while_vpac_takes_signals_over_ends_it_quietly(tmp_path, moment):
    (tmp_path / "vpac").write_text(
        "import os, sys, vpac.interruption as it\nfrom vpac.cli import main\n"
        "def and_stop(real):\n"
        "    return lambda *words, **more: (real(*words, **more), os.kill(os.getpid(), 2))[0]\n"
        f"{moment} = and_stop({moment})\n"
        "sys.exit(main(['list', 'environments']))\n"
    )
    ended = subprocess.run([sys.executable, tmp_path / "vpac"], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "vpac: stopped\n")


def test_ctrl_c_while_python_runs_text_has_its_exit_code_too(tmp_path):
    """Python kills itself at the end if it ever saw one there, which is how dataclasses are made."""
    text = "import os, signal; os.kill(os.getpid(), signal.SIGINT)\nwhile True: pass"
    (tmp_path / "mine.py").write_text(f"exec({text!r})\n")
    ended = subprocess.run(
        [sys.executable, "-m", "vpac", "check", "mine:Env"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "vpac: stopped\n")


def test_a_signal_while_python_ends_changes_nothing_any_more(tmp_path):
    """Python gives signals their usual effects back before it takes its modules apart."""
    (tmp_path / "mine.py").write_text(
        "import os, signal\n"
        "from gymnasium.envs.classic_control import CartPoleEnv as Env\n"
        "class Last:\n"
        "    def __del__(self, kill=os.kill, me=os.getpid(), number=signal.SIGTERM):\n"
        "        kill(me, number)\n"
        "last = Last()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "vpac", "check", "mine:Env"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "can be learned from" in ended.stdout


def test_only_the_command_takes_over_signals():
    for words in (
        ["vpac", "x"],
        ["-m", "vpac"],
        ["-X", "dev", "-I", "/bin/vpac", "list"],
        ["-Xdev", "-m", "vpac", "list"],
    ):
        assert is_command(["python", *words])
    for words in ([], ["-c", "import vpac"], ["-m", "pytest", "-m", "vpac"], ["mine.py", "vpac"], ["-m", "vpac.cli"]):
        assert not is_command(["python", *words])


def test_ctrl_c_while_workers_start_is_the_drivers_alone(tmp_path):
    spec = tmp_path / "little.toml"
    spec.write_text(SPEC.format(runs=400, episodes=20_000), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "vpac", "sweep", str(spec), "--store", str(tmp_path / "s"), "--jobs", "2", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while len(children(process.pid)) < 3:  # two workers and the tracker of the standard library
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err


INSIDE_POLARS = """
import os, signal, sys
from pathlib import Path
import polars.io.scan_options.cast_options
from polars.io.scan_options.cast_options import ScanCastOptions
from vpac.cli import main
real = ScanCastOptions._default
def called_by_rust(*words):
    os.kill(os.getpid(), signal.{name})
    return real(*words)
ScanCastOptions._default = called_by_rust
sys.exit(main(["report", "--store", {store!r}]))
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_while_polars_calls_back_into_python_is_not_lost(tmp_path, name, code):
    """Raised there it would be Polars' fault: a table that cannot be read, on the page, and exit code 0."""
    carry_out_studies([plan(little(runs=2))], Store(tmp_path), Serial())
    words = [sys.executable, "-c", INSIDE_POLARS.format(name=name, store=str(tmp_path))]
    found = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert found.returncode == code, found.stderr
    assert found.stderr.endswith("vpac: stopped\n")  # below what Polars itself says


def test_every_worker_starts_deaf_to_ctrl_c():
    """The first ones, too: before them, the standard library starts its tracker and unblocks what was blocked."""
    code = """if 1:
        import signal
        from multiprocessing import active_children
        from pathlib import Path
        from vpac.lab.workers.pool import start_workers

        pools = [start_workers(), start_workers()]
        for process in active_children():
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigBlk", "SigIgn"))]
            print(any(mask >> (signal.SIGINT - 1) & 1 for mask in masks))
        for pool in pools:
            pool.stop()
            pool.join()
        """
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (out.stdout, out.returncode) == ("True\nTrue\n", 0), out.stderr


def children(pid: int) -> list[int]:
    """Of a process, but for the tracker of the standard library, which ends by itself."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_no_worker_outlives_its_study(tmp_path, number, code):
    spec = tmp_path / "little.toml"
    spec.write_text(SPEC.format(runs=400, episodes=20_000), encoding="utf-8")
    command = ["sweep", str(spec), "--store", str(tmp_path / "s"), "--jobs", "2", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "vpac", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not any((tmp_path / "s" / "runs").glob("[a-z]*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    workers = children(process.pid)
    assert len(workers) >= 2
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in err
    if number == signal.SIGTERM:
        assert f"To go on: vpac sweep {spec}" in err
        assert [p.name for p in (tmp_path / "s" / "runs").iterdir() if p.name.startswith(".")] == []
    until = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_an_error_that_was_made_of_a_signal_is_known_for_what_it_is():
    with pytest.raises(RuntimeError) as caught:
        type("Made", (), {"part": Raises()})
    assert isinstance(stopped_by(caught.value), Terminated)
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(OSError, match="full") as caught:
            raise OSError("the disk is full") from None
    assert stopped_by(caught.value) is None  # what goes wrong on the way out is an error of its own


class Raises:
    def __set_name__(self, owner, name):
        raise Terminated
