"""A Ray cluster of several nodes on this machine, with tokens, and its failures."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from buckets import KEYS, s3_server
from tiny import UNDRAWN, contents, little
from vpac._version import __version__
from vpac.cli import main
from vpac.errors import UserError
from vpac.lab.experiments.spec import Arm
from vpac.lab.store.run import Run
from vpac.lab.store.store import Store
from vpac.lab.workers import ray as on_ray
from vpac.lab.workers.pool import Processes, Serial, make_executor
from vpac.lab.workers.ray import OnRay, remote_run, resources
from vpac.lab.workers.study import carry_out_studies, plan
from vpac.lab.workers.worker import carry_out
from vpac.tabular import AC

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]  # starts a cluster, kills nodes, waits for Ray to notice
LOOPBACK = {"node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20, "memory": 4 * 2**30}

TOKEN = os.urandom(32).hex()
"""One for each process: Ray reads it once, and a process that takes over a test later starts a second cluster."""


@pytest.fixture(scope="module")
def cluster():
    """A head that runs nothing, and nodes of two cores and of one; connections need the token."""
    environment = KEYS | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # or Ray replaces 127.0.0.1 by another address of this machine
        "RAY_health_check_period_ms": "500",  # a dead node is refused five times before its head believes it
        "RAY_worker_niceness": "0",  # else other tests leave its workers 3 % of a core
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster  # only now: Ray reads the environment when it is imported

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **LOOPBACK})
        try:
            for cores in (2, 1):
                made.add_node(num_cpus=cores, **LOOPBACK)
            yield made
        finally:
            made.shutdown()


def workers() -> list[int]:
    """Processes that are at a run."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes().startswith(b"ray::remote_run"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def remove_a_node(cluster, cores):
    """The first that has so many; Ray keeps them in a set."""
    node = next(node for node in cluster.list_all_nodes() if node._ray_params.num_cpus == cores)
    cluster.remove_node(node, allow_graceful=False)


def test_a_killed_worker_and_a_lost_node_change_nothing(cluster, tmp_path, capsys):
    """The study ends complete, in a bucket, with the bytes that one process writes into a folder."""
    plans = [plan(little(runs=8, episodes=4000))]
    undisturbed = Store(tmp_path)
    carry_out_studies(plans, undisturbed, Serial())
    seen, killed = [], []

    def disturb(outcome):
        seen.append(outcome)
        if len(seen) >= 2 and not killed and workers():
            killed.append(workers()[0])
            os.kill(killed[0], signal.SIGKILL)
        if len(seen) == 6:
            remove_a_node(cluster, 1)

    with s3_server() as url:
        store, hands = Store(f"s3://vpac/study?endpoint={url}"), OnRay(cluster.address)
        try:
            tally = carry_out_studies(plans, store, hands, disturb)["little"]
        finally:
            hands.close()
            cluster.add_node(num_cpus=1, **LOOPBACK)
        assert killed
        # found: killed before it could say that it was done
        assert (tally.done + tally.found, tally.failed) == (16, [])
        assert contents(store) == contents(undisturbed)
    assert capsys.readouterr().out == ""  # there is one display


