"""Unusual streams, terminals, names and environments: a message and the right exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest

import vpac
from cli.test_cli import run
from vpac.cli import each_once
from vpac.interruption import no_silent_exit

COMMAND = [sys.executable, "-m", "vpac"]
ENVIRONMENT = """
import ctypes, os, sys, time
import gymnasium
from gymnasium import spaces

class Quits(gymnasium.Env):
    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)
    steps = 0
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}
    def end(self): os._exit(0)
    def step(self, action):
        Quits.steps += 1
        if Quits.steps > self.later: self.end()
        return 1, 1.0, Quits.steps % 4 == 0, False, {}
    later = 50

class Leaves(Quits):
    def end(self): sys.exit(0)

class Ends(Quits):
    def end(self): ctypes.CDLL(None).exit(0)

class EndsWithLock(Quits):
    def end(self): ctypes.PyDLL(None).exit(0)  # as an extension module does

class Hangs(Quits):
    later = 2000
    def end(self):
        open("hangs", "w").close()
        while True:
            try: time.sleep(60)
            except BaseException: pass
"""


SOURCE, TESTS = str(Path(vpac.__file__).parent.parent), Path(__file__).parent.parent


def call(
    *words: str | bytes, folder: Path, command: Sequence[str] = COMMAND, **more: str
) -> subprocess.CompletedProcess[bytes]:
    env = os.environ | {"PYTHONPATH": SOURCE, "COLUMNS": "100"} | more
    return subprocess.run([*command, *words], cwd=folder, env=env, capture_output=True, timeout=100, check=False)


@pytest.mark.parametrize(("encoding", "words"), [("ascii", ["train", "--help"]), ("latin-1", ["list", "algorithms"])])
def test_other_encodings(tmp_path, encoding, words):
    found = call(*words, folder=tmp_path, PYTHONIOENCODING=encoding, COLUMNS="5" if "--help" in words else "100")
    assert found.returncode == 0, found.stderr
    assert found.stdout.decode(encoding).count("?") <= 2
    assert b"psi" in found.stdout.replace(b"\n", b"").replace(b" ", b"")


def test_json_of_another_encoding(tmp_path):
    listed = call("list", "algorithms", "--json", folder=tmp_path, PYTHONIOENCODING="ascii")
    assert "ψ" in json.dumps(json.loads(listed.stdout.decode("ascii")), ensure_ascii=False)


def test_closed_streams(tmp_path):
    line = f"{sys.executable} -m vpac list algorithms >&-"
    found = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert (found.returncode, found.stderr) == (0, b"")


COMMANDS = """
import sys
from quick import make_quick
from vpac.cli import main

make_quick()

folder = sys.argv[1]
trained = ["train", "ppo", "CartPole-v1", "--steps", "8", "--envs", "1", "--option", "steps=8", "hidden=[4]"]
assert main([*trained, "--out", folder]) == 0
for verb in ("evaluate", "certify"):
    print("--", flush=True)
    assert main([verb, folder, "--episodes", "10", *(["--sources", "2"] if verb == "certify" else [])]) == 0
print("--", flush=True)
assert main(["sweep", "s.toml", "--executor", "serial", "--store", folder, "--json"]) == 0
"""


def test_names_that_are_not_utf8(tmp_path):
    """Four commands, in one process: it is its arguments and its streams that matter."""
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    study = 'name = "s"\nenv = "CliffWalking-v1"\nalgorithm = "vpac"\nepisodes = 4\nhorizon = 20\nruns = 1\n'
    (tmp_path / "s.toml").write_text(study + '[[arms]]\nlabel = "a"\n')
    found = call(folder, folder=tmp_path, command=[sys.executable, "-c", COMMANDS], PYTHONPATH=f"{SOURCE}:{TESTS}")
    assert found.returncode == 0, found.stderr
    assert (Path(os.fsdecode(folder)) / "agent.json").is_file()
    trained, _, _, swept = found.stdout.decode().split("--\n")
    suggested = trained.splitlines()[-1].removeprefix("next: vpac evaluate ")
    named = subprocess.run(["bash", "-c", f"printf %s {suggested}"], capture_output=True, check=True, timeout=60)
    assert named.stdout == folder
    assert len(list(tmp_path.glob("results/evaluate/*/*.png"))) == 1
    assert len(list(tmp_path.glob("results/certify/*/certificate.html"))) == 1
    assert json.loads(swept)["experiments"]["s"]["done"] == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Quits", b"os._exit(0)"),
        ("Leaves", b"sys.exit(0)"),
        ("Ends", b"exit of the C"),
        ("EndsWithLock", b"exit of the C"),
    ],
)
def test_an_environment_that_ends_the_process(tmp_path, name, said):
    (tmp_path / "strange.py").write_text(ENVIRONMENT)
    found = call("check", f"strange:{name}", folder=tmp_path)
    assert found.returncode == 1
    assert said in found.stderr


def test_what_a_program_does_after_a_command_is_its_own_affair(tmp_path):
    code = "import ctypes; from vpac.cli import main; main(['--version']); main(['list', 'penalties']); "
    for end in ("ctypes.CDLL(None).exit(7)", "raise SystemExit(7)"):
        found = subprocess.run([sys.executable, "-c", code + end], capture_output=True, timeout=60, check=False)
        assert (found.returncode, found.stderr) == (7, b"")


def test_children_may_leave():
    with no_silent_exit(lambda text: None):
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("times", [1, 2])
def test_an_environment_that_hangs_can_be_terminated(tmp_path, times):
    (tmp_path / "strange.py").write_text(ENVIRONMENT)
    most = 1.5 if times == 1 else 300.0
    start = (
        f"import vpac.cli, vpac.interruption as i; i.MAX_WAIT, i.LAST = {most}, 1.0; raise SystemExit(vpac.cli.main())"
    )
    options = ["steps=32", "minibatch=256", "epochs=1", "hidden=[4]", "checkpoint_every=1000"]
    command = [sys.executable, "-c", start, "train", "ppo", "strange:Hangs", "--envs", "8", "--option", *options]
    env = os.environ | {"PYTHONPATH": SOURCE}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 100
        while not (tmp_path / "hangs").exists() and time.monotonic() < until:
            time.sleep(0.05)
        for _ in range(times):
            process.send_signal(signal.SIGTERM)
            time.sleep(1.2)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert b"stopping at the next checkpoint" in error
    assert (b"no checkpoint was reached in time" in error) == (times == 1)


LONG = """import ctypes, sys, time
from pathlib import Path
import vpac.interruption as interruption
interruption.MAX_WAIT, interruption.LAST = {most}, 1.0
import vpac.cli
import vpac.deep.improve as improve
original = improve.{name}

