"""Quarantined objects are listed in the manifest until they are released."""

from __future__ import annotations

import pytest

from milepost.errors import InvalidRequest
from milepost.protocol.log.entry_codec import decode_entry, encode_entry
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.decisions import decide
from milepost.protocol.manifest.invariants import faults
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, Transition
from milepost.protocol.manifest.transaction.events import ObjectQuarantined, ObjectReleased
from milepost.protocol.manifest.transaction.requests import QuarantineRequest, ReleaseRequest
from milepost.protocol.manifest.upkeep.quarantine import MAX_QUARANTINED
from milepost.protocol.records.decisions import Actor, Decision
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.quarantined import QuarantinedObject
from milepost_testkit.jobs.job_log import epochs

ME, WHY = SessionId("cli:ben/1"), Decision(Actor("cli", "ben"), "a wrong file")
NOW_MS = 9_000_000


def quarantine(state: ManifestState, key: str, source: str = "rows", etag: str = "1") -> Answer:
    return decide(state, QuarantineRequest(ME, source, key, etag, 10, WHY), NOW_MS)


def with_quarantined(state: ManifestState, *keys: str, source: str = "rows") -> ManifestState:
    for key in keys:
        answer = quarantine(state, key, source)
        assert isinstance(answer, Transition)
        state = answer.state
    return state


def test_quarantined_objects_are_sorted_by_source_and_key_and_stay_until_they_are_released() -> None:
    state = with_quarantined(epochs(2).state, "b.csv", "a.csv")
    state = with_quarantined(state, "a.csv", source="clicks")
    assert [one.place for one in state.quarantined] == [("clicks", "a.csv"), ("rows", "a.csv"), ("rows", "b.csv")]
    assert faults(state) == []
    answer = decide(state, ReleaseRequest(ME, "rows", "a.csv", WHY), NOW_MS)
    assert isinstance(answer, Transition) and isinstance(answer.event, ObjectReleased)
    assert [one.place for one in answer.state.quarantined] == [("clicks", "a.csv"), ("rows", "b.csv")]
    assert (answer.event.object.key, answer.event.decided_by) == ("a.csv", WHY)


def test_a_version_is_quarantined_once_and_another_one_replaces_it() -> None:
    state = with_quarantined(epochs(1).state, "a.csv")
    again = quarantine(state, "a.csv")
    assert isinstance(again, AlreadyDone) and again.outcome is Outcome.ALREADY_QUARANTINED
    newer = quarantine(state, "a.csv", etag="2")
    assert isinstance(newer, Transition) and isinstance(newer.event, ObjectQuarantined)
    assert newer.state.quarantined == (QuarantinedObject("rows", "a.csv", "2", 10, NOW_MS),)


def test_what_is_not_quarantined_is_not_released() -> None:
    state = with_quarantined(epochs(1).state, "a.csv")
    for source, key in (("rows", "b.csv"), ("clicks", "a.csv")):
        answer = decide(state, ReleaseRequest(ME, source, key, WHY), NOW_MS)
        assert isinstance(answer, AlreadyDone) and answer.outcome is Outcome.NOT_QUARANTINED


def test_too_many_quarantined_objects_are_refused_with_another_way() -> None:
    state = with_quarantined(epochs(1).state, *(f"{n:03}" for n in range(MAX_QUARANTINED)))
    with pytest.raises(InvalidRequest, match="256 is the limit") as refused:
        quarantine(state, "one more")
    assert "release them" in refused.value.hint
    assert isinstance(quarantine(state, "000", etag="2"), Transition), "it replaces one"


def test_an_entry_of_before_has_no_quarantined_objects_and_a_new_one_is_stored_with_them() -> None:
    answer = quarantine(epochs(1).state, "a.csv")
    assert isinstance(answer, Transition)
    entry = LogEntry(answer.state.version, "w", answer.event, answer.state)
    assert decode_entry(encode_entry(entry)) == entry
    answer = decide(entry.state, ReleaseRequest(ME, "rows", "a.csv", WHY), NOW_MS)
    assert isinstance(answer, Transition)
    entry = LogEntry(answer.state.version, "w", answer.event, answer.state)
    assert b'"quarantined"' not in encode_entry(entry)
    assert decode_entry(encode_entry(entry)) == entry
