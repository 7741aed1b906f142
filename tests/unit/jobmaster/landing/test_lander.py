"""A log has each row of the external system once and in order, whatever happens to the landings (L1 to L4)."""

from __future__ import annotations

import io
import uuid
from contextlib import suppress
from dataclasses import dataclass

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    PositionExpired,
    SourceReplaced,
    SourceWentBack,
    StateCorrupt,
)
from milepost.jobmaster.landing.lander import Lander
from milepost.protocol.landed.gaps import gap_record
from milepost.protocol.landed.ranges import RecordLimits, range_of, within_limits
from milepost.protocol.landed.records import Gap, LandedRange, LogPosition, LogRecord, Void
from milepost.protocol.landed.voids import accept_record, false_span, live_records, void_record
from milepost.protocol.records.layout import landed_objects_prefix
from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.log.source_log import SourceLog
from milepost_testkit import profiles, wording
from milepost_testkit.models.data.expiring_system import ExpiringSystem, OnCall
from milepost_testkit.stores.called_store import WRITES
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore
from milepost_testkit.stores.hooked_store import HookedStore
from milepost_testkit.stores.memory_store import MemoryStore

SOURCE, JOB = "numbers", "life 1"


class Killed(BaseException):
    """The process ended here."""


def lander(store: ObjectStore, system: ExpiringSystem, on_call: OnCall = lambda call: None) -> Lander:
    return Lander(SourceLog(store, SOURCE), system.open(on_call), JOB)


def rows_of(
    store: ObjectStore, position: LogPosition | None, limits: RecordLimits
) -> tuple[list[int], LandedRange | None]:
    """Return the rows of the range that an epoch reads after a position, and the range."""
    log = SourceLog(store, SOURCE)
    newest = log.newest()
    assert newest is not None
    records = within_limits(live_records(log.since(position, newest), newest.record.voids), limits)
    landed = range_of(position, records)
    rows: list[int] = []
    for stored in records:
        for item in stored.record.objects:
            body = store.get(landed_objects_prefix(SOURCE) + item.key)
            rows += pq.read_table(io.BytesIO(body))["n"].to_pylist()
    return rows, landed


def all_rows(store: ObjectStore) -> list[int]:
    rows, _ = rows_of(store, None, RecordLimits(1_000_000))
    return rows


def test_the_first_landing_begins_the_log_and_reads_to_the_end_of_its_time() -> None:
    store, system = MemoryStore("memory://job"), ExpiringSystem(produced=12)
    landing = lander(store, system).land()
    assert (landing.records, landing.rows, landing.sequence, landing.end) == (3, 12, 4, {"next": 12})
    assert all_rows(store) == list(range(12))
    assert system.acknowledged == 12


def test_a_landing_without_new_rows_appends_nothing() -> None:
    store, system = MemoryStore("memory://job"), ExpiringSystem(produced=3)
    lander(store, system).land()
    assert lander(store, system).land().records == 0


def test_a_landing_first_repeats_the_acknowledgement_of_the_newest_record() -> None:
    def stop_before_commit(call: str) -> None:
        if call == "commit":
            raise Killed

    store, system = MemoryStore("memory://job"), ExpiringSystem(produced=3)
    with pytest.raises(Killed):
        lander(store, system, stop_before_commit).land()
    assert system.acknowledged == 0
    lander(store, system).land()
    assert system.acknowledged == 3
    assert all_rows(store) == [0, 1, 2]


def test_of_two_landings_at_once_one_appends_and_the_other_acknowledges_nothing() -> None:
    space = MemoryStore("memory://job")
    system = ExpiringSystem(produced=4)
    lander(space, system).land()
    system.produced = 9
    rival = lander(space, system)

    def land_first(operation: str, key: str) -> None:
        if operation == "create" and "/records/" in key and not raced:
            raced.append(key)
            rival.land()

    raced: list[str] = []
    with pytest.raises(CommitConflict, match="another landing appended record 3 first"):
        lander(HookedStore(space, before=land_first), system).land()
    assert all_rows(space) == list(range(9))


def test_a_landing_that_another_one_has_overtaken_is_a_conflict_and_no_lost_position() -> None:
    """What it reads has expired because the other has landed and acknowledged it."""
    store, system = MemoryStore("memory://job"), ExpiringSystem(produced=4)
    lander(store, system).land()
    system.produced = 9
    overtaken: list[str] = []

    def land_first(call: str) -> None:
        if call == "read" and not overtaken:
            overtaken.append(call)
            lander(store, system).land()

    with pytest.raises(CommitConflict, match="another landing appended record 3 while this one read the same rows"):
        lander(store, system, land_first).land()
    assert all_rows(store) == list(range(9))


