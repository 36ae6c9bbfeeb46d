"""Runs in object storage: `s3://BUCKET/PREFIX`, at Amazon or at any server that speaks its language.

Credentials, region and endpoint come from the usual variables (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …);
region and endpoint may also stand in the address: `s3://BUCKET/PREFIX?endpoint=http://127.0.0.1:9000&region=us-east-1`.

There is no rename and no lock there. A run's data is put first and its record last, under the condition that there is none:
where the record is, the run is whole. Two that carry out the same run write the same bytes, so the first record holds for both.

A checkpoint may be a folder of files. The one that says what the others are, `agent.json`, is copied last and deleted first: a
folder that has none was not copied whole, or was about to go, and is not looked at.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from vpac.errors import UserError, one_of
from vpac.files import LARGEST, Unwritable
from vpac.lab.store.place import RECORD, Scratch, Unreadable
from vpac.saved import AGENT

__all__ = ["Copied", "Objects"]

RETRIES, PATIENCE = 5, timedelta(seconds=90)
"""How often, and for how long, a request is tried that the network lost or the server was too busy for."""

KEY = "AWS_ACCESS_KEY_ID"


class Objects:
    """A bucket, or the part of it below a prefix."""

    readers = 16

    def __init__(self, address: str) -> None:
        try:
            from obstore.exceptions import BaseError
            from obstore.store import S3Store
        except ImportError:
            raise UserError('object storage needs the extra s3: pip install "vpac[s3]"') from None
        self.address = address
        try:
            parts = urlsplit(address)
        except ValueError as error:
            raise UserError(f"cannot read {address}: {error}") from None
        given = dict(parse_qsl(parts.query))
        for name in given:
            one_of(name, ("endpoint", "region"), f"parameter in {address}")
        if not parts.netloc or "@" in parts.netloc:
            raise UserError(
                f"cannot read {address}: expected s3://BUCKET/PREFIX; credentials come from the environment"
            )
        endpoint = given.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        more: dict[str, Any] = {"region": given["region"]} if "region" in given else {}
        if endpoint:
            _check_endpoint(address, endpoint)
            more |= {"endpoint": endpoint, "client_options": {"allow_http": endpoint.startswith("http://")}}
        try:
            self._store = S3Store(
                parts.netloc, prefix=parts.path.strip("/") or None,
                retry_config={"max_retries": RETRIES, "retry_timeout": PATIENCE}, **more,
            )  # fmt: skip
        except (ValueError, TypeError, BaseError) as error:
            raise UserError(f"cannot use {address}: {str(error).splitlines()[0]:.200}") from None

    def prepare(self, reading: bool = False) -> None:
        """Look whether the bucket answers."""
        try:
            self.files("studies")
        except OSError as error:
            words = str(error.strerror).removeprefix(f"cannot read {self.address}: ")
            if KEY not in os.environ:
                words += f". Credentials come from the environment, and it has no {KEY}: see docs/cluster.md"
            raise UserError(f"cannot {'read' if reading else 'use'} {self.address}: {words}") from None

    def read(self, key: str, most: int = LARGEST) -> bytes:
        """Get. What the network loses is asked for again by the client itself; a server may say anything of the size."""
        with self._errors():
            found = self._store.get(key)
            parts, size = [], int(found.meta["size"])
            if size <= most:
                size = 0
                for part in found.stream():
                    size += len(part)
                    if size > most:
                        break
                    parts.append(bytes(part))
            if size > most:
                raise OSError(errno.EFBIG, f"it has {size:,} bytes or more, more than {most:,}", key)
            return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, key: str, content: bytes) -> None:
        """Put: an object is there whole or not at all."""
        with self._errors("write"):
            self._store.put(key, content)

    def create(self, key: str, content: bytes) -> bool:
        """Put under the condition that there is none."""
        from obstore.exceptions import AlreadyExistsError

        with self._errors("write"):
            try:
                self._store.put(key, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def remove(self, key: str) -> None:
        """Delete, which is no error if there is none."""
        with self._errors("write"):
            self._store.delete(key)

    def files(self, folder: str) -> list[str]:
        """Names right below a prefix."""
        with self._errors():
            found = self._store.list_with_delimiter(folder)["objects"]
            return sorted(entry["path"].rpartition("/")[2] for entry in found)

    def folders(self, folder: str) -> dict[str, int]:
        """Those that have a record, from one listing."""
        found = {}
        for entry in self._all(folder):
            path = str(entry["path"])
            if path.endswith(f"/{RECORD}"):
                name = path.removeprefix(f"{folder}/").removesuffix(f"/{RECORD}")
                found[name] = round(entry["last_modified"].timestamp() * 1000)
        return dict(sorted(found.items()))

    def has(self, folder: str) -> bool:
        """Whether there is a record."""
        with self._errors():
            try:
                self._store.head(f"{folder}/{RECORD}")
            except FileNotFoundError:
                return False
            return True

    def commit(self, folders: Mapping[str, dict[str, bytes]]) -> None:
        """Data first, the record last and only once."""
        for folder, files in folders.items():
            for name, content in files.items():
                if name != RECORD:
                    self.write(f"{folder}/{name}", content)
            self.create(f"{folder}/{RECORD}", files[RECORD])

    def move(self, folder: str, target: str) -> None:
        """Copy all, then delete, the record first: what is stopped in the middle is a run that is not whole."""
        keys = self.keys(folder)
        with self._errors("write"):
            for key in keys:
                self._store.copy(key, f"{target}{key.removeprefix(folder)}")
        for key in sorted(keys, key=lambda key: not key.endswith(RECORD)):
            self.remove(key)

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Nobody holds anything here: work that is done twice is lost, nothing else."""
        return nullcontext(True)

    def scratch(self, folder: str) -> Scratch:
        """A temporary folder of this machine, filled from the bucket and copied to it."""
        return Copied(self, folder)

    def tidy(self) -> None:
        """Checkpoints of runs that are kept. Data without a record is overwritten when its run is carried out."""
        with self._errors():
            left = [str(path) for path in self._store.list_with_delimiter("checkpoints")["common_prefixes"]]
        for folder in left:
            if self.has(f"runs/{folder.rpartition('/')[2]}"):
                self.scratch(folder).clear()

    def _all(self, folder: str) -> Iterator[Any]:
        with self._errors():
            for chunk in self._store.list(folder):
                yield from chunk

    def keys(self, folder: str) -> list[str]:
        """Of everything below a folder."""
        return [str(entry["path"]) for entry in self._all(folder)]

    @contextmanager
    def _errors(self, verb: str = "read") -> Iterator[None]:
        """What the client raises, as the errors of a file system, with what could not be done and the server's own words."""
        from obstore.exceptions import BaseError, InvalidPathError

        kind = Unreadable if verb == "read" else Unwritable
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, _words(error)) from None
        except InvalidPathError as error:
            raise OSError(errno.EINVAL, _words(error)) from None
        except BaseError as error:
            raise kind(errno.EIO, f"cannot {verb} {self.address}: {_words(error)}") from None


