"""A backfill's plan names the checkpoints that it replays, and none between them."""

from __future__ import annotations

import pytest

from milepost.jobmaster.backfill.plan_document import _checkpoints
from milepost_testkit import wording


@pytest.mark.parametrize("ids", [[4], [1, 2, 3], [1, 3], [1, 2, 5, 7, 8, 9]], ids=str)
def test_checkpoints_that_follow_one_another_are_a_span(ids: list[int]) -> None:
    wording.matches("plan", _checkpoints(ids))
