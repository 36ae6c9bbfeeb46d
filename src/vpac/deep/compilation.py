"""How JAX computes for us: on two threads of its own, with the same rounding on any number of cores, compiled once.

XLA splits sums among its threads, so its last digits depend on how many there are, and by itself it has one for each core.
With two, always, results do not depend on the machine's cores. Two are enough for what is to be done at a time: the policy
beside a critic, or a critic beside the environments, which are stepped on the other cores.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["prepare"]


@cache
def prepare() -> None:
    """Tell JAX, before it first computes; what it was told already stays."""
    os.environ.setdefault("PJRT_NPROC", "2")
    import jax

    config: Any = jax.config
    config.update("jax_cpu_enable_async_dispatch", False)
    if config.jax_compilation_cache_dir or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    config.update("jax_compilation_cache_dir", str(base / "vpac" / "jax"))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