def test_a_ppo_run_whose_worker_is_killed_goes_on_from_its_checkpoint(cluster, tmp_path):
    """In a bucket, so that nothing but the copy of the checkpoint is left of the first worker."""
    pytest.importorskip("jax")
    log, small = tmp_path / "log", {"envs": 2, "steps": 8, "epochs": 1, "minibatch": 16, "hidden": [4]}
    log.mkdir()
    task = {
        "kind": "deep", "env": "counted:Counted-v0", "env_settings": {"log": str(log)}, "algorithm": "ppo",
        "settings": small | {"checkpoint_every": 30}, "steps": 16 * 60, "episodes": 4, "fixed_start": {},
    }  # fmt: skip
    run, killed, free, errors, over = Run(task, 0, 5), [], set(), [], threading.Event()

    def wait_for(what):
        while not (found := what()):
            free.add(hands._ray.available_resources().get("CPU"))
            if over.wait(0.05):
                raise TimeoutError
        return found

    def disturb(place):
        try:
            wait_for(lambda: any(key.endswith("agent.json") for key in place.keys("checkpoints")))
            killed.extend(pid for pid in workers() if (log / str(pid)).exists())  # Ray may have started others
            os.kill(killed[0], signal.SIGKILL)
        except Exception as error:
            errors.append(error)

    with s3_server() as url:
        store, hands = Store(f"s3://vpac/ppo?endpoint={url}"), OnRay(cluster.address, 1)
        thread = threading.Thread(target=disturb, args=(store.backend,))
        thread.start()
        try:
            (outcome,) = hands.run(store, [run])
        finally:
            over.set()
            thread.join()
            hands.close()
        assert errors == []
        assert (outcome.status, outcome.error) == ("finished", "")
        assert store.backend.keys("checkpoints") == []
    assert min(free) == 1.0  # of three cores: it asks for two
    steps = {int(path.name): path.stat().st_size for path in log.iterdir()}
    first = steps.pop(killed[0])
    assert 320 <= first < 640  # of three steps one only begins an episode
    # the first half again, to come back to its episodes, the other half, and the episodes that are measured
    assert list(steps.values()) == [320 + 320 + 2 * 64]


def test_ppo_runs_give_the_same_bytes_on_every_executor(cluster, tmp_path):
    pytest.importorskip("jax")
    settings = {"envs": 2, "steps": 8, "epochs": 2, "minibatch": 8, "hidden": [4]}
    arms = (Arm(label="PPO", algorithm="ppo"), Arm(label="VPAC", algorithm="vpac-ppo", settings={"psi": 0.1}))
    study = little(runs=1, kind="deep", env="CartPole-v1", steps=64, episodes=4, settings=settings, arms=arms)
    found = {}
    for name, hands in {"serial": Serial(), "processes": Processes(1), "ray": OnRay(cluster.address, 1)}.items():
        store = Store(tmp_path / name)
        try:
            tally = carry_out_studies([plan(study)], store, hands)["little"]
        finally:
            hands.close()
        assert (tally.done, tally.failed) == (2, [])
        found[name] = contents(store)
    assert found["serial"] == found["processes"] == found["ray"]


def test_a_run_that_kills_its_workers_fails_alone(cluster, tmp_path, monkeypatch):
    arms = (
        Arm(label="good", algorithm="ac"),
        Arm(label="deadly", algorithm="ac", env="killer:Killer-v0", settings={"gamma": 0.9}),
        Arm(label="bad", algorithm="vpac", settings={"psi": -1.0}),
    )
    store, hands = Store(tmp_path), make_executor("ray", 2, cluster.address)
    try:
        tally = carry_out_studies([plan(little(runs=1, arms=arms))], store, hands)["little"]
        monkeypatch.setattr(Store, "identity", lambda store: "of a store that workers do not see")
        with pytest.raises(UserError, match="is not the driver's"):
            carry_out_studies([plan(little(runs=2))], store, hands)
    finally:
        hands.close()
    assert tally.done == 1
    errors = sorted(outcome.error for outcome in tally.failed)
    assert "psi must be" in errors[0]
    assert errors[1].startswith("its worker died, 4 times")
    assert len(store.failures()) == 2


def test_a_run_that_takes_too_long_is_cancelled_and_reported(cluster, tmp_path):
    AC("broken_worlds:Sound-v0").learn(1)  # compiles, if need be: that takes its time, too
    arms = tuple(Arm(label=name, algorithm="ac", env=f"broken_worlds:{name}-v0") for name in ("Sound", "Hangs"))
    store, hands = Store(tmp_path), make_executor("ray", None, cluster.address, time_limit=12.0)
    try:
        tally = carry_out_studies([plan(little(runs=1, arms=arms, evaluate="returns"))], store, hands)["little"]
    finally:
        hands.close()
    assert tally.done == 1
    (failed,) = tally.failed
    assert failed.error == "it was stopped at its time limit of 12 s"
    assert store.failures() == [failed.name]


