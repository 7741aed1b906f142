"""Packing of similar checkpoints: the manifest stores only what differs."""

from __future__ import annotations

from dataclasses import replace
from json import dumps, loads

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.codec.packing import expand_handles, pack, shorten_handles, unpack
from milepost.errors import StateCorrupt
from milepost.protocol.log.entry_codec import decode_entry, encode_entry
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.timelines.aborts import MAX_SESSIONS
from milepost.protocol.manifest.upkeep.garbage import MAX_FOLDED_KEYS, MAX_LISTS, MAX_STATE_ENTRIES, PERIODS_PER_GRACE
from milepost.protocol.records.checkpoints import SubtaskKey
from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionDigest
from milepost.protocol.records.layout import token_prefix
from milepost.protocol.records.manifest_state import Garbage, GarbageList
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import A, JobLog, airflow_run

_SCALARS = st.none() | st.booleans() | st.integers(0, 2) | st.floats(0, 1) | st.sampled_from(["", "a"])
_JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner)
)
_RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 2),
            "run": st.fixed_dictionaries({"dag": _SCALARS, "at": st.fixed_dictionaries({"day": _SCALARS})}),
            "sinks": st.lists(_SCALARS, max_size=2),
            "named": st.tuples(st.integers(0, 2), st.sampled_from(["ab", "acb", ""])).map(list),
            "summary": st.dictionaries(st.sampled_from("pq"), _JSON),
        }
    ),
    max_size=5,
)


@given(_RECORDS)
@example([{"at": "ab"}, {"at": "acb"}])
def test_unpacking_restores_values_and_types(records: list[object]) -> None:
    assert dumps(unpack(pack(records)), sort_keys=True) == dumps(records, sort_keys=True)


def test_records_become_columns_that_store_shared_values_once() -> None:
    one = {"id": 1, "run": {"dag": "a", "at": "chk-1/_metadata"}, "flag": True, "summary": {"rows": 1, "late": 0}}
    two = {"id": 2, "run": {"dag": "a", "at": "chk-12/_metadata"}, "flag": True, "summary": {"rows": 2}}
    assert pack([one, two]) == {
        "of": {
            "id": {"steps": [1, 1]},
            "run": {"of": {"dag": {"all": "a"}, "at": {"each": ["", "2"], "text": ["chk-1", "/_metadata"]}}},
            "flag": {"all": True},
            "summary": {"each": [{"rows": 1, "late": 0}, {"rows": 2}]},
        }
    }
    assert pack([["a", 1], ["b", 1]]) == {"of": [{"each": ["a", "b"], "text": ["", ""]}, {"all": 1}]}
    assert pack([one]) == [one] and pack([one, one]) == [one, one]


def test_values_that_are_not_columns_are_left_to_the_strict_reader() -> None:
    for value in (None, 7, ["x"], [{}, 7]):
        assert unpack(value) == value


@pytest.mark.parametrize(
    "column",
    [
        {},
        {"all": 1},
        {"all": 1, "each": [1]},
        {"of": {"a": {"each": [1]}, "b": {"each": [1, 2]}}},
        {"of": {"a": 7}},
        {"of": {"a": {"steps": [1, True]}}},
        {"steps": [1], "more": 1},
        {"of": [{"each": [1]}, {"each": [1, 2]}]},
        {"of": [{"each": [1]}], "more": 1},
        {"each": [1], "text": ["a", "b"]},
        {"each": ["1"], "text": ["a"]},
        {"each": [1], "more": 1},
        {"of": {"a": {"each": [1]}}, "more": 1},
    ],
)
def test_a_broken_column_is_state_corrupt(column: object) -> None:
    log = JobLog()
    log.epoch(A)
    document = loads(encode_entry(LogEntry(log.state.version, "w", log.events[-1], log.state)))
    document["state"]["checkpoints"] = column
    with wording.raises(StateCorrupt):
        decode_entry(dumps(document).encode())


def test_a_handle_stores_its_digest_once_and_nothing_else_changes() -> None:
    handle = {"key": f"inputs/{'a' * 64}.json", "sha256": "a" * 64, "size": 7}
    short = {**handle, "key": "inputs/{sha256}.json"}
    file = {**handle, "rows": 1}
    assert shorten_handles({"plans": [handle], "file": file, "n": 1}) == {"plans": [short], "file": file, "n": 1}
    assert expand_handles({"plans": [short], "file": file, "n": 1}) == {"plans": [handle], "file": file, "n": 1}
    assert expand_handles(shorten_handles({"key": "", "sha256": "", "size": 0})) == {"key": "", "sha256": "", "size": 0}