def test_a_log_of_another_external_system_is_refused() -> None:
    store, system = MemoryStore("memory://job"), ExpiringSystem(produced=1)
    lander(store, system).land()
    with pytest.raises(SourceReplaced, match="begun for name 'numbers', and name is 'letters' now"):
        lander(store, ExpiringSystem(produced=5, name="letters")).land()


def test_a_landing_stops_where_the_rows_after_the_log_have_expired_and_appends_nothing() -> None:
    store, system = MemoryStore("memory://job"), ExpiringSystem(produced=4)
    lander(store, system).land()
    system.produced = 9
    system.expire(below=6)
    with wording.raises(PositionExpired) as expired:
        lander(store, system).land()
    bounds = {name: expired.value.details[name] for name in ("position", "earliest", "latest")}
    assert bounds == {"position": {"next": 4}, "earliest": {"next": 6}, "latest": {"next": 9}}
    assert all_rows(store) == [0, 1, 2, 3]


def test_a_landing_stops_where_the_external_system_is_behind_the_log() -> None:
    store, system = MemoryStore("memory://job"), ExpiringSystem(produced=4)
    lander(store, system).land()
    system.produced = 2
    with wording.raises(SourceWentBack) as back:
        lander(store, system).land()
    assert (back.value.details["position"], back.value.details["latest"]) == ({"next": 4}, {"next": 2})
    system.produced = 5
    lander(store, system).land()
    assert all_rows(store) == [0, 1, 2, 3, 4]


def test_a_log_that_was_restored_from_an_older_copy_is_not_read_as_if_it_went_on() -> None:
    store, system = MemoryStore("memory://job"), ExpiringSystem(produced=4)
    lander(store, system).land()
    copy = MemoryStore("memory://copy")
    for stat in store.list("landed/"):
        copy.put(stat.key, store.get(stat.key))
    system.produced = 8
    lander(store, system).land()
    _, landed = rows_of(store, None, RecordLimits(100))
    system.acknowledged, system.produced = 4, 8
    lander(copy, system).land()  # other write ids, and so another record 3
    with pytest.raises(StateCorrupt, match=r"what is stored is not that log: log [0-9a-f]{32} ends at record 3"):
        assert landed is not None
        rows_of(copy, landed.end, RecordLimits(100))


@dataclass(frozen=True)
class Step:
    """One step of a history: the system goes back, rows appear and expire, a landing runs into trouble, and an epoch
    reads or rolls back.

    Attributes:
        back: number of the newest rows that the external system loses first.
        expired: number of the oldest rows that the external system deletes before the landing.
        fault: (effect, number of the write that it strikes), or None.
        rival_at: number of the store operation before which a whole other landing runs, or None.
        killed_at: number of the call of the source or write to the store at which the landing is killed, or None.
        after_write: whether the kill strikes after that write.
        reads: limits of the epoch that follows; 0: a rollback to the epoch before.
        accepts: an epoch that has read false rows goes on, and is not rolled back.
    """

    back: int
    produced: int
    expired: int
    fault: tuple[Effect, int] | None
    rival_at: int | None
    killed_at: int | None
    after_write: bool
    reads: int
    accepts: bool


steps = st.builds(
    Step,
    back=st.just(0) | st.integers(1, 15),
    produced=st.integers(0, 12),
    expired=st.just(0) | st.integers(1, 4),
    fault=st.none()
    | st.tuples(st.sampled_from([Effect.LOST_REPLY, Effect.LOST_REQUEST, Effect.UNAVAILABLE]), st.integers(0, 6)),
    rival_at=st.none() | st.integers(0, 12),
    killed_at=st.none() | st.integers(0, 14),
    after_write=st.booleans(),
    reads=st.integers(0, 4),
    accepts=st.booleans(),
)


def void_and_land(store: ObjectStore, system: ExpiringSystem, on_call: OnCall = lambda call: None) -> None:
    """Append a void record if the system was rolled back, and a gap if rows after the log have expired; then land."""
    log = SourceLog(store, SOURCE)
    newest = log.newest()
    if newest is not None and not system.has(newest.record.end):
        last = newest.record.sequence
        read = live_records(map(log.record, range(last, 0, -1)), newest.record.voids)
        true = next(stored for stored in read if system.has(stored.record.end)).record
        void = Void(true.sequence + 1, "it went back", "by a test")
        first = log.record(true.sequence + 1)
        newest = log.append(void_record(newest, first, uuid.uuid4().hex, void, 0, true.behind))
        assert newest.record.end == true.end
    if newest is not None and newest.record.end["next"] < system.earliest:
        end = system.position(system.earliest)
        log.append(gap_record(newest, uuid.uuid4().hex, end, Gap("expired", "by a test"), 0))
    lander(store, system, on_call).land()


