"""A certificate: what was measured of a policy, as one sealed JSON file. Numbers and words only; nothing in it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vpac.errors import Newer, UserError
from vpac.files import CHECKSUM, LARGEST_TEXT, check_seal, parse, read_input, sealed, write_text
from vpac.risk.budget import Limit
from vpac.risk.sample import COLUMNS, ReturnSample

FORMAT = 1
PARTS: dict[str, Any] = {
    "format": int, "about": dict, "policy": dict, "environment": dict, "measurement": dict, "episodes": dict, "metrics": dict,
    "below": list, "worst": list, "sources": dict | None, "baseline": dict | None, "limits": list, "stress": dict | None,
    "monitor": list, "notes": list,
}  # fmt: skip
"""Of the file, and their kinds."""


@dataclass(frozen=True, eq=False)
class PolicyCertificate:
    """What was measured of a policy. `vpac.certify` and `vpac certify RUN` make it; docs/certify.md has its parts."""

    data: Mapping[str, Any]
    """All of it, as plain data; unknown numbers are None."""

    @property
    def name(self) -> str:
        """The policy's."""
        return str(self.data["policy"]["name"])

    @cached_property
    def sample(self) -> ReturnSample:
        """The returns that it rests on."""
        return sample_of(self.data["episodes"], self.data["measurement"])

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that it judges."""
        return tuple(Limit(**one["limit"]) for one in self.data["limits"])

    @property
    def holds(self) -> bool:
        """Whether every limit holds; also true of a certificate without limits."""
        return all(one["verdict"] == "holds" for one in self.data["limits"])

    def save(self, path: str | Path) -> Path:
        """Write it with a checksum of itself, whole or not at all."""
        return write_text(Path(path), self._text + "\n")

    @cached_property
    def _text(self) -> str:
        return sealed(dict(self.data), indent=1, allow_nan=False)

    @property
    def checksum(self) -> str:
        """Of the file."""
        return str(parse(self._text)[CHECKSUM])

    @classmethod
    def load(cls, path: str | Path) -> PolicyCertificate:
        """Read it and check that it is what was written."""
        path = Path(path)
        data = read_sealed(path, "a certificate", FORMAT, PARTS)
        found = cls(data)
        try:
            len(found.sample), found.name, found.limits
        except (UserError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{path} does not hold a certificate: {type(error).__name__}: {error!s:.200}") from None
        return found

    def __repr__(self) -> str:
        return f"PolicyCertificate({self.name}, {self.sample!r})"


def read_sealed(path: Path, what: str, newest: int, parts: Mapping[str, Any]) -> dict[str, Any]:
    """A sealed JSON file whose checksum, format and parts are right; whatever is wrong is a `UserError`."""
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
    return {name: getattr(sample, field).tolist() for name, field in COLUMNS.items()}


def sample_of(episodes: Mapping[str, Any], measurement: Mapping[str, Any]) -> ReturnSample:
    """A sample from its episodes and how they were measured."""
    columns = {field: episodes[name] for name, field in COLUMNS.items()}
    return ReturnSample(**columns, gamma=float(measurement["gamma"]), about=measurement, kind=measurement["kind"])
