"""A changed certificate is rejected, and nothing in a certificate is run."""

from __future__ import annotations

import json

import pytest

import vpac
from vpac.errors import Newer, UserError
from vpac.files import sealed
from vpac.risk import Limit, PolicyCertificate


@pytest.fixture(scope="module")
def certificate():
    limits = [Limit("max-ruin", 0.5, 0.0)]
    return vpac.certify(lambda observation: 0, "vpac/CatchUp-v0", 40, limits=limits, sources=0)


def test_it_comes_back_as_it_was(certificate, tmp_path):
    found = PolicyCertificate.load(certificate.save(tmp_path / "certificate.json"))
    assert found.data == certificate.data
    assert found.checksum == certificate.checksum == json.loads((tmp_path / "certificate.json").read_text())["checksum"]
    assert found.sample.returns.tolist() == certificate.sample.returns.tolist()
    assert found.limits == (Limit("max-ruin", 0.5, 0.0),)
    assert found.holds
    watch = vpac.monitor(tmp_path / "certificate.json")
    assert list(watch.thresholds) == ["mean", "variance", "below 0", "change"]


def test_a_changed_number_is_found(certificate, tmp_path):
    path = certificate.save(tmp_path / "certificate.json")
    text = path.read_text()
    for old, new in (('"does not hold"', '"holds"'), ('"verdict": "holds"', '"verdict": "undecided"'), ("0.5", "0.4")):
        if old in text:
            path.write_text(text.replace(old, new, 1))
            with pytest.raises(UserError, match="checksum differs"):
                vpac.monitor(path)


@pytest.mark.parametrize(
    "change",
    [
        {"episodes": {}}, {"measurement": []}, {"limits": [{"limit": {"kind": "x"}}]}, {"policy": {}}, {"worst": None},
        {"limits": [{"limit": {"kind": "max-ruin", "value": 7.0, "at": 0.0}}]}, {"episodes": {"return": ["__import__('os')"]}},
    ],
    ids=str,
)  # fmt: skip
def test_sealed_nonsense_is_a_users_error(certificate, tmp_path, change):
    path = tmp_path / "certificate.json"
    path.write_text(sealed({**certificate.data, **change}))
    with pytest.raises(UserError, match="certificate"):
        PolicyCertificate.load(path)


def test_other_files_are_refused(certificate, tmp_path):
    path = tmp_path / "certificate.json"
    for text in ("", "[]", "{", '{"format": 1}', "\x00" * 100):
        path.write_text(text)
        with pytest.raises(UserError):
            PolicyCertificate.load(path)
    with pytest.raises(UserError, match="cannot read"):
        PolicyCertificate.load(tmp_path / "nothing.json")
    path.write_text(sealed({**certificate.data, "format": 99}))
    with pytest.raises(Newer, match="newer version"):
        PolicyCertificate.load(path)
