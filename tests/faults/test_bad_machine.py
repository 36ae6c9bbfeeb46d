"""A clock that jumps and a slow disk, for whole processes, by a preloaded C library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from tiny import UNDRAWN, contents
from vpac.lab.experiments.catalogue import read_experiment
from vpac.lab.store.store import Store
from vpac.lab.workers.pool import Serial
from vpac.lab.workers.study import carry_out_studies, plan

COMPILER = shutil.which("cc")
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

/* JUMP=seconds: every second look at the wall clock is so much later, or, below 0, earlier */
int clock_gettime(clockid_t which, struct timespec *found) {
    static int looks;
    int (*real)(clockid_t, struct timespec *) = next("clock_gettime");
    int code = real(which, found);
    char *jump = getenv("JUMP");
    if (which == CLOCK_REALTIME && jump && __sync_fetch_and_add(&looks, 1) % 2) found->tv_sec += atol(jump);
    return code;
}

/* SLOW=milliseconds: what waits for the disk waits so much longer */
static void wait_for_it(void) {
    char *slow = getenv("SLOW");
    if (slow) usleep(1000 * atoi(slow));
}
int fsync(int file) { wait_for_it(); return ((int (*)(int))next("fsync"))(file); }
int fdatasync(int file) { wait_for_it(); return ((int (*)(int))next("fdatasync"))(file); }
int syncfs(int file) { wait_for_it(); return ((int (*)(int))next("syncfs"))(file); }
int rename(const char *from, const char *to) {
    wait_for_it();
    return ((int (*)(const char *, const char *))next("rename"))(from, to);
}
"""

LOOK = """
import os, time
day, begun = time.time(), time.monotonic()
os.fsync(os.open(".", 0))
print(time.time() - day, time.monotonic() - begun)
"""


@pytest.fixture(scope="module")
def bad_machine(tmp_path_factory):
    """The environment of processes whose clock jumps and whose disk is slow, if there is a C compiler."""
    if COMPILER is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM, encoding="utf-8")
    built = subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-o", "shim.so", "shim.c", "-ldl"], cwd=folder, capture_output=True, check=False
    )
    if built.returncode:
        pytest.skip("the C compiler does not work here")
    return os.environ | {"LD_PRELOAD": str(folder / "shim.so")}


def sweep(folder, environment):
    (folder / "little.toml").write_text(UNDRAWN.format(runs=4, episodes=200), encoding="utf-8")
    words = ["sweep", "little.toml", "--store", "store", "--jobs", "2", "--time-limit", "60", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "vpac", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["experiments"]["little"], contents(Store(folder / "store"))


@pytest.mark.parametrize("fault", [{"JUMP": "86400", "SLOW": "100"}, {"JUMP": "-86400"}])
def test_a_study_goes_on_and_ends_the_same(bad_machine, tmp_path, fault):
    """No run exceeds its time limit because the clock is set or the disk is slow."""
    seen = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, env=bad_machine | fault, capture_output=True, text=True, check=True
    )
    jump, waited = map(float, seen.stdout.split())
    assert abs(jump) > 80_000  # it is that bad
    assert waited >= 0.1 or "SLOW" not in fault
    begun = time.monotonic()
    tally, found = sweep(tmp_path, bad_machine | fault)
    assert (tally["done"], tally["failed"], tally["damaged"]) == (8, [], [])
    assert 0.0 <= tally["seconds"] < time.monotonic() - begun
    good = Store(tmp_path / "good")
    carry_out_studies([plan(read_experiment(tmp_path / "little.toml"), full=True)], good, Serial())
    assert found == contents(good)
