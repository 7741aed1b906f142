"""Stored heads and snapshots: golden files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from milepost.dataflow.sinks.sink_head import (
    MarkEntry,
    SnapshotRef,
    content_from_bytes,
    content_to_bytes,
    head_from_bytes,
    head_to_bytes,
    snapshot_key,
)

from milepost.protocol.records.errors import StateCorrupt

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


@pytest.mark.parametrize("name", ["head_of_a_commit", "head_of_a_follow"])
def test_stored_heads_read_and_write_back_to_the_same_bytes(name: str) -> None:
    assert head_to_bytes(head_from_bytes("head", golden(name))) == golden(name)


def test_a_head_of_a_follow_says_what_it_is_made_of() -> None:
    head = head_from_bytes("head", golden("head_of_a_follow"))
    assert head.followed is not None
    assert head.followed.base == MarkEntry(2, "main", 41, "aa" * 32)
    assert [(step.checkpoint_id, step.live_files) for step in head.followed.steps] == [(44, 3)]
    assert (head.decision, head.followed_at, head.mark.timeline) == (50, 4, "t50")


def test_stored_snapshots_read_and_write_back_to_the_same_bytes() -> None:
    """With more marks than heads: one head of a follow can stand for several checkpoints."""
    body = golden("snapshot")
    content = content_from_bytes(reference(), body)
    assert content_to_bytes(4, content) == body
    assert [entry.checkpoint_id for entry in content.marks] == [40, 41, 44, 45]


def reference() -> SnapshotRef:
    body = golden("snapshot")
    return SnapshotRef(4, snapshot_key(4, "ce" * 32), len(body), "ce" * 32)


STEP = {"checkpoint_id": 44, "committable_sha256": "44", "live_files": 3, "schema": None}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("head_of_a_commit", {"decision": 0}),
        ("head_of_a_commit", {"decision": -1}),
        ("head_of_a_commit", {"decision": True}),
        ("head_of_a_commit", {"followed_at": 0}),
        ("head_of_a_commit", {"followed_at": 6}),
        ("head_of_a_commit", {"followed_at": 5}),
        ("head_of_a_commit", {"followed": {"base": None, "steps": []}}),
        ("head_of_a_commit", {"schema": None}),
        ("head_of_a_follow", {"followed": None}),
        ("head_of_a_follow", {"snapshot": None}),
        ("head_of_a_follow", {"decision": 0, "followed_at": 0}),
        ("head_of_a_follow", {"followed": {"base": None}}),
        ("head_of_a_follow", {"followed": {"base": [2, "main", 41], "steps": []}}),
        ("head_of_a_follow", {"followed": {"base": [0, "main", 41, ""], "steps": []}}),
        ("head_of_a_follow", {"followed": {"base": None, "steps": [STEP]}}),
        ("head_of_a_follow", {"live_files": 2}),
    ],
)
def test_a_head_that_contradicts_itself_is_corrupt(name: str, change: dict[str, Any]) -> None:
    body = json.dumps({**json.loads(golden(name)), **change}).encode()
    with pytest.raises(StateCorrupt, match="the-key"):
        head_from_bytes("the-key", body)


@pytest.mark.parametrize(
    "marks",
    [
        [],
        [[1, "main", 40, ""]],
        [[5, "t50", 45, ""]],
        [[4, "t50", 44, ""], [1, "main", 40, ""], [4, "t50", 45, ""]],
        [[0, "main", 40, ""], [4, "t50", 45, ""]],
        [[1, "main", "40", ""], [4, "t50", 45, ""]],
    ],
)
def test_a_snapshot_whose_marks_do_not_lead_to_its_head_is_corrupt(marks: list[Any]) -> None:
    body = json.dumps({**json.loads(golden("snapshot")), "marks": marks}).encode()
    with pytest.raises(StateCorrupt):
        content_from_bytes(reference(), body)
