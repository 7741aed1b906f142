from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest

from milepost.protocol.records.errors import EnvironmentUnusable
from milepost.storage.scratch_disk import on_scratch_disk, scratch_file
from milepost_testkit import wording


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO])
def test_what_the_disk_refuses_is_told_with_whose_it_is_and_what_to_do(number: int) -> None:
    with (
        wording.raises(EnvironmentUnusable) as raised,
        on_scratch_disk("take a file", who="sink orders: ", now_true="Nothing was published."),
    ):
        raise OSError(number, "refused")
    assert "TMPDIR" in raised.value.hint


def test_what_is_no_fault_of_the_disk_is_raised_as_it_is() -> None:
    with pytest.raises(OSError, match="not ours") as raised, on_scratch_disk("take a file"):
        raise OSError(errno.EACCES, "not ours")
    assert raised.value.errno == errno.EACCES


def test_a_file_that_cannot_be_made_is_told_as_one_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with wording.raises(EnvironmentUnusable) as raised, scratch_file("take a file", who="sink orders: "):
        pass
    assert str(tmp_path / "gone") in raised.value.message
    assert "TMPDIR" in raised.value.hint