def never(c=ctypes.CDLL(None), mutex=ctypes.create_string_buffer(256)):  # to be waited for, through every signal
    c.pthread_mutex_init(mutex, None), c.pthread_mutex_lock(mutex), c.pthread_mutex_lock(mutex)

def long(*given, **named):
    if list(Path("run").glob("checkpoints/0*")):
        Path("busy").touch()
        {wait}
    return original(*given, **named)

improve.{name} = long
sys.exit(vpac.cli.main())
"""


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("name", "wait"),
    [
        ("fit_critic", "time.sleep(3600)"),  # in a thread, for which Python waits when it ends
        ("improve_policy", "never()"),  # in C, where no handler is called
    ],
)
def test_a_long_computation_can_be_terminated(tmp_path, name, wait, times):
    """The checkpoint before it is kept."""
    pytest.importorskip("jax")
    from vpac.deep.checkpoint import latest_checkpoint

    (tmp_path / "vpac").write_text(LONG.format(most=1.5 if times == 1 else 300.0, name=name, wait=wait))
    options = ["steps=8", "hidden=[4]", "checkpoint_every=1", "epochs=1", "minibatch=8"]
    command = [sys.executable, "vpac", "train", "vpac-ppo", "CartPole-v1", "--psi", "0.1", "--envs", "1"]
    command += ["--out", "run", "--option", *options]
    env = os.environ | {"PYTHONPATH": SOURCE}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 100
        while not (tmp_path / "busy").exists() and time.monotonic() < until:
            time.sleep(0.05)
        try:
            for _ in range(times):
                process.send_signal(signal.SIGTERM)
                time.sleep(1.2)
            _, error = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 143
    assert b"stopping at the next checkpoint" in error
    assert (b"no checkpoint was reached in time" in error) == (times == 1)
    agent, damaged = latest_checkpoint(vpac.VPACPPO, tmp_path / "run" / "checkpoints")
    assert (agent.timesteps, damaged) == (8, [])


def test_a_folder_that_cannot_be_read(capsys, tmp_path, monkeypatch):
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("vpac.lab.kinds.saved_agents.find_trained", refused)
    code, _, error = run(capsys, "evaluate", tmp_path)
    assert (code, error) == (2, f"vpac: cannot open {tmp_path}: Permission denied\n")


def test_a_damaged_last_checkpoint_is_passed_over(capsys, tmp_path):
    pytest.importorskip("jax")
    agent = vpac.PPO("CartPole-v1", envs=1, steps=8, hidden=(4,), epochs=1, minibatch=8, checkpoint_every=1)
    agent.learn(24, checkpoints=tmp_path / "checkpoints")
    last = tmp_path / "checkpoints" / "00000003"
    content = bytearray((last / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (last / "weights.safetensors").write_bytes(content)
    code, _, error = run(capsys, "evaluate", tmp_path, "--episodes", 2, "--out", tmp_path / "e")
    assert code == 0
    assert "checkpoint after 2 iterations" in error
    assert "passed over a damaged checkpoint" in error
    shutil.rmtree(tmp_path / "checkpoints" / "00000002")
    code, _, error = run(capsys, "evaluate", tmp_path, "--episodes", 2, "--out", tmp_path / "e")
    assert code == 2
    assert "holds no policy" in error
    assert "damaged checkpoint" in error


def test_warnings_are_shown_once():
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = each_once(said.append)
        for text in ("a", "b", "a", "a"):
            warnings.warn(text, stacklevel=1)
    assert said == ["a", "b"]


NATIVE = """
import os
import gymnasium

class Loud(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def __init__(self, leave=False):
        os.write(2, b"WARNING: old\\n\\n")  # as a library in C does
        if leave:
            os._exit(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 1, 0.0, True, False, {}
"""


def test_what_native_code_says_at_every_construction_is_shown_once(tmp_path):
    (tmp_path / "loud.py").write_text(NATIVE)
    code = "from vpac.envs import make_env; from vpac.portable import deduplicate_stderr; deduplicate_stderr()\n"
    code += "for _ in range(3): make_env('loud:Loud')"
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True,
        check=True,
    ).stderr
    assert said == b"WARNING: old\n\n"
    done = call("check", "loud:Loud", folder=tmp_path)
    assert (done.returncode, done.stderr.count(b"WARNING: old\n")) == (0, 1)
    done = call("check", "loud:Loud", "--set", "leave=true", folder=tmp_path)
    assert done.returncode == 1
    assert b"WARNING: old\n" in done.stderr
    assert b"has called os._exit(0)" in done.stderr