def live_log(store: ObjectStore) -> list[LogRecord]:
    log = SourceLog(store, SOURCE)
    newest = log.newest()
    assert newest is not None
    return [stored.record for stored in live_records(log.since(None, newest), newest.record.voids)]


def land_with_trouble(inner: MemoryStore, system: ExpiringSystem, step: Step) -> None:
    """Run one landing as the step troubles it. It ends well, with a typed error, or dead."""
    faults = (
        [] if step.fault is None else [Fault(lambda operation, _: operation in WRITES, step.fault[0], step.fault[1])]
    )
    operations = dangers = 0

    def before(operation: str, key: str) -> None:
        nonlocal operations
        operations += 1
        if operations - 1 == step.rival_at:
            with suppress(CheckpointError):
                void_and_land(inner, system)
        if operation in WRITES and not step.after_write:
            danger()

    def after(operation: str, key: str) -> None:
        if operation in WRITES and step.after_write:
            danger()

    def danger(_: str = "") -> None:
        nonlocal dangers
        dangers += 1
        if dangers - 1 == step.killed_at:
            raise Killed

    with suppress(CheckpointError, Killed):
        void_and_land(HookedStore(FaultyStore(inner, faults), before, after), system, danger)


@pytest.mark.long
@profiles.examples(share=5.0)
@given(st.lists(steps, min_size=1, max_size=8))
def test_each_row_that_is_true_and_not_lost_is_read_once_and_in_order_whatever_happens_to_the_landings(
    history: list[Step],
) -> None:
    """A checkpoint that has read false rows says so. It is rolled back, or goes on and then has all rows after them."""
    store, system = MemoryStore("memory://job"), ExpiringSystem()
    log = SourceLog(store, SOURCE)
    checkpoints: list[tuple[LogPosition | None, list[int]]] = [(None, [])]
    for step in history:
        system.go_back(max(system.expired, system.produced - step.back))
        system.produced += step.produced
        system.expire(below=system.earliest + step.expired)
        land_with_trouble(store, system, step)
        newest = log.newest()
        if newest is None:
            continue
        assert system.acknowledged <= newest.record.end["next"]
        is_true, expected = system.has(newest.record.end), values(system, live_log(store))
        for position, seen in checkpoints:
            assert not is_true or false_span(position, newest.record) or seen == expected[: len(seen)]
        if not step.reads:
            checkpoints = checkpoints[:-1] or checkpoints
            continue
        stopped = [false_span(position, newest.record) for position, _ in checkpoints]
        if (span := stopped[-1]) is not None and step.accepts:
            void = Void(span.first, "no other checkpoint", "by a test")
            newest = log.append(accept_record(newest, uuid.uuid4().hex, void, 0))
            assert false_span(checkpoints[-1][0], newest.record) is None
            true = expected[: span.total_rows]
            checkpoints = [
                (position, true if stop == span else seen)
                for (position, seen), stop in zip(checkpoints, stopped, strict=True)
            ]
        checkpoints = [item for item in checkpoints if false_span(item[0], newest.record) is None]
        position, seen = checkpoints[-1]
        rows, read = rows_of(store, position, RecordLimits(step.reads))
        if read is not None:
            checkpoints.append((read.end, seen + rows))
    void_and_land(store, system)
    newest = log.newest()
    assert newest is not None
    while false_span(checkpoints[-1][0], newest.record) is not None:
        checkpoints.pop()
    position, seen = checkpoints[-1]
    rest, _ = rows_of(store, position, RecordLimits(1_000_000))
    assert seen + rest == values(system, live_log(store))
    assert not set(range(system.earliest, system.produced)) - set(landed_rows(live_log(store)))
    assert system.acknowledged == system.produced or not rest, "a log without rows need not be acknowledged"


def landed_rows(records: list[LogRecord]) -> list[int]:
    """Return the numbers of the rows between the positions of records, without gaps."""
    spans = (range(item.start["next"], item.end["next"]) for item in records if item.gap is None)
    return [row for span in spans for row in span]


def values(system: ExpiringSystem, records: list[LogRecord]) -> list[int]:
    """Return the values that the external system had for the rows that records have."""
    return [system.value(row) for row in landed_rows(records)]
