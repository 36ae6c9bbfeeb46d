"""Compiled code on disk: processes compile a function once; a full disk only costs time."""

from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys

import pytest
from numba.core.caching import IndexDataCacheFile

from vpac.tabular.kernel import jit

SCRIPT = "import little; print(little.total(1000.0), sum(little.total.stats.cache_hits.values()))"
SOURCE = """
from vpac.tabular.kernel.jit import compiled


@compiled
def total(n):
    found = 0.0
    while n > 0.0:
        found += 1.0 / n
        n -= 1.0
    return found
"""


def test_of_processes_that_fill_one_cache_one_compiles(tmp_path):
    (tmp_path / "little.py").write_text(SOURCE)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", SCRIPT]
    shared = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment, "cwd": tmp_path}
    three = [subprocess.Popen(command, **shared) for _ in range(3)]
    said = [process.communicate(timeout=120) for process in three]
    assert [process.returncode for process in three] == [0, 0, 0], said
    assert len({out.split()[0] for out, _ in said}) == 1
    assert sorted(out.split()[1] for out, _ in said) == ["0", "1", "1"]


def test_a_disk_that_is_full_costs_only_time(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space left on device")

    (tmp_path / "little.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(jit, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(IndexDataCacheFile, "save", full)
    monkeypatch.delitem(sys.modules, "little", raising=False)
    assert importlib.import_module("little").total(1000.0) == pytest.approx(7.485470860550345)
    monkeypatch.delitem(sys.modules, "little")
