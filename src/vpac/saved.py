"""Folders of saved agents: agent.json, with a checksum, and weights.safetensors, whose digest it has. Neither can hold code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np

from vpac.algorithms import BY_CLASS, Algorithm
from vpac.envs.make import EnvRecipe
from vpac.errors import UserError, suggestion
from vpac.files import LARGEST_TEXT, RECORD, check_format, parse, read_bytes, read_pair, sealed, write_pair

AGENT, WEIGHTS = "agent.json", "weights.safetensors"
TABULAR_FORMAT = 2
"""Format 2: both files have checksums."""
DEEP_FORMAT = 3
"""Format 2: agent.json has a checksum; 3: critics see the time."""
FIELDS: dict[str, Any] = {"algorithm": str, "env": str, "arguments": dict | None, "seed": int, "options": dict}
TABULAR_FIELDS: dict[str, Any] = FIELDS | {"resets": dict}
DEEP_FIELDS: dict[str, Any] = FIELDS | {
    "counters": dict, "generators": dict, "history": dict, "recent": list, "sha256": str
}  # fmt: skip


@contextmanager
def reading(folder: Path, what: str = "an agent") -> Iterator[None]:
    """Raise a `UserError` for any error in untrusted files."""
    from safetensors import SafetensorError

    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"cannot read {what} from {folder}: {error.strerror or error}") from None
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
        raise UserError(f"{folder} does not hold {what}: {type(error).__name__}: {error!s:.200}") from None


@dataclass(frozen=True)
class SavedAgent:
    """A folder whose agent.json has been read and checked."""

    folder: Path
    data: dict[str, Any]
    """The content of agent.json."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read agent.json and check its checksum, its format and the types of its fields."""
        with reading(folder):
            text = read_bytes(folder / AGENT, LARGEST_TEXT)
            data = parse(text)
            if not isinstance(data, dict):
                raise UserError(f"{folder} does not hold an agent: {AGENT} is not an object")
            deep = _is_deep(data)
            newest = DEEP_FORMAT if deep else TABULAR_FORMAT
            check_format(text, data, folder / AGENT, newest, tuple(range(1, newest)))
            for field, kind in (DEEP_FIELDS if deep else TABULAR_FIELDS).items():
                if not isinstance(data.get(field), kind) or isinstance(data.get(field), bool):
                    raise UserError(f"{folder} does not hold an agent: {field!r} in {AGENT} is {data.get(field)!r:.60}")
            if data["format"] > 1 and not isinstance(data.get("sha256"), str):
                raise UserError(f"{folder} does not hold an agent: {AGENT} has no sha256")
        return cls(folder, data)

    @property
    def deep(self) -> bool:
        """Whether it is one of the PPO family."""
        return _is_deep(self.data)

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm; for a class that is not vpac's a `UserError`: it has to load its agents itself."""
        name = self.data["algorithm"]
        if name not in BY_CLASS:
            raise UserError(
                f"{self.folder} holds an agent of unknown algorithm {name!r:.60}: expected one of {', '.join(BY_CLASS)}"
                f"{suggestion(name, BY_CLASS)}"
            )
        return BY_CLASS[name]

    @property
    def recipe(self) -> EnvRecipe | None:
        """The environment of training; None: the file does not say how it was made."""
        return EnvRecipe.read(self.data)

    def check_class(self, name: str) -> None:
        """Reject an agent of another class."""
        if self.data["algorithm"] != name:
            found = self.data["algorithm"]
            raise UserError(f"{self.folder} holds a {found}, not a {name}: use {found}.load")

    def weights(self) -> dict[str, Any]:
        """The arrays of weights.safetensors, checked; the first format of the tabular learners names no digest."""
        from safetensors.numpy import load

        digest, path = self.data.get("sha256"), self.folder / WEIGHTS
        with reading(self.folder):
            return dict(load(read_bytes(path) if digest is None else read_pair(path, digest)))


def _is_deep(data: dict[str, Any]) -> bool:
    """Whether agent.json is that of the PPO family; the classes of others are not in the registry."""
    name = data.get("algorithm")
    return BY_CLASS[name].deep if isinstance(name, str) and name in BY_CLASS else "counters" in data


def remove_record(folder: Path) -> None:
    """Remove the record of a training whose agent is about to be replaced; that of a stored run stays."""
    if (folder / AGENT).exists():
        (folder / RECORD).unlink(missing_ok=True)


def write_agent(folder: Path, data: dict[str, Any], arrays: dict[str, Any], **how: Any) -> Path:
    """Write agent.json and weights.safetensors; the previous files stay valid until then. `how`: for `json.dumps`."""
    from safetensors.numpy import save

    content = save({name: np.array(array, order="C") for name, array in arrays.items()})
    try:
        text = sealed({**data, "sha256": hashlib.sha256(content).hexdigest()}, **how)
    except (TypeError, ValueError) as error:
        raise UserError(f"the agent's settings cannot be written as JSON ({error})") from None
    remove_record(folder)
    write_pair(folder / WEIGHTS, content, folder / AGENT, text)
    return folder


def frozen(agent: Any) -> dict[str, bytes]:
    """The files of an agent's folder, by name, for pickling."""
    with TemporaryDirectory() as folder:
        agent.save(folder)
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def revived(kind: Any, files: dict[str, bytes], env: Any) -> Any:
    """The agent of such files, loaded as by `load`; `env` is its environment, if that has no name."""
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / Path(name).name).write_bytes(content)
        return kind.load(folder, env if env is not False else SavedAgent.read(Path(folder)).data["env"])
