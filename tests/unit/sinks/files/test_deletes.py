"""Deletes among the rows of a sink: in a changelog, in copies of tables; without them nothing of a file changes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from milepost.errors import StateCorrupt
from milepost.jobspec.graph.sink_input import SinkInput
from milepost.jobspec.job.spec import SinkSpec
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.sinks.buckets.bucket_staging import BucketStaging
from milepost.sinks.buckets.table_buckets import BucketPlan, OwnedKeys
from milepost.sinks.contract import SinkMode
from milepost.sinks.parquet_files.deletes import latest_rows, without_deletes
from milepost.sinks.parquet_files.partitions import PartitionBy
from milepost.sinks.parquet_files.table_files import ReadOptions, TableFiles
from milepost.sinks.staging.table_staging import TableStaging
from milepost.sinks.table_copy import CopyPlan, stage_copy
from milepost.tables.records.committables import decode_schema
from milepost_testkit import wording
from milepost_testkit.tasks.staging import HASHER, KEY_GROUPS, stage, stage_buckets
from tests.conformance.sinks.contract.case import SCHEMA, SinkCase, deleting, pairs, rows
from tests.conformance.sinks.formats.local_cases import LocalParquet
from tests.unit.sinks.conformance.test_delta_conformance import LocalCase as LocalDelta

STRICT = pa.schema([("k", pa.int64()), pa.field("v", pa.string(), nullable=False)])
OWNED = OwnedKeys(range(KEY_GROUPS), KEY_GROUPS, HASHER.key_groups)


class Upsert(LocalParquet):
    mode = SinkMode.UPSERT


class DeltaUpsert(LocalDelta):
    mode = SinkMode.UPSERT


class Changelog(LocalParquet):
    mode = SinkMode.CHANGELOG


class PartedChangelog(LocalDelta):
    mode = SinkMode.CHANGELOG
    partition = PartitionBy(("v",), takes_empty_text=False)


@pytest.mark.parametrize("case", [Changelog(), PartedChangelog()], ids=["parquet", "delta by a column"])
def test_a_changelog_says_of_each_row_whether_it_is_a_delete(tmp_path: Path, case: SinkCase) -> None:
    """A delete has its key and no other value, which is also its partition."""
    job = case.begin(tmp_path)
    job.publish(rows((1, "a"), schema=STRICT), schema=STRICT)
    marked = deleting(rows((1, ""), (2, "b"), schema=STRICT), [1])
    done = job.publish(marked, schema=marked.schema)
    table = job.sink.read(done.contents, verify=True)
    assert table.column_names == ["k", "v", "_op", "_checkpoint"]
    found = [tuple(row.values()) for row in table.to_pylist()]
    assert sorted(found, key=str) == [(1, "a", "insert", 1), (1, None, "delete", 2), (2, "b", "insert", 2)]


def test_without_deletes_the_files_of_every_mode_are_what_they_were(tmp_path: Path) -> None:
    """Byte for byte, from before there were any: no column, no other order, no other encoding."""
    store = Upsert().table_store(tmp_path)
    given = rows((3, "a"), (1, "b"), (2, "c"), (1, "d"), schema=STRICT)
    digests, schemas = {}, {}
    for mode in SinkMode:
        key = ("k",) if mode is SinkMode.UPSERT else ()
        staging = TableStaging("table", mode=mode, key=key, store=store, op="upsert")
        (file,) = stage(staging, given, checkpoint_id=1, token=1, subtask=0).files
        digests[mode.value] = file.sha256[:16]
        schemas[mode.value] = decode_schema(staging.committable([], STRICT).schema)
    plan = BucketPlan((), None, 1, rewrites=True, keeps_changes=False)
    buckets = BucketStaging("table", key=("k",), routing_key=("k",), store=store, plan=plan, owned=OWNED)
    (bucket,) = stage(buckets, given, checkpoint_id=1, token=1, subtask=0).buckets
    assert digests | {"bucket": bucket.sha256[:16]} == {
        "append": "c470f33c345035d4",
        "upsert": "2381d4f38dfa5cbe",
        "changelog": "486ff9e895f006d2",
        "bucket": "fe0a8b37f2ba34d4",
    }
    assert schemas["append"].equals(STRICT) and schemas["upsert"].equals(STRICT)


def test_a_delete_hides_every_earlier_row_of_its_key() -> None:
    before, after = rows((1, "a"), (2, "b")), rows((2, "c"))
    assert pairs(latest_rows([before, deleting(before, [1, 2]), after], ("k",))) == [(2, "c")]


def test_rows_without_a_mark_are_not_copied() -> None:
    table = rows((1, "a"))
    assert without_deletes(table) is table


def test_a_file_with_deletes_is_not_read_as_rows(tmp_path: Path) -> None:
    """Whoever does not ask for deletes would take them for rows without values."""
    job = Upsert().begin(tmp_path)
    marked = deleting(rows((1, "")), [1])
    done = job.publish(marked, schema=marked.schema)
    files = TableFiles("table", Upsert().table_store(tmp_path))
    with wording.raises(StateCorrupt):
        files.rows(job.sink.files(done.contents), ReadOptions(SCHEMA))


def test_columns_of_a_new_table_are_checked_without_the_mark(tmp_path: Path) -> None:
    job = DeltaUpsert().begin(tmp_path)
    job.sink.check_columns(deleting(rows((1, "")), []).schema)


def test_deletes_of_what_never_was_are_no_file_of_a_table_of_buckets(tmp_path: Path) -> None:
    """Engines would show them as rows."""
    job = DeltaUpsert().begin(tmp_path)
    marked = deleting(rows((1, ""), (2, "")), [1, 2])
    done = job.publish(marked, schema=marked.schema)
    assert job.sink.files(done.contents) == () and (done.contents.files, done.contents.rows) == (0, 0)


def test_a_bucket_is_written_again_only_where_something_that_is_deleted_was(tmp_path: Path) -> None:
    """A filter that drops rows deletes keys that never were in the table."""
    job = DeltaUpsert().begin(tmp_path)
    full = rows(*((key, "a") for key in range(40)))
    head = job.manifest.completed(job.sink, stage_buckets(job.sink, None, 1, 1, full, schema=SCHEMA, count=8))
    for at, keys, changed in ((2, range(100, 140), 0), (3, [7, *range(100, 140)], 1)):
        marked = deleting(rows(*((key, "") for key in keys)), list(keys))
        before = {file.key for file in job.sink.files(head.contents)}
        staged = stage_buckets(job.sink, head.contents, at, 1, marked, schema=marked.schema, count=8)
        head = job.manifest.completed(job.sink, staged, waits=True)
        assert len(before) == 8 and len(before - {file.key for file in job.sink.files(head.contents)}) == changed
    assert [key for key, _ in pairs(job.sink.read(head.contents))] == [key for key in range(40) if key != 7]


def test_a_file_that_crosses_a_cut_is_written_again_though_no_row_of_it_is_deleted(tmp_path: Path) -> None:
    """Its rows are in one of two buckets, and the other one gets a row: files have no key group in common."""
    groups = HASHER.key_groups(rows(*((key, "") for key in range(20))), ("k",), KEY_GROUPS)
    lower = [key for key in range(20) if groups[key] < KEY_GROUPS // 2]
    upper = [key for key in range(20) if groups[key] >= KEY_GROUPS // 2]
    job = DeltaUpsert().begin(tmp_path)
    first = stage_buckets(job.sink, None, 1, 1, rows((lower[0], "a")), schema=SCHEMA, count=1, parallelism=1)
    head = job.manifest.completed(job.sink, first)
    marked = deleting(rows((lower[1], ""), (upper[0], "b")), [lower[1]])
    second = stage_buckets(job.sink, head.contents, 2, 1, marked, schema=marked.schema, count=2, parallelism=1)
    head = job.manifest.completed(job.sink, second, waits=True)
    files = job.sink.files(head.contents)
    shown = TableFiles("table", job.sink.store).rows(files, ReadOptions(SCHEMA))
    assert pairs(shown) == sorted([(lower[0], "a"), (upper[0], "b")])
    assert sorted((file.groups.start, file.groups.stop) for file in files if file.groups) == [(0, 64), (64, 128)]


def test_the_changes_of_a_fork_keep_their_deletes_until_the_buckets_are_written(tmp_path: Path) -> None:
    """Below them are the buckets that have the rows; the step before the switch removes them."""
    job = DeltaUpsert().begin(tmp_path)
    head = base = job.publish(rows((1, "a"), (2, "b")))
    changes = [deleting(rows((1, ""), (3, "c")), [1]), rows((4, "d"))]
    for at, table in enumerate(changes, 2):
        staged = stage_buckets(job.sink, head.contents, at, 1, table, schema=table.schema, rewrites=at == 3)
        head = job.manifest.completed_on_fork(job.sink, staged, head, "fork")
        assert pairs(job.sink.read(head.contents, verify=True)) == [(2, "b"), (3, "c"), (4, "d")][:at]
        assert job.sink.verify(head.contents, deep=True) == []
    files = job.sink.files(head.contents)
    assert all(file.groups is not None for file in files)
    assert pairs(TableFiles("table", job.sink.store).rows(files, ReadOptions(SCHEMA))) == [(2, "b"), (3, "c"), (4, "d")]
    assert pairs(job.sink.read(base.contents)) == [(1, "a"), (2, "b")]


@pytest.mark.deep
@pytest.mark.parametrize("old", [Upsert(), DeltaUpsert()], ids=["from parquet", "from delta"])
@pytest.mark.parametrize("new", [Upsert(), DeltaUpsert()], ids=["to parquet", "to delta"])
def test_a_copy_of_a_table_shows_the_rows_that_it_showed(tmp_path: Path, old: SinkCase, new: SinkCase) -> None:
    """Files of changes are copied with their deletes, some together with files that have none."""
    job, copy = old.begin(tmp_path / "old"), new.begin(tmp_path / "new")
    job.publish(rows((1, "a"), (2, "b"), (3, "c")))
    for gone, come in ((1, 4), (4, 1), (2, 5)):
        marked = deleting(rows((gone, ""), (come, "again")), [gone])
        job.publish(marked, schema=marked.schema)
    last = job.publish(rows((6, "f")))
    spec = SinkSpec(name="table", input="x", format=new.format_name, path="file:///x", mode="upsert")  # type: ignore[arg-type]
    plan = CopyPlan(spec, SinkInput("table", "x", "", "upsert", ("k",), {}, deletes=True), OWNED)
    staged = stage_copy(job.sink, last.contents, copy.sink, plan, (CheckpointId(1), FencingToken(1)))
    done = copy.manifest.completed(copy.sink, staged)
    assert copy.sink.move(done.target) is True
    assert new.published(tmp_path / "new") == old.published(tmp_path / "old")
    assert pairs(copy.sink.read(done.contents)) == [(1, "again"), (3, "c"), (5, "again"), (6, "f")]