def command(spec, root, *more, **environment):
    words = ["sweep", str(spec), "--store", str(root), "--json", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "vpac", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env=os.environ | environment,
    )  # fmt: skip


def test_ctrl_c_cancels_what_is_far_away_and_the_rest_can_be_done_here(cluster, tmp_path, capsys):
    spec, store = tmp_path / "little.toml", Store(tmp_path / "results")
    spec.write_text(UNDRAWN.format(runs=8, episodes=20000), encoding="utf-8")
    process = command(spec, store.root, "--executor", "ray", "--address", cluster.address)
    while len(store.names()) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert f"--executor ray --address {cluster.address}" in err
    for _ in range(100):
        if not workers():
            break
        time.sleep(0.1)
    assert workers() == []
    done = len(store.names())
    assert 3 <= done < 16
    assert main(["sweep", str(spec), "--store", str(store.root), "--json", "--executor", "serial"]) == 0
    assert json.loads(capsys.readouterr().out)["experiments"]["little"]["kept"] >= done


def test_who_does_not_know_the_token_is_not_let_in(cluster, tmp_path):
    spec = tmp_path / "little.toml"
    spec.write_text(UNDRAWN.format(runs=1, episodes=20), encoding="utf-8")
    more = ("--executor", "ray", "--address", cluster.address)
    process = command(spec, tmp_path / "results", *more, RAY_AUTH_TOKEN="f" * 64, RAY_gcs_server_port_wait_time_s="1")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    assert "cannot reach a Ray cluster" in err
    assert "Traceback" not in err


def test_a_run_is_given_what_it_uses_or_all_that_the_largest_machine_has():
    tabular, deep = (Run({"kind": kind}, 0, 1) for kind in ("training", "deep"))
    assert resources(tabular, {"CPU": 64.0, "memory": 2.0**36}) == {"CPU": 1, "memory": 2**29}
    assert resources(deep, {"CPU": 64.0, "memory": 2.0**36}) == {"CPU": 2, "memory": 2**30}
    assert resources(deep, {"CPU": 1.0, "memory": 2.0**29}) == {"CPU": 1, "memory": 2**29}
    assert resources(deep, {}) == {"CPU": 2, "memory": 2**30}  # no node is connected yet
    assert resources(deep, {})["CPU"] == benchmark("cluster_plan").CORES_A_RUN


def benchmark(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[3] / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_ppo_run_on_a_large_machine_steps_on_the_cores_that_it_was_given(tmp_path, monkeypatch):
    """EnvPool would take all of them; what is learned does not depend on it."""
    pytest.importorskip("jax")
    envpool = pytest.importorskip("envpool")
    make, threads = envpool.make, []

    def noted(*words, num_threads, **more):
        threads.append(num_threads)
        return make(*words, num_threads=num_threads, **more)

    monkeypatch.setattr(envpool, "make", noted)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(12)))
    task = {
        "kind": "deep", "env": "InvertedPendulum-v4", "env_settings": {}, "algorithm": "ppo", "steps": 64, "episodes": 4,
        "settings": {"envs": 8, "steps": 8, "epochs": 1, "minibatch": 64, "hidden": [4]}, "fixed_start": {},
    }  # fmt: skip
    run, alone, far = Run(task, 0, 1), Store(tmp_path / "alone"), Store(tmp_path / "far")
    carry_out(alone, run)
    assert max(threads) > 1
    threads.clear()
    assert remote_run(far.address, far.identity(), __version__, run.content, 2)[0].status == "finished"
    assert set(threads) == {1}
    assert contents(far) == contents(alone)


def test_another_version_and_another_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"vpac 0\.0\.0 sent a run to vpac"):
        remote_run(str(tmp_path), "", "0.0.0", {})
    Store(tmp_path).identity()
    with pytest.raises(UserError, match="is not the driver's: use a folder that all machines share"):
        remote_run(str(tmp_path), "another", __version__, {})


