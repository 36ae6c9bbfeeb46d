"""Names that are imported when they are first used, so that `import vpac` stays quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package whose public names live in the modules `homes[name]`.

    A name whose home is the name itself, as in {"oracle": "vpac.oracle"}, is a module.
    """

    def getattr_(name: str) -> Any:
        if name not in homes:
            from vpac.errors import suggestion

            raise AttributeError(f"module {package!r} has no attribute {name!r}{suggestion(name, homes)}")
        module = importlib.import_module(homes[name])
        value = module if homes[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def dir_() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return getattr_, dir_
