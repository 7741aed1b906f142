from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest

from milepost.errors import EnvironmentUnusable
from milepost.storage.scratch_disk import on_scratch_disk, scratch_file
from milepost_testkit import wording


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO])
def test_a_disk_error_is_reported_with_its_owner_and_a_hint(number: int) -> None:
    with (
        wording.raises(EnvironmentUnusable) as raised,
        on_scratch_disk("take a file", who="sink orders: ", now_true="Nothing was published."),
    ):
        raise OSError(number, "refused")
    assert "TMPDIR" in raised.value.hint


def test_an_error_that_is_not_the_disks_is_raised_unchanged() -> None:
    with pytest.raises(OSError, match="not ours") as raised, on_scratch_disk("take a file"):
        raise OSError(errno.EACCES, "not ours")
    assert raised.value.errno == errno.EACCES


def test_a_file_that_cannot_be_created_is_reported_as_a_write_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with wording.raises(EnvironmentUnusable) as raised, scratch_file("take a file", who="sink orders: "):
        pass
    assert str(tmp_path / "gone") in raised.value.message
    assert "TMPDIR" in raised.value.hint
