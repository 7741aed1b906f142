"""The manifest's bytes: canonical, strict, pinned (I1, I6, DESIGN 9)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from milepost.codec.packing import unpack
from milepost.codec.records import decode, encode, from_json, to_json
from milepost.errors import ProtocolViolation, StateCorrupt
from milepost.protocol.log.entry_codec import (
    decode_entry,
    decode_event,
    decode_event_from_prefix,
    encode_entry,
    encode_tombstone,
)
from milepost.protocol.log.log_entries import (
    LogEntry,
    LoggedEvent,
    Tombstone,
    aborted_by,
    completed_epoch,
    completion_of,
    event_name,
    tombstone_of,
)
from milepost.protocol.manifest.transaction.events import (
    EVENT_TYPES,
    CheckpointAborted,
    CheckpointCompleted,
    JobCanceled,
    JobResumed,
    JobStarted,
    ObjectQuarantined,
    ObjectReleased,
    RealignmentDecided,
    TimelineSwitched,
)
from milepost.protocol.manifest.transaction.requests import ConfirmSinksRequest, ListProgress
from milepost.protocol.records.checkpoints import ObjectHandle, SubtaskKey
from milepost.protocol.records.decisions import Actor, Decision
from milepost.protocol.records.ids import IMPORT_SESSION_PREFIX, CheckpointId, Epoch, FencingToken, SessionId
from milepost.protocol.records.layout import veto_key
from milepost.protocol.records.manifest_state import Garbage, ManifestState
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import AIR_1, A, B, JobLog, airflow_run
from milepost_testkit.rows.key_hashes import KEY_HASH_SECRET
from milepost_testkit.stores.manifest_logs import MAX_TOMBSTONE_BYTES

GOLDEN = Path(__file__).parent / "golden"


def eventful() -> list[LogEntry]:
    """One entry of every event type, with every field of the state in use."""
    log = JobLog()
    entries: list[LogEntry] = []

    def keep() -> None:
        entries.append(LogEntry(log.state.version, f"write-{log.state.version:04d}", log.events[-1], log.state))

    keep()
    dated = airflow_run("scheduled__1", "scheduled", "2013-01-01T00:00:00+00:00")
    for session, run in ((AIR_1, dated), (A, airflow_run("m"))):
        log.now_ms += 1_000
        log.trigger(session, run)
        keep()
        log.now_ms += 1_000
        log.rebind(session)
        keep()
        log.now_ms += 1_000
        log.complete(session)
        keep()
    log.confirm(A, 1)
    keep()
    garbage = ("chk-00000000000000000001/t00000000000000000003/state/carriers/run.parquet",)
    log.subsume(A, (1,), garbage, confirms=ConfirmSinksRequest(SessionId(A), CheckpointId(2), ("lake",)))
    keep()
    log.trigger(B)
    keep()
    log.abort(B, reason=CheckpointFailureReason.SQL_ERROR, detail="Überlauf in Zeile 7: 1/0 → ANSI", tolerable=0)
    keep()
    log.resume(B)
    keep()
    log.now_ms += 10_000
    log.forget(B, (log.state.garbage[0].prefix,), 0)
    keep()
    log.pin(B, 2, "reader-1")
    keep()
    log.unpin(A, "reader-1")
    keep()
    log.realign(B)
    keep()
    log.reconcile(B)
    log.finish(B, detail="all of it")
    keep()
    log.clean(A)
    keep()
    log.start(A)
    keep()
    log.trigger(B)
    keep()
    log.pin(B, 2, "reader-2")
    keep()
    log.cancel(A, "not needed any more")
    keep()
    log.list_garbage(B, ("chk-00000000000000000003/t00000000000000000010/late.parquet",))
    keep()
    log.clean(A)
    keep()
    log.start(A)
    keep()
    fork = log.fork(B, 2)
    keep()
    log.trigger(B, timeline=fork)
    keep()
    log.complete(B, log.pending_on(fork))
    keep()
    log.trigger(B, timeline=fork)
    keep()
    log.freeze(B)
    keep()
    log.thaw(B)
    keep()
    log.record_savepoint(A, 2, "before", "s3://copies/before")
    keep()
    log.rollback(A, 0, sinks=("late", "lake"))
    keep()
    log.freeze(A)
    keep()
    log.reconcile(A, "lake")
    keep()
    log.dispose_fork(A, fork)
    keep()
    log.dispose_savepoint(A, "before")
    keep()
    fork = log.fork(B, 2)
    log.epoch_on(B, fork)
    log.fast_forward(B, fork)
    keep()
    log.reconcile(B)
    log.trigger(B)
    log.abort(B, reason=CheckpointFailureReason.QUALITY_GATE_FAILED, veto=ObjectHandle(veto_key(8), 640, "e" * 64))
    keep()
    log.list_garbage(B, ("chk-00000000000000000003/t00000000000000000010/more.parquet",), list_sha256="1" * 64)
    keep()
    log.fold(B, garbage=1)
    keep()
    log.resume(B)
    log.trigger(B)
    log.forget(B, (), 0, (ListProgress(log.state.garbage_lists[0].sha256, 1),))
    keep()
    log.compact(A, 3)
    keep()
    log.quarantine(A, "2013/é.csv")
    keep()
    log.release(A, "2013/é.csv")
    keep()
    return entries


ENTRIES = eventful()
ABORTED = next(entry for entry in ENTRIES if isinstance(entry.event, CheckpointAborted))


def document(entry: LogEntry = ABORTED) -> dict[str, Any]:
    """An entry with its columns as records."""
    value = json.loads(encode_entry(entry))
    state = value["state"]
    state |= {name: unpack(stored) for name, stored in state.items() if isinstance(stored, dict) and "of" in stored}
    return dict(value)


def dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def test_every_kind_of_event_is_read_back_as_it_was_written() -> None:
    assert {type(entry.event) for entry in ENTRIES} == set(EVENT_TYPES)
    for entry in ENTRIES:
        assert decode_entry(encode_entry(entry)) == entry
        assert decode(ManifestState, encode(entry.state), "state") == entry.state


def test_one_value_has_one_encoding() -> None:
    """Canonical: keys sorted, no spaces, ASCII; equal bytes mean equal records."""
    for entry in ENTRIES:
        body = encode_entry(entry)
        value = json.loads(body)
        assert value["format"] == "milepost.entry/3"
        canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
        assert body == canonical.encode()
    assert b"\\u00dcberlauf" in encode_entry(ABORTED)


def test_entries_are_written_as_they_were() -> None:
    lines = (GOLDEN / "entries.jsonl").read_bytes().splitlines()
    assert lines == [encode_entry(entry) for entry in ENTRIES]
    assert [decode_entry(line) for line in lines] == ENTRIES


def test_an_event_is_read_without_the_resulting_state() -> None:
    """For an entry and its tombstone alike. A torn state is ignored here, a torn event is not."""
    for entry in ENTRIES:
        told = LoggedEvent(entry.version, entry.event)
        assert decode_event(encode_entry(entry)) == told
        assert (completion_of(told), aborted_by(told)) == (completion_of(entry), aborted_by(entry))
        tombstone = tombstone_of(entry)
        assert decode_event(encode_tombstone(tombstone)) == tombstone
    whole = document()
    assert decode_event(dumped(whole | {"state": {"torn": True}})) == decode_event(dumped(whole))
    for broken in ({"event": {"type": "Unknown"}}, {"version": "7"}, {"format": "milepost.entry/1"}):
        with pytest.raises(StateCorrupt):
            decode_event(dumped(whole | broken))
    with pytest.raises(StateCorrupt):
        decode_event(dumped({name: value for name, value in whole.items() if name != "event"}))


def test_an_event_is_read_from_the_first_bytes_of_an_entry() -> None:
    """Most of a large entry is its state; None where the beginning does not tell, for then the whole does."""
    for entry in ENTRIES:
        body = encode_entry(entry)
        end = body.index(b',"format":')
        told = LoggedEvent(entry.version, entry.event)
        for begin in (body, body[: end + 40]):
            assert decode_event_from_prefix(begin, entry.version) == told
        for begin in (body[: end - 1], body[: end + 20], encode_tombstone(tombstone_of(entry)), b""):
            assert decode_event_from_prefix(begin, entry.version) is None
    assert decode_event_from_prefix(b'{"event":{"type":"JobResumed"},"format":"milepost.entry/1"', 7) is None
    with pytest.raises(StateCorrupt):
        decode_event_from_prefix(b'{"event":{"type":"Unknown"},"format":"milepost.entry/3"', 7)


def test_a_small_entry_is_decoded_once_and_a_broken_one_is_refused_each_time() -> None:
    body = encode_entry(ABORTED)
    assert len(body) < 32_000
    assert decode_entry(body, "manifest/7.json") is decode_entry(bytes(bytearray(body)), "manifest/7.json")
    for _ in range(2):
        with pytest.raises(StateCorrupt, match="manifest/7"):
            decode_entry(body[:-1], "manifest/7.json")


def buried(entry: LogEntry) -> Tombstone:
    found = decode_entry(encode_tombstone(tombstone_of(entry)))
    assert isinstance(found, Tombstone)
    return found


def test_a_tombstone_retains_what_old_versions_are_read_for() -> None:
    """I6: a key is never freed, and what a replay, a report and a lost writer need is still there."""
    for entry in ENTRIES:
        found = buried(entry)
        assert found == tombstone_of(entry)
        kept = (found.version, found.write_id, found.at_ms, found.next_checkpoint_id)
        assert kept == (entry.version, entry.write_id, entry.event.at_ms, entry.state.next_checkpoint_id)
        for ask in (event_name, completion_of, aborted_by):
            assert ask(found) == ask(entry)
    given_up = {event_name(entry): aborted_by(entry) for entry in ENTRIES if aborted_by(entry)}
    assert given_up.keys() == {"CheckpointAborted", "JobCanceled", "ForkDisposed"}
    assert buried(ABORTED).reason == "SQL_ERROR"
    done = next(entry.event.checkpoint for entry in ENTRIES if isinstance(entry.event, CheckpointCompleted))
    assert completed_epoch(done).plan == done.plan
    installed = completed_epoch(
        replace(done, session_id=SessionId(f"{IMPORT_SESSION_PREFIX}1"), summary={"watermark": "end"})
    )
    assert (installed.imported, installed.watermark) == (True, "end")


def test_a_tombstone_stays_small_with_long_numbers() -> None:
    """I6: in a job that makes a version every ten seconds for thirty years."""
    large = 99_999_998
    entry = next(entry for entry in ENTRIES if isinstance(entry.event, CheckpointCompleted))
    assert isinstance(entry.event, CheckpointCompleted)
    checkpoint = replace(
        entry.event.checkpoint,
        checkpoint_id=CheckpointId(large),
        epoch=Epoch(large),
        parent=CheckpointId(large),
        token=FencingToken(large),
        plan=replace(entry.event.checkpoint.plan, size=9_999_999),
        summary={"watermark": "2013-01-10T00:00:00.123456+00:00"},
    )
    event = replace(entry.event, checkpoint=checkpoint, at_ms=1_790_000_000_000)
    state = replace(entry.state, version=large, next_checkpoint_id=CheckpointId(large + 1))
    assert len(encode_tombstone(tombstone_of(LogEntry(large, "f" * 32, event, state)))) <= MAX_TOMBSTONE_BYTES
    assert all(len(encode_tombstone(tombstone_of(entry))) <= MAX_TOMBSTONE_BYTES for entry in ENTRIES)


@pytest.mark.parametrize(
    "change",
    [
        list.clear,
        lambda row: row.__setitem__(0, 4),
        lambda row: row.__setitem__(0, "milepost.tombstone/2"),
        list.pop,
        lambda row: row.__setitem__(4, "JobSold"),
        lambda row: row.__setitem__(1, "7"),
        lambda row: row[8].__setitem__(3, "?"),
        lambda row: row[8].__setitem__(3, "?" * 43),
        lambda row: row[8].__setitem__(6, 2),
        lambda row: row[6].append(9),
    ],
)
def test_a_tombstone_that_cannot_have_been_written_is_corrupt(change: Any) -> None:
    entry = next(entry for entry in ENTRIES if isinstance(entry.event, CheckpointCompleted))
    value = json.loads(encode_tombstone(tombstone_of(entry)))
    change(value)
    with wording.raises(StateCorrupt):
        decode_entry(dumped(value))


def test_an_input_record_under_another_name_keeps_its_entry_from_becoming_a_tombstone() -> None:
    entry = next(entry for entry in ENTRIES if isinstance(entry.event, CheckpointCompleted))
    assert isinstance(entry.event, CheckpointCompleted)
    plan = ObjectHandle("inputs/mine.json", 1, "a" * 64)
    event = replace(entry.event, checkpoint=replace(entry.event.checkpoint, plan=plan))
    with wording.raises(ProtocolViolation):
        tombstone_of(replace(entry, event=event))


def test_the_secret_is_in_no_repr_and_no_error_quotes_it() -> None:
    assert KEY_HASH_SECRET not in repr(ENTRIES)
    with wording.raises(StateCorrupt) as refused:
        decode_entry(dumped(changed("state.key_hash_secret", KEY_HASH_SECRET + "0")))
    assert KEY_HASH_SECRET not in str(refused.value)


@pytest.mark.parametrize("found", [4, "milepost.input/1", "milepost.entry/1", None, True, [1]])
def test_an_entry_of_another_format_is_refused_by_name(found: object) -> None:
    with wording.raises(StateCorrupt):
        decode_entry(dumped(document() | {"format": found}), "manifest/7.json")


def test_an_entry_of_a_newer_format_names_the_required_version() -> None:
    with wording.raises(StateCorrupt):
        decode_entry(dumped(document() | {"format": "milepost.entry/4"}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b"\xff\xfe",
        b'{"format":1,"format":1}',
        b'{"format":NaN}',
        b"[" * 100_000,
    ],
)
def test_bytes_that_are_no_entry_are_corrupt(body: bytes) -> None:
    """A torn or foreign object must never be taken for a manifest."""
    with pytest.raises(StateCorrupt):
        decode_entry(body)


def changed(path: str, value: object) -> dict[str, Any]:
    """The sample entry with the value at a dotted path replaced (`!` removes it)."""
    root = document()
    target: Any = root
    *parents, last = path.split(".")
    for part in parents:
        target = target[int(part)] if part.isdigit() else target[part]
    if value == "!":
        del target[last]
    else:
        target[int(last) if last.isdigit() else last] = value
    return root


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("write_id", "!"),
        ("extra", 1),
        ("state.extra", 1),
        ("state.failures.counted", "!"),
        ("version", "12"),
        ("version", True),
        ("version", 1.0),
        ("state.job", None),
        ("state.status", "sleeping"),
        ("state.status", 1),
        ("state.timelines", {}),
        ("state.timelines.0", []),
        ("state.timelines.0.parent", ["main"]),
        ("state.checkpoints.0.summary", []),
        (
            "event.type",
            "SomethingElse",
        ),
        ("event.type", 7),
        ("event", []),
        ("event.tolerated", 0),
        ("event.detail", "!"),
        ("event.leader", "x" * 200),
        ("state.garbage.0.prefix", "../other-job/"),
        ("state.checkpoints.0.metadata.key", "/etc/passwd"),
        ("state.version", 3),
        ("state.pins", [{"name": "r", "checkpoint_id": 1}]),
    ],
)
def test_a_mismatch_is_reported_with_its_path(path: str, value: object) -> None:
    """Strict decoding: nothing is guessed, and the message gives the path and the expectation."""
    with wording.raises(StateCorrupt):
        decode_entry(dumped(changed(path, value)))


def test_a_state_that_breaks_an_invariant_is_corrupt() -> None:
    """Somebody else wrote it: acting on it could delete what is live."""
    state = replace(ENTRIES[-1].state, next_checkpoint_id=1)  # type: ignore[arg-type]
    with wording.raises(StateCorrupt) as caught:
        decode_entry(encode_entry(replace(ENTRIES[-1], state=state)))
    assert caught.value.details["faults"]
    with wording.raises(StateCorrupt):
        decode_entry(encode_entry(replace(ENTRIES[-1], state=state)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_have_are_not_written(value: float) -> None:
    with wording.raises(ValueError):
        encode({"ratio": value})


@pytest.mark.parametrize("value", [{1: "a"}, {"a": {1, 2}}, [b"bytes"], SubtaskKey, object()])
def test_values_that_json_does_not_have_are_not_written(value: object) -> None:
    with pytest.raises(TypeError, match="no JSON form"):
        to_json(value)


def test_an_opaque_value_passes_through_unread() -> None:
    """`summary` may hold any JSON, floats, nulls and nested arrays included."""
    summary = {"rows_in": 10, "ratio": 0.1, "worst": None, "by": [{"carrier": "ÖS"}]}
    head = ENTRIES[-1].state.checkpoints[0]
    changed_head = replace(head, summary=summary)
    assert decode(type(head), encode(changed_head), "head") == changed_head


@dataclass(frozen=True, slots=True)
class Measured:
    ratio: float
    labels: dict[str, str]


def test_other_records_use_the_same_codec() -> None:
    handle = ObjectHandle("inputs/a.json", 1, "ab")
    assert from_json(ObjectHandle, to_json(handle), "handle") == handle
    assert decode(Measured, encode(Measured(0.5, {"a": "b"})), "m") == Measured(0.5, {"a": "b"})
    with wording.raises(StateCorrupt):
        decode(Measured, b'{"ratio":1,"labels":{}}', "m")
    with wording.raises(StateCorrupt):
        decode(Measured, b"[]", "m")


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/./b", "../a", "a/..", "a\nb", "a\\b", "a\x7f"])
def test_no_stored_key_leads_out_of_the_jobs_prefix(key: str) -> None:
    """DESIGN 9: references are validated when read."""
    with wording.raises(StateCorrupt):
        from_json(Garbage, {"prefix": key, "since_version": 1, "since_ms": 1}, "entry")


def test_a_manifest_stays_small() -> None:
    """I2: one small value; every retained checkpoint adds about a kilobyte."""
    per_checkpoint = len(encode(ENTRIES[-1].state.checkpoints[0]))
    assert per_checkpoint < 1_500
    assert isinstance(ENTRIES[-1].state, ManifestState)


@pytest.mark.parametrize("detail", ["", "ben (command line)"])
def test_who_resumed_and_started_a_job_is_stored_unless_it_is_unknown(detail: str) -> None:
    """Entries that were written before these events had a detail are read without one."""
    for entry in eventful():
        if not isinstance(entry.event, JobResumed | JobStarted):
            continue
        body = encode_entry(replace(entry, event=replace(entry.event, detail=detail)))
        assert json.loads(body)["event"].get("detail", "") == detail and (b'"detail":""' in body) is False
        read = decode_entry(body)
        assert isinstance(read, LogEntry)
        events = [read, decode_event(body), decode_event_from_prefix(body[:5_000], entry.version)]
        assert all(one is not None and one.event == replace(entry.event, detail=detail) for one in events)


@pytest.mark.parametrize("decision", [None, Decision(Actor("airflow", "bea", "ann", "a__operate", "r1"), "", "start")])
def test_who_decided_on_an_act_is_stored_and_events_of_earlier_versions_have_none(decision: Decision | None) -> None:
    """That of a cancellation has the aborts of pending checkpoints within it."""
    seen = set()
    for entry in eventful():
        if not hasattr(entry.event, "decided_by") or isinstance(entry.event, ObjectQuarantined | ObjectReleased):
            continue  # those always had it
        seen.add(type(entry.event))
        event = replace(entry.event, decided_by=decision)
        body = encode_entry(replace(entry, event=event))
        assert (b'"decided_by"' in body) is (decision is not None)
        read = decode_entry(body)
        assert isinstance(read, LogEntry)
        for found in (read, decode_event(body), decode_event_from_prefix(body[:5_000], entry.version)):
            assert found is not None and found.event == event
    assert seen == {CheckpointAborted, JobCanceled, JobResumed, JobStarted, RealignmentDecided, TimelineSwitched}
