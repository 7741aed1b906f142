"""A table of the latest rows in files of changes is compacted by an epoch's subtasks, a share of it when that pays."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import StateCorrupt
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.buckets.table_buckets import OwnedKeys
from milepost.sinks.contract import SinkMode
from milepost.sinks.parquet_files import table_files
from milepost.sinks.parquet_files.file_cuts import cut_by_size
from milepost.sinks.parquet_files.table_files import ReadOptions, TableFiles
from milepost.sinks.staging import compaction, small_files
from milepost.sinks.staging.compaction import SHARE, CompactionPlan, compacted_buckets, plan_compaction
from milepost.sinks.staging.small_files import JoinPlan
from milepost.storage import object_handles
from milepost.tables.records.committables import StagedFile, StagedRows, StagingContext
from milepost.tables.records.table_keys import DATA, staged_prefix
from milepost_testkit import profiles, wording
from milepost_testkit.stores.hooked_store import HookedStore
from milepost_testkit.tasks.staging import HASHER, KEY_GROUPS
from tests.conformance.sinks.contract.case import SCHEMA, Story, deleting, rows
from tests.conformance.sinks.formats.local_cases import LocalParquet

EPOCH = st.tuples(
    st.lists(st.sets(st.integers(0, 30), max_size=6), min_size=1, max_size=3), st.sets(st.integers(0, 30), max_size=8)
)
"""Keys that change, by subtask, and those that are deleted if they do."""


class Case(LocalParquet):
    mode = SinkMode.UPSERT


class OneRow(Case):
    key = ()


@pytest.fixture
def job(tmp_path: Path) -> Story:
    return Case().begin(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """The table's, in a handle of its own."""
    return Case().table_store(tmp_path)


def files(job: Story) -> tuple[StagedFile, ...]:
    head = job.manifest.head
    assert head is not None
    return job.sink.files(head.contents)


def many(number: int, first: int = 0) -> pa.Table:
    return rows(*((key, f"{first}") for key in range(first, first + number)))


def seen(job: Story) -> dict[int, str]:
    assert job.manifest.head is not None
    table = job.sink.read(job.manifest.head.contents, verify=True)
    found = dict(zip(*(table.column(name).to_pylist() for name in "kv"), strict=True))
    assert table.num_rows == len(found)
    return found


