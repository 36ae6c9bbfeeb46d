"""Where compiled updates are kept from one process to the next."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["keep_compiled"]


@cache
def keep_compiled() -> None:
    """Let JAX keep what it compiles, unless the user has told it where to."""
    import jax

    config: Any = jax.config
    if config.jax_compilation_cache_dir or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    config.update("jax_compilation_cache_dir", str(base / "vpac" / "jax"))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
