"""Two processes that compile into one empty cache at once: both get the same numbers, and the cache is good afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = "import little; print(little.total(1000.0), sum(little.total.stats.cache_hits.values()))"
SOURCE = """
from vpac.learners.compiled import compiled


@compiled
def total(n):
    found = 0.0
    while n > 0.0:
        found += 1.0 / n
        n -= 1.0
    return found
"""


def test_two_processes_fill_one_cache(tmp_path):
    (tmp_path / "little.py").write_text(SOURCE)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", SCRIPT]

    def start():
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
        )

    both = [start(), start()]
    said = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    numbers = {out.split()[0] for out, _ in said}
    out, _ = start().communicate(timeout=120)
    assert out.split() == [*numbers, "1"]