@pytest.fixture
def closed():
    """A port of this machine without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


@pytest.mark.parametrize("where", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "$RAY_ADDRESS"])
def test_an_address_without_a_listener_is_rejected_at_once(closed, tmp_path, monkeypatch, capfd, where):
    spec = tmp_path / "little.toml"
    spec.write_text(UNDRAWN.format(runs=1, episodes=20), encoding="utf-8")
    words = ["sweep", str(spec), "--store", str(tmp_path / "results"), "--executor", "ray", "--json"]
    address = where.format(closed)
    if where == "$RAY_ADDRESS":
        address = f"127.0.0.1:{closed}"
        monkeypatch.setenv("RAY_ADDRESS", address)
    else:
        words += ["--address", address]
    begun = time.monotonic()
    assert main(words) == 2
    assert time.monotonic() - begun < 10.0
    out, err = capfd.readouterr()
    assert out == ""
    assert f"cannot reach a Ray cluster at {address}: Connection refused (127.0.0.1, port {closed})" in " ".join(
        err.split()
    )
    assert f"ray start --head --port {closed}" in " ".join(err.split())
    assert not (tmp_path / "results" / "runs").exists()


def test_a_machine_that_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(on_ray, "CONNECT_TIMEOUT", 0.05)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        others = [socket.socket() for _ in range(4)]
        try:
            for other in others:  # the queue of those that are not accepted is full: the next one waits
                other.setblocking(False)
                other.connect_ex(full.getsockname())
            with pytest.raises(UserError, match=r"no answer in 0\.05 s"):
                on_ray.check_address("{}:{}".format(*full.getsockname()))
        finally:
            for other in others:
                other.close()


LOCAL = """
import os, re
from pathlib import Path
from vpac.lab.workers.ray import _connect

def descendants(pid):
    parents = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, rest = each.read_text().split(" ", 1)
            parents[int(number)] = int(rest.rpartition(")")[2].split()[1])
        except OSError:
            pass
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found

ray = _connect(None)
listening = {
    fields[9]: fields[1].partition(":")[0]
    for name in ("tcp", "tcp6")
    for fields in map(str.split, Path("/proc/net", name).read_text().splitlines()[1:])
    if fields[3] == "0A"
}
heard = set()
for pid in descendants(os.getpid()):
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            inode = re.findall(r"socket:\\[(\\d+)\\]", os.readlink(link))
        except OSError:
            continue
        heard |= {listening[each] for each in inode if each in listening}
print(ray.nodes()[0]["NodeManagerAddress"], *sorted(heard))
"""


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's list of sockets")
def test_a_cluster_that_is_started_here_listens_on_the_loopback_interface_alone():
    """0100007F is 127.0.0.1, and the other is ::1 or 127.0.0.1 as IPv6 writes it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # else Ray finds the cluster of another test in its file
        env["RAY_TMPDIR"] = folder
        done = subprocess.run([sys.executable, "-c", LOCAL], capture_output=True, text=True, env=env, timeout=200)
    node, *heard = done.stdout.split()
    assert node == "127.0.0.1", done.stderr
    assert "0100007F" in heard
    assert set(heard) <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_a_cluster_that_is_gone_but_still_in_rays_file_is_not_waited_for(closed, tmp_path):
    """Ray itself tries for minutes."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{closed}", encoding="utf-8")
    env = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")} | {
        "RAY_TMPDIR": str(tmp_path)
    }
    code = "from vpac.lab.workers.ray import _connect; _connect(None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert f"port {closed}). Start one there" in done.stderr
    assert "`--address local` for a new one" in done.stderr


@pytest.mark.parametrize(
    "address", ["head", "head:", "head:0", "head:65536", "os://x:1", "http://head:1", "[::1:6379", "a b:1"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UserError, match=r"expected HOST:PORT, ray://HOST:PORT or auto"):
        on_ray.check_address(address)


def test_an_address_is_for_ray():
    with pytest.raises(UserError, match="use --executor ray with it"):
        make_executor("processes", 2, "127.0.0.1:6379")
