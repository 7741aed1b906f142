"""Rows of figures are never lost: whichever writers interleave, and wherever one of them crashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import NotFound
from milepost.jobmaster.figures import update
from milepost.jobmaster.figures.days import list_objects
from milepost.jobmaster.figures.row_file import table_of, union
from milepost.jobmaster.figures.stored_rows import StoredRow, StoredRows, lineage
from milepost.jobmaster.figures.update import FiguresUpdate
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import ObjectStore
from milepost_testkit import profiles
from milepost_testkit.stores.hooked_store import HookedStore
from milepost_testkit.stores.memory_store import MemoryStore
from milepost_testkit.stores.stepped_processes import Process
from tests.unit.jobmaster.retention.test_pruning_model import _COMPLETED

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def checkpoint(number: int, at_ms: int | None = None) -> CompletedCheckpoint:
    """Checkpoint n of version 3n, completed at minute n."""
    at_ms = number * MINUTE_MS if at_ms is None else at_ms
    return replace(
        _COMPLETED,
        checkpoint_id=CheckpointId(number),
        parent=CheckpointId(number - 1),
        token=FencingToken(3 * number - 1),
        version=3 * number,
        trigger_time_ms=at_ms - 1000,
        completed_time_ms=at_ms,
        summary={"rows_in": number},
    )


@dataclass
class Job:
    """The part of a job that an update uses: a store, and checkpoints with deleted metadata."""

    store: ObjectStore

    def update(self, *completed: CompletedCheckpoint, store: ObjectStore | None = None) -> FiguresUpdate:
        """Return the update of a state with these checkpoints."""

        def metadata(one: CompletedCheckpoint) -> Any:
            raise NotFound("the metadata is deleted")

        log = SimpleNamespace(recent_head=lambda: None)
        context = SimpleNamespace(store=store or self.store, metadata=metadata, log=log)
        state = SimpleNamespace(job="small", version=completed[-1].version + 1, checkpoints=completed)
        return FiguresUpdate(cast(Any, context), cast(Any, state), completed[-1].session_id)

    def write(self, *completed: CompletedCheckpoint, store: ObjectStore | None = None) -> None:
        self.update(*completed, store=store).store({})

    @property
    def rows(self) -> list[int]:
        """The checkpoints that have a row."""
        stored = StoredRows(self.store)
        found = sorted(row.checkpoint_id for rows in stored.days() for row in rows)
        assert not stored.unreadable
        return found

    @property
    def keys(self) -> list[str]:
        return [item.stat.key for item in list_objects(self.store)]


@pytest.fixture
def job() -> Job:
    return Job(MemoryStore("file:///job"))


def test_each_epoch_adds_its_row_and_a_day_has_one_object(job: Job) -> None:
    for number in range(1, 6):
        job.write(*(checkpoint(one) for one in range(max(1, number - 1), number + 1)))
        assert job.rows == [*range(1, number + 1)] and len(job.keys) == 1


@pytest.mark.deep
def test_an_update_lists_once_and_reads_one_object_whatever_is_stored(job: Job) -> None:
    for day in range(40):
        job.write(checkpoint(day + 1, day * DAY_MS), checkpoint(day + 2, day * DAY_MS + MINUTE_MS))
    assert len(job.keys) == 40
    calls: list[tuple[str, str]] = []
    hooked = HookedStore(job.store, before=lambda operation, key: calls.append((operation, key.partition("/")[0])))
    newest = 39 * DAY_MS + 2 * MINUTE_MS
    job.write(checkpoint(41, newest - MINUTE_MS), checkpoint(42, newest), store=hooked)
    figures = [operation for operation, folder in calls if folder == "figures"]
    assert figures == ["list", "get", "put", "delete"]


def test_rows_that_a_crash_left_out_are_added_by_the_next_epoch(job: Job) -> None:
    job.write(checkpoint(1))
    job.write(*map(checkpoint, (1, 2, 3, 4)))
    assert job.rows == [1, 2, 3, 4]


def test_the_first_update_of_an_older_job_adds_all_that_is_retained(job: Job) -> None:
    """Its checkpoints may be of many days; each day has its object."""
    retained = [checkpoint(number, number * DAY_MS) for number in range(1, 8)]
    job.write(*retained)
    assert job.rows == [*range(1, 8)] and len(job.keys) == 7


def test_what_a_crash_left_unmerged_at_midnight_is_merged_by_the_first_epoch_of_the_next_day(job: Job) -> None:
    with crash_before(job, "delete") as store:
        job.write(checkpoint(1), store=store)
        job.write(checkpoint(1), checkpoint(2), store=store)
    assert len(job.keys) == 2 and job.rows == [1, 2]
    job.write(checkpoint(2), checkpoint(3, DAY_MS))
    assert [key.split("/")[1] for key in job.keys] == ["1970-01-01", "1970-01-02"] and job.rows == [1, 2, 3]


@contextmanager
def crash_before(job: Job, operation: str) -> Iterator[ObjectStore]:
    """A store whose user dies before each of these operations."""

    def before(called: str, key: str) -> None:
        if called == operation:
            raise NotFound("as good as dead: nothing is logged, and nothing else is done")

    yield HookedStore(job.store, before=before)


def test_a_full_object_waits_for_the_end_of_its_day(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """So an epoch writes little; then one object has all rows of the day."""
    job.write(checkpoint(1))
    monkeypatch.setattr(update, "FULL_BYTES", list_objects(job.store)[0].stat.size + 1)
    for number in range(2, 7):
        job.write(checkpoint(number - 1), checkpoint(number))
    assert 1 < len(job.keys) < 6 and job.rows == [1, 2, 3, 4, 5, 6]
    job.write(checkpoint(6), checkpoint(7, DAY_MS))
    assert len(job.keys) == 2 and job.rows == [*range(1, 8)]


def test_dropped_checkpoints_get_their_rows_before(job: Job) -> None:
    """Of checkpoint 1 no epoch has stored a row; 3 is the current one, whose times are not measured yet."""
    pending = job.update(*map(checkpoint, (1, 2, 3)))
    pending.store_before_drop([CheckpointId(1)])
    assert job.rows == [1]
    pending.store({})
    assert job.rows == [1, 2, 3] and len(job.keys) == 1
    job.update(*map(checkpoint, (2, 3, 4))).store_before_drop([CheckpointId(2)])
    assert job.rows == [1, 2, 3]


def test_objects_of_an_earlier_life_of_the_job_hide_no_missing_row(job: Job) -> None:
    job.write(*map(checkpoint, range(90, 100)))
    job.write(checkpoint(1, 99 * MINUTE_MS), checkpoint(2, 100 * MINUTE_MS))
    assert {1, 2} <= {*job.rows}


def test_an_unreadable_object_stays_and_the_rows_of_retained_checkpoints_are_stored_again(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    job.write(*map(checkpoint, (1, 2)))
    (damaged,) = job.keys
    job.store.put(damaged, job.store.get(damaged)[:-9])
    job.write(*map(checkpoint, (2, 3)))
    assert damaged in job.keys and damaged in caplog.text
    stored = StoredRows(job.store)
    assert [row.checkpoint_id for rows in stored.days() for row in rows] == [3, 2]
    assert len(stored.unreadable) == 1 and damaged in stored.unreadable[0]


def test_a_reader_lists_again_when_a_writer_has_merged_what_it_reads(job: Job) -> None:
    job.write(checkpoint(1))

    def merge(operation: str, key: str) -> None:
        if operation == "get" and job.rows == [1]:
            job.write(checkpoint(1), checkpoint(2))

    stored = StoredRows(HookedStore(job.store, before=merge))
    assert [row.checkpoint_id for rows in stored.days() for row in rows] == [2, 1]


@pytest.mark.long
@profiles.examples(share=4.0)
@given(
    steps=st.lists(st.sampled_from("aAbB"), max_size=40),
    crashes=st.tuples(st.integers(0, 25), st.integers(0, 25)),
    full_bytes=st.sampled_from([0, 9_000, 1 << 20]),
)
def test_no_row_is_lost_to_any_interleaving_of_two_writers_that_crash_anywhere(
    steps: list[str], crashes: tuple[int, int], full_bytes: int
) -> None:
    """Each writer continues by one request per step. A row that was once stored stays in the union."""
    job = Job(MemoryStore("file:///job"))
    job.write(checkpoint(1))
    job.write(checkpoint(1), checkpoint(2, DAY_MS - MINUTE_MS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update, "FULL_BYTES", full_bytes)
        states = [
            (checkpoint(2, DAY_MS - MINUTE_MS), checkpoint(3, DAY_MS)),
            (checkpoint(2, DAY_MS - MINUTE_MS), checkpoint(3, DAY_MS), checkpoint(4, DAY_MS + 1)),
        ]
        writers = [stepped(job, state) for state in states]
        seen, made = {1, 2}, [0, 0]
        for step in [*steps, *"aAbB" * 12]:
            which = "ab".index(step.lower())
            if made[which] == crashes[which]:
                writers[which].crash()
            else:
                writers[which].go_on(calls=1)
            made[which] += 1
            rows = {*job.rows}
            assert seen <= rows, f"{seen - rows} lost"
            seen = rows
        for _ in range(2):
            job.write(checkpoint(3, DAY_MS), checkpoint(4, DAY_MS + 1), checkpoint(5, DAY_MS + 2))
        job.write(checkpoint(5, DAY_MS + 2), checkpoint(6, 2 * DAY_MS))
        assert job.rows == [1, 2, 3, 4, 5, 6]
        days = [key.split("/")[1] for key in job.keys]
        assert days.count("1970-01-02") == days.count("1970-01-03") == 1
        for writer in writers:
            writer.crash()


def stepped(job: Job, state: tuple[CompletedCheckpoint, ...]) -> Process:
    """Return a writer that goes on by one store request at a time."""
    process: list[Process] = []

    def write() -> None:
        hooked = HookedStore(job.store, before=lambda operation, key: process[0].at_call(operation))
        job.write(*state, store=hooked)

    process.append(Process("writer", write))
    return process[0]


ROWS = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["main", "t9"]), st.integers(1, 3)), max_size=12)


@given(parts=st.lists(ROWS, max_size=4))
def test_the_union_of_objects_has_each_row_once(parts: list[list[tuple[int, str, int]]]) -> None:
    """Whatever the division into objects, and whichever of them a crash left behind."""

    def table(rows: list[tuple[int, str, int]]) -> pa.Table:
        values: Callable[[tuple[int, str, int]], dict[str, Any]] = lambda row: {  # noqa: E731
            **dict(zip(("checkpoint_id", "timeline", "token"), row, strict=True)),
            "status": "completed",
            "version": 10 * row[0] + row[2],
        }
        return table_of([values(row) for row in rows])

    joined = union(map(table, parts))
    identities = list(
        zip(*(joined.column(name).to_pylist() for name in ("checkpoint_id", "timeline", "token")), strict=True)
    )
    assert sorted(identities) == sorted({row for rows in parts for row in rows})
    assert joined.column("version").to_pylist() == sorted(joined.column("version").to_pylist())


def row(number: int, timeline: str, parent: int) -> StoredRow:
    figures = dict.fromkeys(StoredRow.__slots__)
    return StoredRow(**figures | {"checkpoint_id": number, "timeline": timeline, "parent": parent, "version": number})


HISTORY = [row(1, "main", 0), row(2, "main", 1), row(3, "main", 2), row(4, "t9", 2), row(5, "t9", 4)]


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (set(), [5, 4, 2, 1]),
        ({2}, [5, 4]),  # 1 and 3 are of another timeline than the child of 2
        ({4}, [5]),
        ({5}, [4, 2, 1]),
        ({1}, [5, 4, 2]),
    ],
)
def test_a_lineage_follows_parents_and_the_timeline_over_missing_rows(missing: set[int], expected: list[int]) -> None:
    """Checkpoint 3 was abandoned by a rollback to 2. No row of it is ever taken for one of the live lineage."""
    rows = [one for one in reversed(HISTORY) if one.checkpoint_id not in missing]
    for cut in range(len(rows) + 1):
        assert [one.checkpoint_id for one in lineage([rows[:cut], rows[cut:]], 5, "t9")] == expected


def test_rows_of_one_timeline_continue_over_a_gap() -> None:
    rows = [row(number, "main", number - 1) for number in (9, 8, 4, 3)]
    assert [one.checkpoint_id for one in lineage([rows], 9, "main")] == [9, 8, 4, 3]
