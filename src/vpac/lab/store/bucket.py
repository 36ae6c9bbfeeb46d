"""A store in object storage: `s3://BUCKET/PREFIX`, at Amazon or at any server with the same API.

Credentials, region and endpoint come from the usual variables (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …).
Region and endpoint may also be in the address: `s3://BUCKET/PREFIX?endpoint=http://127.0.0.1:9000&region=us-east-1`.

A bucket has neither rename nor lock. A run's data is put first and its record last, on condition that there is none: a run
with a record is complete. Two workers at the same run write the same bytes, so the first record is valid for both.

A checkpoint may be a folder. Its `agent.json` is copied last and deleted first: a folder without it is incomplete and is
ignored.
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
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from vpac.errors import UserError, one_of
from vpac.files import LARGEST_READ, RECORD, Unwritable
from vpac.lab.store.backend import Scratch, Unreadable
from vpac.saved import AGENT

RETRIES, RETRY_TIMEOUT = 5, timedelta(seconds=90)
"""Number of retries, and time for all of them, of a request that was lost or refused by a busy server."""
ACCESS_KEY = "AWS_ACCESS_KEY_ID"
ENDPOINT = r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]+)?(/[A-Za-z0-9._/-]*)?"


class BucketBackend:
    """A bucket, or the part of it below a prefix."""

    parallel_reads = 16

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
            why = "expected s3://BUCKET/PREFIX; credentials come from the environment"
            raise UserError(f"cannot read {address}: {why}")
        endpoint = given.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        options: dict[str, Any] = {"region": given["region"]} if "region" in given else {}
        if endpoint:
            _check_endpoint(address, endpoint)
            options |= {"endpoint": endpoint, "client_options": {"allow_http": endpoint.startswith("http://")}}
        try:
            self._store = S3Store(
                parts.netloc, prefix=parts.path.strip("/") or None,
                retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT}, **options,
            )  # fmt: skip
        except (ValueError, TypeError, BaseError) as error:
            raise UserError(f"cannot use {address}: {str(error).splitlines()[0]:.200}") from None

    def prepare(self, reading: bool = False) -> None:
        """Check that the bucket answers."""
        try:
            self.files("studies")
        except OSError as error:
            words = str(error.strerror).removeprefix(f"cannot read {self.address}: ")
            if ACCESS_KEY not in os.environ:
                words += f". Credentials come from the environment, and it has no {ACCESS_KEY}: see docs/cluster.md"
            raise UserError(f"cannot {'read' if reading else 'use'} {self.address}: {words}") from None

    def read(self, key: str, most: int = LARGEST_READ) -> bytes:
        """Get; the client itself retries. The stream is counted, because the server may report a wrong size."""
        with self._errors():
            found, content = self._store.get(key), bytearray()
            size = int(found.meta["size"])
            for part in found.stream() if size <= most else ():
                content += bytes(part)
                if (size := len(content)) > most:
                    break
            if size > most:
                raise OSError(errno.EFBIG, f"it has {size:,} bytes or more, more than {most:,}", key)
            return bytes(content)

    def write(self, key: str, content: bytes) -> None:
        """Put, which is atomic."""
        with self._errors("write"):
            self._store.put(key, content)

    def create(self, key: str, content: bytes) -> bool:
        """Put on condition that the key does not exist."""
        from obstore.exceptions import AlreadyExistsError

        with self._errors("write"):
            try:
                self._store.put(key, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def remove(self, key: str) -> None:
        """Delete; a missing key is no error."""
        with self._errors("write"):
            self._store.delete(key)

    def files(self, folder: str) -> list[str]:
        """Names directly below a prefix."""
        with self._errors():
            found = self._store.list_with_delimiter(folder)["objects"]
            return sorted(entry["path"].rpartition("/")[2] for entry in found)

    def folders(self, folder: str) -> dict[str, int]:
        """The folders that have a record, from one listing."""
        found = {}
        for entry in self._list(folder):
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
        """Data first, the record last; an existing record stays."""
        for folder, files in folders.items():
            for name, content in files.items():
                if name != RECORD:
                    self.write(f"{folder}/{name}", content)
            self.create(f"{folder}/{RECORD}", files[RECORD])

    def move(self, folder: str, target: str) -> None:
        """Copy all, then delete, the record first: if this is interrupted, the run is incomplete."""
        keys = self.keys(folder)
        with self._errors("write"):
            for key in keys:
                self._store.copy(key, f"{target}{key.removeprefix(folder)}")
        for key in sorted(keys, key=lambda key: not key.endswith(RECORD)):
            self.remove(key)

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """No lock: work that is done twice is lost, nothing else."""
        return nullcontext(True)

    def scratch(self, folder: str) -> Scratch:
        """A temporary folder of this machine, filled from the bucket and copied to it."""
        return CopiedScratch(self, folder)

    def tidy(self) -> None:
        """Remove checkpoints of stored runs. Data without a record is overwritten when its run is carried out."""
        with self._errors():
            left = [str(path) for path in self._store.list_with_delimiter("checkpoints")["common_prefixes"]]
        for folder in left:
            if self.has(f"runs/{folder.rpartition('/')[2]}"):
                self.scratch(folder).clear()

    def keys(self, folder: str) -> list[str]:
        """All keys below a folder."""
        return [str(entry["path"]) for entry in self._list(folder)]

    def _list(self, folder: str) -> Iterator[Any]:
        with self._errors():
            for chunk in self._store.list(folder):
                yield from chunk

    @contextmanager
    def _errors(self, verb: str = "read") -> Iterator[None]:
        """Raise the client's errors as those of a file system, with the server's message."""
        from obstore.exceptions import BaseError, InvalidPathError

        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, _message(error)) from None
        except InvalidPathError as error:
            raise OSError(errno.EINVAL, _message(error)) from None
        except BaseError as error:
            kind = Unreadable if verb == "read" else Unwritable
            raise kind(errno.EIO, f"cannot {verb} {self.address}: {_message(error)}") from None


def _check_endpoint(address: str, endpoint: str) -> None:
    """Refuse what is no address of a server: the client would panic."""
    try:
        good = re.fullmatch(ENDPOINT, endpoint) and (urlsplit(endpoint).port or 1)
    except ValueError:  # a port above 65535
        good = None
    if not good:
        expected = "expected http://HOST:PORT or https://…"
        raise UserError(f"cannot use {address}: {endpoint!r:.200} is no endpoint; {expected}")


def _message(error: Exception) -> str:
    text = str(error)
    found = re.search(r"<Message>(.*?)</Message>", text, re.DOTALL)
    return found[1] if found else text.splitlines()[0][:300]


class CopiedScratch(Scratch):
    """A folder of this machine with a copy in a bucket."""

    def __init__(self, backend: BucketBackend, key: str) -> None:
        super().__init__(Path())
        self._backend, self._key = backend, key
        self._copied: dict[str, tuple[int, int] | None] = {}
        """Size and time of each file when it was last the same here and there; None: only the bucket has it."""

    @cached_property
    def folder(self) -> Path:
        """A temporary folder with the bucket's complete checkpoints."""
        folder = Path(tempfile.mkdtemp(prefix="vpac-"))
        names = [key.removeprefix(f"{self._key}/") for key in self._backend.keys(self._key)]
        complete = {name.rpartition("/")[0] for name in names if _is_last(name)} | {""}
        for name in names:
            self._copied[name] = None
            if name.rpartition("/")[0] in complete and _is_visible(name):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._backend.read(f"{self._key}/{name}"))
                self._copied[name] = _state(path)
        return folder

    def keep(self) -> None:
        """Copy new files, the oldest first, then delete what is gone."""
        paths = {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*") if path.is_file()}
        here = {name: path for name, path in paths.items() if _is_visible(name)}
        for name in sorted(here, key=lambda name: (_is_last(name), here[name].stat().st_mtime_ns)):
            if self._copied.get(name) != _state(here[name]):
                self._copied[name] = _state(here[name])
                self._backend.write(f"{self._key}/{name}", here[name].read_bytes())
        for name in sorted(self._copied.keys() - here.keys(), key=lambda name: not _is_last(name)):
            self._backend.remove(f"{self._key}/{name}")
            del self._copied[name]

    def clear(self) -> None:
        """Delete the copies."""
        for key in self._backend.keys(self._key):
            self._backend.remove(key)

    def __exit__(self, *reason: object) -> None:
        """Remove the temporary folder; the copies stay."""
        if "folder" in vars(self):
            shutil.rmtree(self.folder, ignore_errors=True)


def _is_last(name: str) -> bool:
    """Whether it is the file that makes a checkpoint's folder complete."""
    return name.endswith(f"/{AGENT}")


def _is_visible(name: str) -> bool:
    """Whether it is a file below the folder and not a temporary one."""
    return not any(part.startswith(".") or part == "" or "\0" in part for part in name.split("/"))


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