@pytest.mark.deep
@profiles.examples(share=0.6)
@given(st.lists(EPOCH, min_size=1, max_size=10), st.integers(1, 6), st.sampled_from([0, 1, 4]))
def test_whatever_is_compacted_by_however_many_subtasks_each_key_has_its_latest_row(
    epochs: list[tuple[list[set[int]], set[int]]], compact_files: int, share: int
) -> None:
    """A share of 0 joins changes alone. Buckets cover key groups that no other has, and are below every change."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "COMPACT_FILES", compact_files)
        patch.setattr(compaction, "SHARE", share)
        patch.setattr(small_files, "GROWTH", 2)
        job = Case().begin(Path(folder))
        latest: dict[int, str] = {}
        for number, (parts, deleted) in enumerate(epochs):
            owned = [sorted(key for key in part if key % len(parts) == at) for at, part in enumerate(parts)]
            tables = [rows(*((key, f"{number}") for key in part)) if part else SCHEMA.empty_table() for part in owned]
            tables = [deleting(table, deleted) for table in tables]
            changed = {key for part in owned for key in part}
            latest |= dict.fromkeys(changed, f"{number}")
            latest = {key: value for key, value in latest.items() if key not in deleted & changed}
            job.publish(*tables, schema=tables[0].schema)
            assert seen(job) == latest
            covered = [file.groups for file in files(job)]
            buckets = sorted((one.start, one.stop) for one in covered if one is not None)
            assert all(one[1] <= other[0] for one, other in pairwise(buckets))
            assert None not in covered[: len(buckets)]


def test_the_epoch_after_many_files_of_changes_writes_buckets_and_stages_its_own_changes_above(
    job: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older checkpoints stay readable, and can be rolled back to; so can the one that compacted."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 4)
    every = [job.publish(rows((n, str(n)))) for n in (1, 2, 3, 4)]
    compacted = job.publish(rows((1, "new"), (9, "nine")))
    *buckets, changes = files(job)
    assert buckets and all(file.groups is not None for file in buckets)
    assert changes.groups is None and changes.rows == 2
    expected = {1: "new", 2: "2", 3: "3", 4: "4", 9: "nine"}
    assert seen(job) == expected
    change = job.sink.compare(every[-1].contents)
    assert (change.rows_now, change.rows_then) == (5, 4)
    after = job.publish(rows((5, "5")))
    job.back_to(every[-1])
    assert seen(job) == {n: str(n) for n in (1, 2, 3, 4)}
    job.back_to(after)
    assert seen(job) == expected | {5: "5"}
    assert all(job.sink.verify(one.contents, deep=True) == [] for one in (*every, compacted, after))


def test_what_the_gate_sees_of_an_epoch_that_compacts_is_its_changes(
    job: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what it wrote again (TABLES 1.13)."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 2)
    job.publish(many(9))
    job.publish(many(1))
    committable = job.staged(rows((5, "new")))
    assert committable.buckets
    assert job.sink.staged_table(committable).to_pylist() == [{"k": 5, "v": "new"}]
    assert committable.rows == 1


def test_a_few_changes_above_a_large_table_are_joined_and_its_buckets_stay(
    job: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a few changes an epoch would write the whole table again and again."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 4)
    for first in range(0, 400, 100):
        job.publish(many(100, first))
    job.publish(rows((0, "a")))
    below = [file for file in files(job) if file.groups is not None]
    assert sum(file.rows for file in below) == 400
    monkeypatch.setattr(small_files, "GROWTH", 2)
    for key in range(1, 12):
        job.publish(rows((key % 3, f"{key}")))
        assert [file for file in files(job) if file.groups is not None] == below
    assert len(files(job)) <= len(below) + 5
    assert {key: value for key, value in seen(job).items() if key < 4} == {0: "9", 1: "10", 2: "11", 3: "0"}


def test_a_bucket_drops_deletes_and_joined_changes_keep_them(job: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delete may be of a row in a lower layer, unless there is none."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 2)
    monkeypatch.setattr(small_files, "GROWTH", 1)
    marked = deleting(rows((1, ""), (50, "")), [1, 50])
    job.publish(many(100))
    job.publish(rows((200, "a")))
    job.publish(rows((201, "a")))
    job.publish(marked, schema=marked.schema)
    job.publish(rows((202, "a")))
    assert [file.rows for file in files(job) if file.groups is None] == [3, 1], "201 and the deletes are one file"
    assert 1 not in seen(job) and 50 not in seen(job) and len(seen(job)) == 101
    monkeypatch.setattr(compaction, "SHARE", 100)
    job.publish(rows((203, "a")))
    assert [file.rows for file in files(job) if file.groups is None] == [1]
    assert sum(file.rows for file in files(job)) == len(seen(job)) == 102


def test_preparing_a_compaction_reads_no_file_of_the_table(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that grows with the table happens on the driver."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 2)
    asked: Counter[str] = Counter()

    def count(operation: str, key: str) -> None:
        asked[operation] += key.startswith(DATA)

    job = Case().begin(tmp_path)
    for first in range(2):
        job.publish(many(20, first))
    committable = job.staged(rows((5, "new")))
    assert committable.buckets and committable.replaced
    sink = Case().open_sink(tmp_path, before=count)
    target = job.manifest.completed(sink, committable).target
    assert sink.move(target) is True
    assert {operation for operation, times in asked.items() if times} <= {"table.list", "table.stat"}


def test_a_fork_compacts_nothing_and_an_abort_takes_what_a_compaction_staged(
    job: Story, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a fork adds is all that it says."""
    base = job.publish(rows((1, "a")))
    monkeypatch.setattr(compaction, "COMPACT_FILES", 1)
    assert job.fork(base, rows((2, "b"))).contents.files == 2
    job.staged(rows((3, "c")))
    assert len(list(store.list(staged_prefix(3, 1)))) == 2, "changes, and a bucket"
    job.sink.abort(checkpoint_id=3, token=1)
    assert list(store.list(staged_prefix(3, 1))) == []


