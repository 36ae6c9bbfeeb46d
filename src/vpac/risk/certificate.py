"""A certificate: the measurements of a policy in one JSON file with a checksum. Reading it runs no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vpac.errors import Newer, UserError
from vpac.files import CHECKSUM, LARGEST_TEXT, check_seal, parse, read_input, sealed, write_text
from vpac.risk.budget import Limit
from vpac.risk.sample import SAMPLE_COLUMNS, ReturnSample

CERTIFICATE_FORMAT = 1
CERTIFICATE_PARTS: dict[str, Any] = {
    "format": int, "about": dict, "policy": dict, "environment": dict, "measurement": dict, "episodes": dict, "metrics": dict,
    "below": list, "worst": list, "sources": dict | None, "baseline": dict | None, "limits": list, "stress": dict | None,
    "monitor": list, "notes": list,
}  # fmt: skip
"""Keys of the file, and their types."""


@dataclass(frozen=True, eq=False)
class PolicyCertificate:
    """The measurements of a policy, made by `vpac.certify` and `vpac certify RUN`; docs/certify.md lists its parts."""

    data: Mapping[str, Any]
    """The content as plain data; unknown numbers are None."""

    @property
    def name(self) -> str:
        """The policy's name."""
        return str(self.data["policy"]["name"])

    @cached_property
    def sample(self) -> ReturnSample:
        """The returns of its episodes."""
        return sample_of(self.data["episodes"], self.data["measurement"])

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that were judged."""
        return tuple(Limit(**one["limit"]) for one in self.data["limits"])

    @property
    def holds(self) -> bool:
        """Whether every limit holds; true if there are none."""
        return all(one["verdict"] == "holds" for one in self.data["limits"])

    def save(self, path: str | Path) -> Path:
        """Write it atomically, with a checksum."""
        return write_text(Path(path), self._text + "\n")

    @cached_property
    def _text(self) -> str:
        return sealed(dict(self.data), indent=1, allow_nan=False)

    @property
    def checksum(self) -> str:
        """Checksum of the file."""
        return str(parse(self._text)[CHECKSUM])

    @classmethod
    def load(cls, path: str | Path) -> PolicyCertificate:
        """Read it and verify its checksum."""
        path = Path(path)
        data = read_checked(path, "a certificate", CERTIFICATE_FORMAT, CERTIFICATE_PARTS)
        found = cls(data)
        try:
            len(found.sample), found.name, found.limits
        except (UserError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{path} does not hold a certificate: {type(error).__name__}: {error!s:.200}") from None
        return found

    def __repr__(self) -> str:
        return f"PolicyCertificate({self.name}, {self.sample!r})"


def read_checked(path: Path, what: str, newest: int, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Read a JSON file and verify its checksum, format and parts; a `UserError` says what is wrong."""
    content = read_input(path, LARGEST_TEXT).rstrip(b"\n")
    try:
        data = parse(content)
        check_seal(content, data)
    except ValueError as error:
        raise UserError(f"{path} is not {what}, or not what was written: {error!s:.200}") from None
    version = data.get("format")
    if isinstance(version, int) and version > newest:
        raise Newer(f"{path} is in format {version}: this version reads formats up to {newest}, use a newer version")
    for part, kind in parts.items():
        if not isinstance(data.get(part), kind) or part not in data:
            raise UserError(f"{path} is not {what}: {part!r} in it is {data.get(part)!r:.60}")
    del data[CHECKSUM]
    return dict(data)


def episodes_of(sample: ReturnSample) -> dict[str, list[Any]]:
    """The episodes of a sample as plain data."""
    return {name: getattr(sample, field).tolist() for name, field in SAMPLE_COLUMNS.items()}


def sample_of(episodes: Mapping[str, Any], measurement: Mapping[str, Any]) -> ReturnSample:
    """A sample from its episodes and their measurement."""
    columns = {field: episodes[name] for name, field in SAMPLE_COLUMNS.items()}
    return ReturnSample(**columns, gamma=float(measurement["gamma"]), about=measurement, kind=measurement["kind"])
