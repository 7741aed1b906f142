"""Every reason is used somewhere, or explains why nothing can give it."""

from __future__ import annotations

import ast

import pytest

from milepost.protocol.records.reasons import COUNTED_REASONS, MEANINGS, RESERVED_REASONS, CheckpointFailureReason
from milepost_testkit.processes.processes import REPOSITORY

PIPELINE = REPOSITORY / "pipeline" / "milepost"


def named_in_the_product() -> set[str]:
    """The reasons that some module names, other than the one that lists them."""
    names = set(CheckpointFailureReason.__members__)
    return {
        node.attr
        for file in PIPELINE.rglob("*.py")
        if file.name != "reasons.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in names and isinstance(node.value, ast.Name)
    }


@pytest.mark.long
def test_a_reason_is_given_by_the_product_or_reserved() -> None:
    """A vocabulary that lists what can never happen would be read for what may."""
    reserved = {reason.name for reason in RESERVED_REASONS}
    assert named_in_the_product() == set(CheckpointFailureReason.__members__) - reserved


def test_a_reserved_reason_is_one_of_flinks_that_does_not_count() -> None:
    of_flink = list(CheckpointFailureReason)[:24]
    assert set(RESERVED_REASONS) <= set(of_flink) - COUNTED_REASONS
    assert all(MEANINGS[reason].startswith("reserved, never given here: ") for reason in RESERVED_REASONS)