def _check_endpoint(address: str, endpoint: str) -> None:
    """The client would panic at what is no address of a server."""
    try:
        good = re.fullmatch(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]+)?(/[A-Za-z0-9._/-]*)?", endpoint)
        good = good and (urlsplit(endpoint).port or 1)  # type: ignore[assignment]
    except ValueError:  # a port above 65535, an address that is none
        good = None
    if not good:
        raise UserError(
            f"cannot use {address}: {endpoint!r:.200} is no endpoint; expected http://HOST:PORT or https://…"
        )


def _words(error: Exception) -> str:
    text = str(error)
    said = re.search(r"<Message>(.*?)</Message>", text, re.DOTALL)
    return said[1] if said else text.splitlines()[0][:300]


NOT_HERE = (-1, -1)
"""The state of a copy that this machine has no file of."""


class Copied(Scratch):
    """A folder of this machine with a copy in a bucket."""

    def __init__(self, place: Objects, key: str) -> None:
        super().__init__(Path())
        self._place, self._key = place, key
        self._known: dict[str, tuple[int, int]] = {}

    @cached_property
    def folder(self) -> Path:
        """A temporary one, with what the bucket has and is whole."""
        folder = Path(tempfile.mkdtemp(prefix="vpac-"))
        names = [key.removeprefix(f"{self._key}/") for key in self._place.keys(self._key)]
        whole = {name.rpartition("/")[0] for name in names if name.endswith(f"/{AGENT}")} | {""}
        for name in names:
            self._known[name] = NOT_HERE
            if name.rpartition("/")[0] in whole and _is_ours(name):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._place.read(f"{self._key}/{name}"))
                self._known[name] = _state(path)
        return folder

    def keep(self) -> None:
        """Copy what is new, the oldest first, then delete what is gone."""
        paths = {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*") if path.is_file()}
        there = {name: path for name, path in paths.items() if _is_ours(name)}
        for name in sorted(there, key=lambda name: (_is_last(name), there[name].stat().st_mtime_ns)):
            if self._known.get(name) != _state(there[name]):
                self._known[name] = _state(there[name])
                self._place.write(f"{self._key}/{name}", there[name].read_bytes())
        for name in sorted(self._known.keys() - there.keys(), key=lambda name: not _is_last(name)):
            self._place.remove(f"{self._key}/{name}")
            del self._known[name]

    def clear(self) -> None:
        """Delete the copies."""
        for key in self._place.keys(self._key):
            self._place.remove(key)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The temporary folder goes, the copies stay."""
        if "folder" in vars(self):
            shutil.rmtree(self.folder, ignore_errors=True)


def _is_last(name: str) -> bool:
    """Whether it is the file of a folder that says what the others are."""
    return name.endswith(f"/{AGENT}")


def _is_ours(name: str) -> bool:
    """Whether it leads to a file below the folder, and none that is still being written."""
    return not any(part.startswith(".") or part == "" or "\0" in part for part in name.split("/"))


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