def test_a_retained_checkpoint_more_costs_half_of_what_the_first_one_does() -> None:
    log = JobLog()
    sizes = []
    for _ in range(3):
        log.epoch(A)
        entry = LogEntry(log.state.version, "w", log.events[-1], log.state)
        assert decode_entry(encode_entry(entry)) == entry
        sizes.append(len(encode_entry(entry)))
    last = replace(log.state, checkpoints=log.state.checkpoints[:1], timelines=log.state.timelines)
    first = len(encode_entry(LogEntry(last.version, "w", log.events[-1], last)))
    assert sizes[2] - sizes[1] < (first - len(encode_entry(_without_checkpoints(log)))) * 0.6


def _without_checkpoints(log: JobLog) -> LogEntry:
    head = tuple(replace(one, head=CheckpointId(0)) for one in log.state.timelines)
    state = replace(log.state, checkpoints=(), timelines=head)
    return LogEntry(state.version, "w", log.events[-1], state)


SINKS = ("carriers", "hourly_departures", "late_flights", "turnaround")
SUMMARY = {
    **dict.fromkeys(("rows_in", "rows_out", "late_rows", "checkpointed_bytes", "full_bytes", "objects"), 123456789),
    **dict.fromkeys(("acks", "sync_ms", "async_ms", "alignment_ms", "in_flight_bytes"), 12345),
    "unaligned": False,
    "watermark": "2013-01-10T00:00:00.123456+00:00",
    "quality": "passed",
}
MACHINE = "d1213117-6545-4d73-8eb5-c075e6db23f0/pid:[4026531836]"


def scheduled(log: JobLog, number: int) -> None:
    """One epoch of a schedule, with four sinks and a full summary."""
    date = f"2026-11-22T16:{number % 60:02d}:00+00:00"
    session = f"airflow:flights__epoch/scheduled__{number}_{date}"
    log.trigger(session, replace(airflow_run(f"scheduled__{number}_{date}"), logical_date=date))
    log.rebind(session)
    log.complete(session)
    done = log.state.checkpoints[-1]
    holder = replace(done.holder, machine=MACHINE, pid=10_000 + number, create_time_ms=1_795_366_229_750 + number)
    done = replace(
        done,
        code_hash="c" * 64,
        spec_hash="5" * 64,
        sinks=SINKS,
        unconfirmed=(),
        summary={**SUMMARY, "rows_in": number},
        holder=holder,
    )
    log.state = replace(log.state, checkpoints=(*log.state.checkpoints[:-1], done))
    log.events[-1] = replace(log.events[-1], checkpoint=done)  # type: ignore[call-arg]


def test_an_entry_of_ten_checkpoints_and_four_sinks_stays_below_16_kilobytes() -> None:
    """I2: with all the sessions that are remembered, a full fold of garbage and a pending epoch of 24 subtasks."""
    log = JobLog()
    for number in range(10):
        scheduled(log, number)
    digests = tuple((SessionDigest("x" * 10), CheckpointId(10_000_000 + number)) for number in range(MAX_SESSIONS))
    lists = tuple(
        GarbageList(f"{number:064x}", MAX_FOLDED_KEYS, 256, CheckpointId(5), 10, 1_795_366_229_750)
        for number in range(MAX_LISTS + PERIODS_PER_GRACE + 1)
    )
    entries = tuple(
        Garbage(f"{token_prefix(CheckpointId(3), FencingToken(number))}state/unique/{'a' * 64}.parquet", 9, 10**12)
        for number in range(1, MAX_STATE_ENTRIES + 3)
    )
    state = replace(
        log.state, completed_sessions=digests, aborted_sessions=digests, garbage_lists=lists, garbage=entries
    )
    completed = LogEntry(state.version, "f" * 32, log.events[-1], state)
    assert decode_entry(encode_entry(completed)) == completed
    assert len(encode_entry(completed)) <= 16_000
    log.state = state
    request = replace(
        log.trigger_request("airflow:flights__epoch/manual", airflow_run("manual")),
        expected=tuple(SubtaskKey(level, subtask) for level in range(3) for subtask in range(8)),
    )
    log.submit(request)
    assert len(encode_entry(LogEntry(log.state.version, "f" * 32, log.events[-1], log.state))) <= 16_000
