"""Savepoints: listed when their copy is complete, and a root of retention while they are listed (I8)."""

from __future__ import annotations

import pytest

from pipeline.protocol.answers import AlreadyDone, Outcome, Transition
from pipeline.protocol.errors import InvalidRequest, NotFound
from pipeline.protocol.events import SavepointCreated, SavepointDisposed
from pipeline.protocol.records import ObjectHandle
from pipeline.protocol.retention import RetentionPolicy, subsumable
from pipeline.protocol.savepoints import MAX_SAVEPOINTS
from tests.harness.job_log import A, B, JobLog, refused


def epochs(count: int) -> JobLog:
    log = JobLog()
    for _ in range(count):
        log.epoch(A)
    return log


def test_a_savepoint_keeps_its_checkpoint_until_it_is_disposed_of() -> None:
    log = epochs(3)
    answer = log.record_savepoint(B, 1)
    assert isinstance(answer, Transition) and isinstance(answer.event, SavepointCreated)
    assert subsumable(log.state, RetentionPolicy(1)) == (2,)
    answer = log.dispose_savepoint(A)
    assert isinstance(answer, Transition) and isinstance(answer.event, SavepointDisposed)
    assert answer.event.savepoint.checkpoint_id == 1
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2)


def test_recording_or_disposing_twice_changes_nothing() -> None:
    log = epochs(1)
    log.record_savepoint(A, 1)
    again = log.record_savepoint(B, 1)
    assert isinstance(again, AlreadyDone) and again.outcome is Outcome.ALREADY_RECORDED
    log.dispose_savepoint(A)
    again = log.dispose_savepoint(A)
    assert isinstance(again, AlreadyDone) and again.outcome is Outcome.NO_SAVEPOINT


def test_a_name_is_taken_once() -> None:
    log = epochs(2)
    log.record_savepoint(A, 1)
    refused(log, InvalidRequest, lambda: log.record_savepoint(A, 2), "has one of that name, of checkpoint 1")


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "..", "a b", "x" * 101, "ü"])
def test_a_name_that_could_not_be_part_of_a_key_is_refused(name: str) -> None:
    log = epochs(1)
    refused(log, InvalidRequest, lambda: log.record_savepoint(A, 1, name), "savepoint name .* refused")


@pytest.mark.parametrize(
    ("location", "match"),
    [("copies/x", "absolute URL"), ("/copies", "absolute URL"), ("ftp://x/y", "ftp"), ("s3://!", "bucket")],
)
def test_a_place_that_is_no_url_is_refused(location: str, match: str) -> None:
    log = epochs(1)
    refused(log, InvalidRequest, lambda: log.record_savepoint(A, 1, location=location), match)


@pytest.mark.parametrize("location", ["s3://bucket/copies/x", "file:///copies/x"])
def test_a_savepoint_may_lie_anywhere(location: str) -> None:
    log = epochs(1)
    log.record_savepoint(A, 1, location=location)
    assert log.state.savepoints[0].location == location


def test_a_document_outside_of_the_savepoint_is_refused() -> None:
    log = epochs(1)
    outside = ObjectHandle("../savepoint.json", 1, "a")
    refused(log, InvalidRequest, lambda: log.record_savepoint(A, 1, document=outside), r"`\.\.` part")


@pytest.mark.parametrize("checkpoint_id", [0, 2, 9])
def test_a_savepoint_of_what_is_not_retained_is_not_found(checkpoint_id: int) -> None:
    log = epochs(1)
    refused(log, NotFound, lambda: log.record_savepoint(A, checkpoint_id), r"retained: \[1\]")


def test_only_so_many_savepoints_are_listed() -> None:
    log = epochs(1)
    for number in range(MAX_SAVEPOINTS):
        log.record_savepoint(A, 1, f"s{number:03d}")
    error = refused(log, InvalidRequest, lambda: log.record_savepoint(A, 1, "more"), "at most 256")
    assert "dispose" in error.hint


def test_savepoints_are_listed_by_name() -> None:
    log = epochs(1)
    for name in ("b", "c", "a"):
        log.record_savepoint(A, 1, name)
    assert [one.name for one in log.state.savepoints] == ["a", "b", "c"]
