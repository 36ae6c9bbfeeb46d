"""A Numba cache that two processes fill at once, or that is damaged: the numbers are right and the cache is good afterwards."""

from __future__ import annotations

import fcntl
import importlib
import os
import subprocess
import sys
import time

import numba
import numpy as np
import pytest

from vpac.tabular.kernel import compiled

SCRIPT = "import little; print(little.total(1000.0), sum(little.total.stats.cache_hits.values()))"
DAMAGES = {
    "empty": lambda content, at: b"",
    "cut": lambda content, at: content[:at],
    "flipped": lambda content, at: content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :],
    "other": lambda content, at: b"not what was written",
}
SOURCE = """
from vpac.tabular.kernel.compiled import compiled


@compiled
def total(n):
    found = 0.0
    while n > 0.0:
        found += 1.0 / n
        n -= 1.0
    return found
"""


@pytest.fixture
def little(tmp_path, monkeypatch):
    """A function of its own module, and the files of its cache, filled."""
    (tmp_path / "little.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(compiled, "FOLDER", tmp_path / "cache")

    def load():
        sys.modules.pop("little", None)
        return importlib.import_module("little").total

    load()(1000.0)
    yield load, sorted((tmp_path / "cache").rglob("*.nb?"))
    sys.modules.pop("little", None)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_compiled_anew(little, damage):
    load, files = little
    assert [path.suffix for path in files] == [".nbc", ".nbi"]
    rng = np.random.default_rng(3)
    for path in files:
        good = path.read_bytes()
        for place in rng.integers(len(good), size=2):
            path.write_bytes(DAMAGES[damage](good, int(place)))
            total = load()
            assert total(1000.0) == pytest.approx(7.485470860550345)
            assert not total.stats.cache_hits
            total = load()
            assert total(1000.0) == pytest.approx(7.485470860550345)
            assert sum(total.stats.cache_hits.values()) == 1
            path.write_bytes(good)


def test_a_cache_that_cannot_be_written_costs_only_time(little):
    load, files = little
    for path in files:
        path.unlink()
        (path / "in the way").mkdir(parents=True)
    assert load()(1000.0) == pytest.approx(7.485470860550345)


@pytest.fixture
def start(tmp_path):
    """Starts a process that compiles the function, or finds it compiled."""
    (tmp_path / "little.py").write_text(SOURCE)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def begin():
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            cwd=tmp_path,
        )  # fmt: skip

    return begin


def test_of_processes_that_fill_one_cache_one_compiles(start):
    three = [start(), start(), start()]
    said = [process.communicate(timeout=120) for process in three]
    assert [process.returncode for process in three] == [0, 0, 0], said
    (number,) = {out.split()[0] for out, _ in said}
    assert sorted(out.split()[1] for out, _ in said) == ["0", "1", "1"]
    out, _ = start().communicate(timeout=120)
    assert out.split() == [number, "1"]


def test_who_compiles_and_dies_or_takes_too_long_is_not_waited_for(little, monkeypatch):
    load, files = little
    for path in files:
        path.unlink()
    total = load()
    holder = os.open(total._cache._lock, os.O_CREAT | os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    monkeypatch.setattr(compiled, "PATIENCE", 0.2)
    begun = time.monotonic()
    assert total(1000.0) == pytest.approx(7.485470860550345)
    assert time.monotonic() - begun > 0.2
    os.close(holder)  # as when it dies
    for path in files:
        path.unlink()
    monkeypatch.setattr(compiled, "PATIENCE", 1e9)
    assert load()(1000.0) == pytest.approx(7.485470860550345)


def test_an_error_while_it_is_compiled_keeps_nobody_waiting(little):
    load, _ = little
    total = load()
    with pytest.raises(numba.TypingError):
        total("text")
    with open(total._cache._lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
