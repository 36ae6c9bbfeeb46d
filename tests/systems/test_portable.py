"""Learners, evaluate, a sweep and the command line without POSIX functions, and with the names that Windows allows.

This is no Windows: processes, paths and the file system are those of the machine. `sitecustomize.py` beside this file takes
modules, functions and flags away in every process, and lets no name through that Windows would refuse.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"


def environment(folder):
    path = os.pathsep.join(map(str, (HERE, SOURCE)))
    return {**os.environ, "PYTHONPATH": path, "VPAC_WINDOWS_RULES": str(folder)}


def python(folder, *words, code=0):
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done


RULES = """
import os, signal, sys, pytest
from vpac import portable
assert portable.fcntl is None and not portable.sync_file_system(0) and portable.cores() == os.cpu_count()
assert not hasattr(os, "sched_getaffinity") and not hasattr(signal, "pthread_sigmask")
for name in ("fcntl", "resource"):
    with pytest.raises(ImportError):
        __import__(name)
for name in ("a:b", "nul", "NUL.txt", "com1", "x ", "x.", "a?b", "a|b"):
    with pytest.raises(OSError):
        open(name, "w")
    with pytest.raises(OSError):
        os.mkdir(name)
open("fine.txt", "w").close()
with pytest.raises(PermissionError):
    os.open(".", os.O_RDONLY)
"""


def test_the_rules_are_in_force(tmp_path):
    python(tmp_path, "-c", RULES)


LEARNERS = """
import vpac
agent = vpac.VPAC("vpac/FourRooms-v0", psi=0.01).learn(20)
agent.save("tabular")
assert vpac.VPAC.load("tabular").episodes == 20
assert vpac.evaluate(agent, "vpac/FourRooms-v0", 5).mean == vpac.evaluate(agent, "vpac/FourRooms-v0", 5).mean
deep = vpac.VPACPPO("CartPole-v1", psi=0.01, envs=2, steps=8, epochs=1, minibatch=16, hidden=(4,), checkpoint_every=1)
deep.learn(64, checkpoints="checkpoints")
deep.save("deep")
assert vpac.VPACPPO.load("deep").timesteps == 64
assert vpac.evaluate(vpac.deep.load_policy("deep"), "CartPole-v1", 3).mean > 0
deep.policy().export("policy.h")
vpac.FiniteMDP.from_map("wwwww\\nws gw\\nwwwww")
"""


@pytest.mark.slow  # compiles learners with Numba and JAX in a new process
def test_learners_and_evaluate(tmp_path):
    pytest.importorskip("jax")
    python(tmp_path, "-c", LEARNERS)


SWEEP = """
name = "two: prices? *"
env = "vpac/FourRooms-v0"
episodes = 20
every = 10
horizon = 50
runs = 2
settings = {alpha_theta = 0.01}
arms = [{label = "AC", algorithm = "ac"}, {label = "VPAC: 0.1?", algorithm = "vpac", settings = {psi = 0.1}}]
figures = [{kind = "curves", title = "a: b?", shows = ["mean"]}]
"""


def commands(folder, *each):
    """Commands one after the other in one process, as `python -m vpac` begins them: exit codes and output of each."""
    code = "import json, sys; from vpac.cli import main\n"
    code += "for words in json.loads(sys.argv[1]): print('\\0', main(words), sep='', flush=True)"
    words = json.dumps([list(map(str, words)) for words in each])
    done = python(folder, "-c", code, words)
    texts = done.stdout.split("\0")
    codes = [int(text.partition("\n")[0]) for text in texts[1:]]
    return codes, [texts[0], *(text.partition("\n")[2] for text in texts[1:-1])], done.stderr


def test_a_sweep_in_worker_processes(tmp_path):
    (tmp_path / "study.toml").write_text(SWEEP.replace("two: prices? *", "two-prices"))
    done = python(tmp_path, "-m", "vpac", "sweep", "study.toml", "--jobs", 2, "--json")
    assert json.loads(done.stdout)
    codes, (runs, again), error = commands(tmp_path, ["runs", "--json"], ["sweep", "study.toml", "--jobs", 2])
    assert codes == [0, 0]
    assert len(json.loads(runs)) == 4
    assert "4" in again + error


def test_the_command_line(tmp_path):
    codes, _, error = commands(
        tmp_path,
        ["doctor"],
        ["train", "vpac", "vpac/FourRooms-v0", "--psi", 0.01, "--episodes", 20],
        ["evaluate", "results/train/vpac-FourRooms-v0", "--episodes", 5],
        ["solve", "vpac/RiskyShortcut-v0", "--plot", "solved.png"],
        ["list", "experiments", "--json"],
        ["train", "vpca", "vpac/FourRooms-v0"],
    )
    assert codes == [0, 0, 0, 0, 0, 2], error
    assert "did you mean 'vpac'" in error


HOLD = """
import subprocess, sys
from pathlib import Path
from vpac.errors import UserError
from vpac.files import hold
try:
    with hold(Path("held")):
        if len(sys.argv) > 1:
            sys.exit(3)
        sys.exit(subprocess.run([sys.executable, __file__, "again"]).returncode)
except UserError as error:
    assert "another process is writing into" in str(error)
    sys.exit(7)
"""


def test_a_folder_is_held_by_one_process(tmp_path):
    (tmp_path / "hold.py").write_text(HOLD)
    python(tmp_path, "hold.py", code=7)
    python(tmp_path, "hold.py", "again", code=3)  # and let go of afterwards


def test_threads_that_make_environments_at_once_leave_standard_error_alone(tmp_path):
    code = """if 1:
        import os, sys, threading
        from vpac.portable import deduplicate_stderr, deduplicated_stderr

        deduplicate_stderr()
        barrier = threading.Barrier(8)

        def work():
            for _ in range(50):
                barrier.wait()
                with deduplicated_stderr():
                    os.write(2, b"said\\\\n")

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os.write(2, b"the end\\\\n")
        """.replace("\\\\n", "\\n")
    out = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0
    assert out.stderr.splitlines()[-1] == "the end"
    assert set(out.stderr.splitlines()) == {"said", "the end"}
