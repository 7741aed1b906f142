"""Quarantined objects are listed in the manifest until they are released."""

from __future__ import annotations

import pytest

from milepost.errors import CommitConflict, InvalidRequest
from milepost.protocol.failure.failures import MAX_DETAIL_CHARACTERS
from milepost.protocol.log.entry_codec import encode_entry
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import ObjectQuarantined, ObjectReleased
from milepost.protocol.manifest.transaction.requests import QuarantineRequest, ReleaseRequest
from milepost.protocol.manifest.upkeep.quarantine import MAX_QUARANTINED
from milepost.protocol.records.decisions import Decision
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.quarantined import QuarantinedObject
from milepost_testkit.jobs.job_log import A_WRONG_FILE, A, B, JobLog, epochs


def with_quarantined(*keys: str) -> JobLog:
    log = epochs(2)
    for key in keys:
        assert isinstance(log.quarantine(B, key), Transition)
    return log


def test_quarantined_objects_are_sorted_by_source_and_key_and_stay_until_they_are_released() -> None:
    log = with_quarantined("b.csv", "a.csv")
    log.quarantine(A, "a.csv", source="clicks")
    log.epoch(A)
    log.rollback(B, 1)
    assert [one.place for one in log.state.quarantined] == [("clicks", "a.csv"), ("rows", "a.csv"), ("rows", "b.csv")]
    answer = log.release(A, "a.csv")
    assert isinstance(answer, Transition) and isinstance(answer.event, ObjectReleased)
    assert [one.place for one in log.state.quarantined] == [("clicks", "a.csv"), ("rows", "b.csv")]
    assert (answer.event.object.key, answer.event.decided_by) == ("a.csv", A_WRONG_FILE)


def test_a_version_is_quarantined_once_and_another_one_replaces_it() -> None:
    log = with_quarantined("a.csv")
    again = log.quarantine(A, "a.csv")
    assert isinstance(again, AlreadyDone) and again.outcome is Outcome.ALREADY_QUARANTINED
    log.quarantine(A, "a.csv", etag="2")
    assert log.state.quarantined == (QuarantinedObject("rows", "a.csv", "2", 10, log.now_ms),)


@pytest.mark.parametrize(("source", "key"), [("rows", "b.csv"), ("clicks", "a.csv")])
def test_an_object_that_is_not_quarantined_is_not_released(source: str, key: str) -> None:
    log = with_quarantined("a.csv")
    answer = log.release(A, key, source)
    assert isinstance(answer, AlreadyDone) and answer.outcome is Outcome.NOT_QUARANTINED
    assert len(log.state.quarantined) == 1


def test_an_epoch_that_was_planned_before_a_quarantine_or_a_release_is_refused() -> None:
    log = with_quarantined("a.csv")
    before = log.state.quarantined
    log.quarantine(B, "b.csv")
    with pytest.raises(CommitConflict, match="quarantined or released since the plan was made"):
        log.trigger(A, quarantined=before)
    log.release(B, "b.csv")
    assert isinstance(log.trigger(A, quarantined=before), Transition)


def test_the_texts_of_a_decision_can_be_stored() -> None:
    log = with_quarantined()
    wrong = Decision(A_WRONG_FILE.actor, "wrong \udcff" + "!" * 3_000)
    request = QuarantineRequest(SessionId(A), "rows", "a.csv", "1", 10, wrong)
    for answer in (log.submit(request), log.submit(ReleaseRequest(SessionId(A), "rows", "a.csv", wrong))):
        assert isinstance(answer, Transition) and isinstance(answer.event, ObjectQuarantined | ObjectReleased)
        why = answer.event.decided_by.why
        assert why.startswith("wrong \\udcff") and len(why) == MAX_DETAIL_CHARACTERS


def test_too_many_quarantined_objects_are_refused_with_another_way() -> None:
    log = with_quarantined(*(f"{n:03}" for n in range(MAX_QUARANTINED)))
    with pytest.raises(InvalidRequest, match="256 is the limit") as refused:
        log.quarantine(A, "one more")
    assert "release them" in refused.value.hint
    assert isinstance(log.quarantine(A, "000", etag="2"), Transition), "it replaces one"


def test_the_state_of_a_job_without_quarantined_objects_is_stored_as_before() -> None:
    log = with_quarantined("a.csv")
    log.release(A, "a.csv")
    entry = LogEntry(log.state.version, "w", log.events[-1], log.state)
    assert b'"quarantined"' not in encode_entry(entry)
