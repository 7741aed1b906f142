"""The floor of a log rises under what every retained checkpoint needs, and never above it (L5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import CheckpointError, ProtocolViolation
from milepost.protocol.landed.appends import first_record, next_record
from milepost.protocol.landed.floors import floor_at, floor_of, highest_floor, raised_floor
from milepost.protocol.landed.records import (
    LandedObject,
    LogPosition,
    LogRecord,
    StoredRecord,
    decode_record,
    encode_record,
)
from milepost.protocol.log.entry_codec import decode_entry, encode_entry
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.invariants import faults
from milepost.protocol.manifest.transaction.answers import AlreadyDone
from milepost.protocol.manifest.transaction.requests import FloorProposal, SubsumeRequest
from milepost.protocol.manifest.upkeep.floors import holds_every_floor
from milepost.protocol.records.ids import CheckpointId, SessionId
from milepost.protocol.records.layout import landed_directory, landed_record_key
from milepost.protocol.records.log_positions import LogFloor
from milepost.protocol.records.manifest_state import ManifestState, TimelineRole
from milepost.protocol.retention.retention import RetentionPolicy, subsumable
from milepost_testkit import profiles
from milepost_testkit.jobs.job_log import A, JobLog

SOURCE = "clicks"
POLICY = RetentionPolicy(2, 0, 0)


def stored(record: LogRecord) -> StoredRecord:
    return decode_record(encode_record(record), "record")


@dataclass
class LandedJob:
    """A job with one landed source: its manifest, the source's log, and what each checkpoint has read of it.

    Attributes:
        starts: of each checkpoint and each timeline, the first record that an epoch from there reads.
        plans: subsumptions that were planned at an earlier head and not yet submitted.
    """

    retain_ms: int = 0
    log: JobLog = field(default_factory=JobLog)
    records: list[StoredRecord] = field(default_factory=list)
    positions: dict[int, LogPosition | None] = field(default_factory=dict)
    starts: dict[int | str, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    plans: list[SubsumeRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.records.append(stored(first_record("log", {"job": "life"}, 0, self.log.now_ms)))

    @property
    def state(self) -> ManifestState:
        return self.log.state

    @property
    def floor(self) -> LogFloor | None:
        return self.state.floors[0] if self.state.floors else None

    @property
    def first(self) -> int:
        """Sequence of the first retained record."""
        return 1 if self.floor is None else self.floor.next

    def land(self) -> None:
        number = len(self.records) + 1
        row = [LandedObject(f"{number}/a/0.parquet", 10, "0" * 64, 1)]
        record = next_record(SOURCE, self.records[-1], f"write {number}", number, row, self.log.now_ms)
        assert record is not None
        self.records.append(stored(record))

    def begin(self, timeline: str) -> None:
        """Trigger an epoch, which reads from where the head of its timeline has read to."""
        head = int(self.state.timeline(timeline).head)  # type: ignore[arg-type]
        self.log.trigger(A, timeline=None if timeline == self.state.live else timeline)
        if self.log.state.timeline(timeline).pending is not None:  # type: ignore[arg-type]
            self.pending[timeline] = self.starts.get(head or timeline, self.first)

    def complete(self, timeline: str, count: int | None) -> None:
        """Complete the pending epoch after so many records; None: the spec had no such source."""
        pending = self.log.pending_on(timeline)
        self.log.complete(A, pending)
        checkpoint, start = int(pending.checkpoint_id), self.pending.pop(timeline)
        if count is None:
            self.positions[checkpoint], self.starts[checkpoint] = None, self.first
        else:
            last = max(1, min(start - 1 + count, len(self.records)))
            self.positions[checkpoint] = self.records[last - 1].position
            self.starts[checkpoint] = last + 1

    def plan(self) -> SubsumeRequest:
        """Plan a subsumption with its floor at this head."""
        dropped = subsumable(self.state, POLICY)
        respected = tuple(
            item.checkpoint_id for item in self.state.checkpoints if item.checkpoint_id not in set(dropped)
        )
        highest, raised = highest_floor([self.positions[item] for item in respected]), None
        if highest is not None and not holds_every_floor(self.state):
            raised = raised_floor(self.records[self.first - 1 :], highest, self.log.now_ms - self.retain_ms)
        if raised is None:
            return SubsumeRequest(SessionId(A), POLICY, dropped, ())
        garbage = [landed_record_key(SOURCE, sequence) for sequence in range(self.first, raised.next)]
        garbage += [landed_directory(SOURCE, sequence) for sequence in range(self.first, raised.next)]
        proposal = FloorProposal((floor_at(SOURCE, raised),), respected)
        return SubsumeRequest(SessionId(A), POLICY, dropped, tuple(garbage), floors=proposal)

    def epoch(self, count: int | None) -> None:
        self.begin(self.state.live)
        self.complete(self.state.live, count)
        self.log.confirm(A, int(self.state.timeline().head))

    def check(self, before: ManifestState) -> None:
        """L5: what retained checkpoints, open timelines, pending epochs and `retain` need is above the floor."""
        assert not before.floors or before.floors[0].next <= self.first, "a floor never falls"
        assert faults(self.state) == []
        retained = {int(item.checkpoint_id) for item in self.state.checkpoints}
        needed = [self.starts[item] for item in retained]
        for timeline in self.state.timelines:
            if timeline.role is TimelineRole.ABANDONED:
                continue
            if timeline.head == 0:
                needed.append(self.starts.setdefault(timeline.timeline_id, self.first))
            if timeline.pending is not None:
                needed.append(self.pending[timeline.timeline_id])
        young = [r.record.sequence for r in self.records if r.record.landed_at_ms > self.log.now_ms - self.retain_ms]
        assert self.first <= min([*needed, *young, len(self.records)])
        if self.floor is not None:
            assert floor_of(self.state, SOURCE) == self.records[self.first - 2].position


STEPS = 15


def step(job: LandedJob, kind: int, number: int) -> None:
    """Do one random step. The protocol refuses those that are impossible at this head."""
    lines = [item.timeline_id for item in job.state.timelines if item.role is not TimelineRole.ABANDONED]
    line = lines[number % len(lines)]
    targets = [0, *(int(item.checkpoint_id) for item in job.state.checkpoints)]
    target, log = targets[number % len(targets)], job.log
    forks = [item for item in lines if item != job.state.live]
    idle = job.state.live not in job.pending
    fork = forks[number % len(forks)] if forks else ""
    steps: list[Callable[[], object]] = [
        job.land,
        job.land,
        lambda: idle and job.epoch(number),
        lambda: idle and job.epoch(number or None),
        lambda: job.begin(line),
        lambda: line in job.pending and job.complete(line, number or None),
        lambda: log.fork(A, target),
        lambda: log.rollback(A, target, sinks=()),
        lambda: fork and log.fast_forward(A, fork, sinks=()),
        lambda: fork and log.dispose_fork(A, fork),
        lambda: log.pin(A, target) if number % 2 else log.unpin(A),
        lambda: log.record_savepoint(A, target) if number % 2 else log.dispose_savepoint(A),
        lambda: job.plans.append(job.plan()),
        lambda: log.submit(job.plan()),
        lambda: job.plans and log.submit(job.plans.pop(number % len(job.plans))),
    ]
    steps[kind]()


def caught_up(retain_ms: int = 0, count: int = 5) -> LandedJob:
    """A job that has landed and read a record per epoch."""
    job = LandedJob(retain_ms)
    for _ in range(count):
        job.log.now_ms += 1_000
        job.land()
        job.epoch(2 if not job.positions else 1)
    return job


@pytest.mark.deep
@profiles.examples(share=2.0)
@given(
    st.sampled_from((0, 3_000, 9_000)),
    st.lists(st.tuples(st.integers(0, STEPS - 1), st.integers(0, 5)), max_size=60),
)
def test_no_record_that_is_needed_is_ever_below_the_floor(retain_ms: int, steps: list[tuple[int, int]]) -> None:
    job = caught_up(retain_ms)
    for kind, number in steps:
        before = job.state
        job.log.now_ms += 1_000
        try:
            step(job, kind, number)
        except CheckpointError:
            assert job.state == before, "what is refused changes nothing"
        job.check(before)


def test_a_floor_rises_to_the_oldest_retained_checkpoint() -> None:
    job = caught_up()
    job.log.submit(job.plan())
    assert [int(item.checkpoint_id) for item in job.state.checkpoints] == [4, 5]
    assert job.positions[4] is not None and job.first == job.positions[4].next == 6


def test_the_newest_record_that_was_read_stays() -> None:
    job = caught_up()
    assert highest_floor([job.records[-1].position]) == len(job.records)
    assert highest_floor([job.records[-1].position, job.records[-2].position]) == len(job.records)


@pytest.mark.parametrize(("retain_ms", "first"), [(1_000, 6), (2_000, 5), (3_000, 4), (9_000, 1)])
def test_a_record_younger_than_retain_stays(retain_ms: int, first: int) -> None:
    job = caught_up(retain_ms)
    job.log.submit(job.plan())
    assert job.first == first


def test_a_checkpoint_without_a_position_in_the_log_holds_all_of_it() -> None:
    job = caught_up()
    other = replace(job.records[-1].position, log="another log")
    for position in (None, other):
        assert highest_floor([job.records[-1].position, position]) is None


def test_a_proposal_that_does_not_know_a_timeline_from_checkpoint_0_drops_nothing() -> None:
    job = caught_up()
    plan = job.plan()
    job.log.fork(A, 0)
    before = job.state
    assert isinstance(job.log.submit(plan), AlreadyDone), "the next epoch plans again"
    assert job.state == before


def test_a_proposal_that_does_not_know_a_checkpoint_drops_nothing() -> None:
    job = caught_up()
    plan = job.plan()
    job.epoch(0)
    before = job.state
    assert isinstance(job.log.submit(plan), AlreadyDone), "the next epoch plans again"
    assert job.state == before


def test_a_floor_of_another_log_than_the_one_that_was_trimmed_is_refused() -> None:
    """Its records would have the keys of those that are listed for deletion."""
    job = caught_up()
    job.log.submit(job.plan())
    job.epoch(0)
    before, plan = job.state, job.plan()
    later = replace(floor_at(SOURCE, job.records[-1].position), log="another log")
    respected = tuple(
        item.checkpoint_id for item in job.state.checkpoints if item.checkpoint_id not in plan.checkpoint_ids
    )
    job.log.submit(replace(plan, garbage=(), floors=FloorProposal((later,), respected)))
    assert job.state == before


@pytest.mark.parametrize(
    "entry", [landed_record_key(SOURCE, 6), landed_directory(SOURCE, 6), landed_record_key("other", 1)]
)
def test_a_record_that_is_not_below_the_floor_of_its_log_cannot_become_garbage(entry: str) -> None:
    job = caught_up()
    plan = job.plan()
    before = job.state
    with pytest.raises(ProtocolViolation):
        job.log.submit(replace(plan, garbage=(*plan.garbage, entry)))
    assert job.state == before
    job.log.submit(plan)
    assert job.first == 6


def test_a_timeline_that_starts_from_checkpoint_0_holds_the_floor_until_it_has_a_checkpoint() -> None:
    job = caught_up()
    fork = job.log.fork(A, 0)
    job.log.submit(job.plan())
    assert job.first == 1
    job.log.dispose_fork(A, fork)
    job.epoch(0)
    job.log.submit(job.plan())
    assert job.first > 1


def test_a_floor_is_never_lowered() -> None:
    job = caught_up()
    early = floor_at(SOURCE, job.records[2].position)
    job.log.submit(job.plan())
    first = job.first
    job.epoch(0)
    plan = job.plan()
    respected = tuple(item.checkpoint_id for item in job.state.checkpoints)
    job.log.submit(replace(plan, garbage=(), floors=FloorProposal((early,), respected)))
    assert job.first == first


def test_each_source_has_its_own_floor() -> None:
    job = caught_up()
    plan = job.plan()
    assert plan.floors is not None
    floors = (*plan.floors.floors, replace(plan.floors.floors[0], source="accounts", log="other"))
    job.log.submit(replace(plan, floors=replace(plan.floors, floors=floors)))
    assert [floor.source for floor in job.state.floors] == ["accounts", SOURCE]
    assert faults(job.state) == []
    assert faults(replace(job.state, floors=job.state.floors[::-1])) != []


def test_floors_are_stored_and_a_job_without_them_is_stored_as_before() -> None:
    job = caught_up()
    assert b"floors" not in encode_entry(LogEntry(job.state.version, "w", job.log.events[-1], job.state))
    job.log.submit(job.plan())
    entry = LogEntry(job.state.version, "w", job.log.events[-1], job.state)
    assert decode_entry(encode_entry(entry)) == entry
    assert job.state.checkpoint(CheckpointId(5)) is not None and job.floor is not None
