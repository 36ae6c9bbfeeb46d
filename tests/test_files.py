from __future__ import annotations

import pytest

from vpac.errors import UserError
from vpac.files import write_atomically, write_text


def test_a_file_is_written_with_its_folders(tmp_path):
    path = write_text(tmp_path / "a" / "b" / "c.txt", "σ")
    assert path.read_text(encoding="utf-8") == "σ"
    assert [p.name for p in path.parent.iterdir()] == ["c.txt"]


def test_a_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    path = write_text(tmp_path / "c.txt", "old")

    def fail(temporary):
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["c.txt"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file/x\.txt"):
        write_text(tmp_path / "file" / "x.txt", "")


def test_the_file_has_ordinary_permissions(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    assert write_text(tmp_path / "ours", "").stat().st_mode == plain.stat().st_mode