def test_a_table_of_one_row_is_compacted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no key: the last row of all counts."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 2)
    job = OneRow().begin(tmp_path)
    for value in range(5):
        done = job.publish(rows((value, str(value))))
    assert job.sink.read(done.contents).to_pylist() == [{"k": 4, "v": "4"}]
    assert done.contents.files < 4


def test_a_file_of_changes_that_is_damaged_refuses_the_epoch_that_would_compact_it(
    job: Story, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of what it would have replaced goes."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 2)
    for first in range(2):
        job.publish(many(20, first))
    damaged = files(job)[0]
    store.put(damaged.key, store.get(damaged.key)[:-1])
    with wording.raises(StateCorrupt):
        job.staged(rows((5, "new")))


@pytest.mark.deep
def test_of_many_epochs_each_changed_row_is_written_a_few_times_however_large_the_table(
    job: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10 rows of 4,000 in each of 300 epochs; nothing near a write of the table for every so many epochs."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 8)
    for first in range(0, 4000, 500):
        job.publish(many(500, first))
    written, most = 0, 0
    for epoch in range(300):
        known = {file.key for file in files(job)}
        job.publish(rows(*(((epoch * 10 + at) * 7919 % 4000, f"{epoch}") for at in range(10))))
        if epoch:  # the first one compacts what the table began with
            written += sum(file.rows for file in files(job) if file.key not in known)
        most = max(most, sum(file.groups is None for file in files(job)))
    assert written <= 3000 * (SHARE + 1 + 4), written
    assert most <= 30, most
    assert len(seen(job)) == 4000


def test_a_plan_says_what_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "COMPACT_FILES", 3)
    monkeypatch.setattr(small_files, "GROWTH", 2)

    def file(number: int, count: int, groups: range | None = None) -> StagedFile:
        return StagedFile(f"{staged_prefix(number, 1)}0-{'a' * 64}.parquet", count, 100, "a" * 64, groups=groups)

    bucket = file(1, 100, range(128))
    few = [bucket, *(file(number, 5) for number in (2, 3))]
    assert plan_compaction(few, SCHEMA) is None
    assert isinstance(plan_compaction([*few, file(4, 5)], SCHEMA), JoinPlan)
    assert isinstance(plan_compaction([*few, file(4, 15)], SCHEMA), CompactionPlan), "25 of 100"
    assert plan_compaction([bucket, file(2, 1), file(3, 2), file(4, 20)], SCHEMA) is None, "none of them is worth it"
    small = [file(number, 5, range(number, number + 1)) for number in range(40)]
    plan = plan_compaction([*small, *(file(number, 5) for number in range(40, 44))], SCHEMA)
    assert isinstance(plan, JoinPlan) and not set(small) & {each for run in plan.runs for each in run}


@profiles.examples(share=0.2)
@given(st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=60), min_size=1, max_size=5), st.integers(1, 3))
def test_what_waits_on_the_disk_makes_the_same_buckets(keys: list[list[int]], subtasks: int) -> None:
    """A subtask holds a bucket, not what changed; files are named by their content."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        job = Case().begin(Path(folder))
        patch.setattr(compaction, "COMPACT_FILES", 100)
        for number, part in enumerate(keys):
            job.publish(rows(*((key, f"{number}") for key in sorted(set(part)))))
        plan = CompactionPlan(files(job), SCHEMA)

        def staged(held_bytes: int) -> list[StagedRows]:
            found = []
            for subtask in range(subtasks):
                groups = range(subtask * KEY_GROUPS // subtasks, (subtask + 1) * KEY_GROUPS // subtasks)
                owned = OwnedKeys(groups, KEY_GROUPS, HASHER.key_groups)
                buckets = compacted_buckets("table", ("k",), job.sink.store, plan, owned)
                found.append(buckets.stage_pieces((), StagingContext(9, 1, subtask, held_bytes)))
            return found

        in_memory = staged(1 << 30)
        assert all(staged(held_bytes) == in_memory for held_bytes in (1, 60, 200))
        patch.setattr(table_files, "IN_MEMORY_BYTES", 0)
        assert staged(1) == in_memory


def test_a_large_file_is_read_from_a_copy_on_the_disk_one_row_group_at_a_time(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is checked of it is the same."""
    table_of = TableFiles("table", store)
    tables = [many(1000, first) for first in range(0, 5000, 1000)]
    file = table_of.stage(tables, StagingContext(1, 1, 0, 1), "0")
    assert file is not None
    whole = table_of.fetch(file, ReadOptions(SCHEMA, verify=True))
    monkeypatch.setattr(table_files, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(object_handles, "_REQUEST_BYTES", 1000)
    pieces = list(table_of.pieces(file, ReadOptions(SCHEMA, verify=True)))
    assert [piece.num_rows for piece in pieces] == [1000] * 5
    assert pa.concat_tables(pieces).equals(whole) and table_of.fetch(file, ReadOptions(SCHEMA, verify=True)).equals(
        whole
    )
    body = bytearray(store.get(file.key))
    body[len(body) // 2] ^= 1
    store.put(file.key, bytes(body))
    with wording.raises(StateCorrupt):
        next(table_of.pieces(file, ReadOptions(SCHEMA, verify=True)))
    store.delete([file.key])
    with wording.raises(StateCorrupt):
        next(table_of.pieces(file, ReadOptions(SCHEMA, verify=True)))


@pytest.mark.deep
def test_of_a_large_table_about_one_bucket_is_in_memory_at_once(tmp_path: Path) -> None:
    """600,000 rows of 16 MB in 48 files of changes become 64 buckets, of a task that may hold 1 MB."""
    peak = 0

    def look(operation: str, key: str) -> None:
        nonlocal peak
        peak = max(peak, pa.total_allocated_bytes() - base)

    job = Case().begin(tmp_path)
    for first in range(0, 600_000, 12_500):
        keys = [key * 7919 % 600_000 for key in range(first, first + 12_500)]
        job.publish(pa.table({"k": keys, "v": [f"value of {key}" for key in keys]}, schema=SCHEMA))
    whole = sum(job.sink.read(done.contents).nbytes for done in [job.manifest.head] if done is not None)
    store = HookedStore(Case().table_store(tmp_path), before=look)
    owned = OwnedKeys(range(KEY_GROUPS), KEY_GROUPS, HASHER.key_groups)
    staging = compacted_buckets("table", ("k",), store, CompactionPlan(files(job), SCHEMA), owned)
    base = pa.total_allocated_bytes()
    staged = staging.stage_pieces((), StagingContext(99, 1, 0, 1 << 20))
    assert len(staged.buckets) == 64 and sum(file.rows for file in staged.buckets) == 600_000
    assert peak < whole // 2


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 100))
def test_buckets_that_are_too_large_together_are_written_one_after_another(weights: list[int], held: int) -> None:
    """A store that is far away is given as many side by side as there is memory for."""
    every = list(range(len(weights)))
    parts = list(cut_by_size(every, weights.__getitem__, held))
    assert [at for part in parts for at in part] == every
    assert all(len(part) == 1 or sum(weights[at] for at in part) <= held for part in parts)
    for one, other in pairwise(parts):
        assert sum(weights[at] for at in one) + weights[other[0]] > held
