from __future__ import annotations

import errno

import pytest

from milepost.protocol.records.errors import EnvironmentUnusable
from milepost.storage.scratch_disk import on_scratch_disk


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO])
def test_what_the_disk_refuses_is_told_with_whose_it_is_and_what_to_do(number: int) -> None:
    with (
        pytest.raises(EnvironmentUnusable) as raised,
        on_scratch_disk("take a file", who="sink orders: ", now_true="Nothing was published."),
    ):
        raise OSError(number, "refused")
    assert raised.value.message.startswith("sink orders: ") and "cannot take a file" in raised.value.message
    assert raised.value.message.endswith("Nothing was published.")
    assert "TMPDIR" in raised.value.hint


def test_what_is_no_fault_of_the_disk_is_raised_as_it_is() -> None:
    with pytest.raises(OSError, match="not ours") as raised, on_scratch_disk("take a file"):
        raise OSError(errno.EACCES, "not ours")
    assert raised.value.errno == errno.EACCES
