"""A backfill's plan names the checkpoints that it replays, and none between them."""

from __future__ import annotations

import pytest

from milepost.jobmaster.backfill.plan_document import _checkpoints


@pytest.mark.parametrize(
    ("ids", "words"),
    [([4], "checkpoint 4"), ([1, 2, 3], "checkpoints 1 to 3"), ([1, 3], "checkpoints 1, 3"),
     ([1, 2, 5, 7, 8, 9], "checkpoints 1 to 2, 5, 7 to 9")],
)  # fmt: skip
def test_checkpoints_that_follow_one_another_are_a_span(ids: list[int], words: str) -> None:
    assert _checkpoints(ids) == words
