"""A real Ray cluster of several nodes on this machine, with tokens, and what may happen to it."""

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

from buckets import KEYS, s3_server
from tiny import SPEC, contents, little
from vpac.errors import UserError
from vpac.execution.cluster import OnRay, there
from vpac.execution.executors import Serial, make_executor
from vpac.execution.run import Run
from vpac.execution.store import Store
from vpac.execution.study import carry_out_studies, plan
from vpac.experiments.spec import Arm
from vpac.learners import AC

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
LOOPBACK = {"node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20, "memory": 4 * 2**30}


@pytest.fixture(scope="module")
def cluster():
    """A head that carries out nothing and two nodes of one core; whoever connects must know the token."""
    environment = KEYS | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": os.urandom(32).hex(),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # or Ray replaces 127.0.0.1 by another address of this machine
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster  # only now: Ray reads the environment when it is imported

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **LOOPBACK})
        try:
            for _ in range(2):
                made.add_node(num_cpus=1, **LOOPBACK)
            yield made
        finally:
            made.shutdown()


def workers() -> list[int]:
    """Processes that are at a run."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes().startswith(b"ray::there"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


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
            cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)

    with s3_server() as url:
        store, hands = Store(f"s3://vpac/study?endpoint={url}"), OnRay(cluster.address)
        try:
            tally = carry_out_studies(plans, store, hands, disturb)["little"]
        finally:
            hands.close()
            cluster.add_node(num_cpus=1, **LOOPBACK)
        assert killed
        assert (tally.done, tally.failed) == (16, [])
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
    run, killed = Run(task, 0, 5), []

    def kill_after_a_checkpoint(place):
        while not any(key.endswith("agent.json") for key in place.keys("checkpoints")):
            time.sleep(0.02)
        killed.extend(workers())
        os.kill(killed[0], signal.SIGKILL)

    with s3_server() as url:
        store, hands = Store(f"s3://vpac/ppo?endpoint={url}"), OnRay(cluster.address, 1)
        thread = threading.Thread(target=kill_after_a_checkpoint, args=(store.place,), daemon=True)
        thread.start()
        try:
            (outcome,) = hands.run(store, [run])
        finally:
            hands.close()
        assert (outcome.status, outcome.error) == ("finished", "")
        assert store.place.keys("checkpoints") == []
    steps = {int(path.name): path.stat().st_size for path in log.iterdir()}
    first = steps.pop(killed[0])
    (second,) = steps.values()
    assert 320 <= first < 640  # of three steps one only begins an episode
    assert second == 320 + 2 * 64  # the other half, and the episodes that are measured


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
    assert errors[1].startswith("its worker died, 3 times")
    assert len(store.failures()) == 2


def test_a_run_that_takes_too_long_is_cancelled_and_reported(cluster, tmp_path):
    AC("broken_worlds:Sound-v0").learn(1)  # compiles, if need be: that takes its time, too
    arms = tuple(Arm(label=name, algorithm="ac", env=f"broken_worlds:{name}-v0") for name in ("Sound", "Hangs"))
    store, hands = Store(tmp_path), make_executor("ray", None, cluster.address, time_limit=20.0)
    try:
        tally = carry_out_studies([plan(little(runs=1, arms=arms, evaluate="returns"))], store, hands)["little"]
    finally:
        hands.close()
    assert tally.done == 1
    (failed,) = tally.failed
    assert failed.error == "it was stopped at its time limit of 20 s"
    assert store.failures() == [failed.name]


def command(spec, root, *more, **environment):
    words = ["sweep", str(spec), "--store", str(root), "--json", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "vpac", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env=os.environ | environment,
    )  # fmt: skip


def test_ctrl_c_cancels_what_is_far_away_and_the_rest_can_be_done_here(cluster, tmp_path):
    spec, store = tmp_path / "little.toml", Store(tmp_path / "results")
    spec.write_text(SPEC.format(runs=8, episodes=20000), encoding="utf-8")
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
    process = command(spec, store.root, "--executor", "serial")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out)["experiments"]["little"]["kept"] >= done


def test_who_does_not_know_the_token_is_not_let_in(cluster, tmp_path):
    spec = tmp_path / "little.toml"
    spec.write_text(SPEC.format(runs=1, episodes=20), encoding="utf-8")
    more = ("--executor", "ray", "--address", cluster.address)
    process = command(spec, tmp_path / "results", *more, RAY_AUTH_TOKEN="f" * 64, RAY_gcs_server_port_wait_time_s="1")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    assert "cannot reach a Ray cluster" in err
    assert "Traceback" not in err


def test_another_version_and_another_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"vpac 0\.0\.0 sent a run to vpac"):
        there(str(tmp_path), "", "0.0.0", {})
    from vpac._version import __version__

    Store(tmp_path).identity()
    with pytest.raises(UserError, match="is not the driver's: use a folder that all machines share"):
        there(str(tmp_path), "another", __version__, {})


def test_an_address_is_for_ray():
    with pytest.raises(UserError, match="use --executor ray with it"):
        make_executor("processes", 2, "127.0.0.1:6379")
