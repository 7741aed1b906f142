"""Format `iceberg`: what a landing reads of a table, in which order, and what it refuses with the way out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as LibraryTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestamptzType, UUIDType

from milepost.codec import encode
from milepost.errors import (
    CheckpointError,
    InvalidRequest,
    PositionExpired,
    SourceReplaced,
    SourceUnreachable,
    SourceWentBack,
)
from milepost.jobspec.job import CatalogSpec
from milepost.language import parse_type
from milepost.protocol.records.object_store import StoreConfig
from milepost.sources.landed import PassedFiles, TableReading, open_iceberg_source
from milepost.sources.landed.iceberg.iceberg_source import IcebergSource
from milepost.storage.open import open_store
from milepost.tables.records.reservation import RESERVATION, TableOwner, new_reservation
from milepost_testkit.formats.iceberg_lake import lake_on_disk
from milepost_testkit.formats.iceberg_writers import compact, delete_rows, set_properties
from milepost_testkit.jobs.landed_table import TableLog

TYPES = {"k": parse_type("int64"), "v": parse_type("string")}
COLUMNS = Schema(NestedField(1, "k", LongType()), NestedField(2, "v", StringType()))
NAME = ("shop", "orders")


class Table:
    """An Iceberg table in a folder with SQLite as its catalog, and a log of it."""

    def __init__(self, folder: Path, columns: Schema = COLUMNS, **options: Any) -> None:
        self.folder, self.uri, self.log = folder, f"sqlite:///{folder}/catalog.db", TableLog(self.open)
        self.catalog.create_namespace_if_not_exists("shop")
        self.catalog.create_table_if_not_exists(NAME, columns, **options)

    @property
    def catalog(self) -> SqlCatalog:
        return SqlCatalog("milepost", uri=self.uri, warehouse=f"file://{self.folder}/warehouse")

    @property
    def library(self) -> LibraryTable:
        return self.catalog.load_table(NAME)

    def open(self, types: Mapping[str, Any] = TYPES, **options: Any) -> IcebergSource:
        settings = {"start": "earliest", "max_bytes": 1 << 30, "event_time": None, **options}
        catalog, branch = CatalogSpec(type="sql", uri=self.uri), settings.pop("branch", "main")
        return open_iceberg_source(
            TableReading("orders", types, **settings),
            catalog,
            "shop.orders",
            branch,
            lambda url: open_store(StoreConfig(url)),
            StoreConfig("file:///"),
        )

    def append(self, *keys: int, branch: str = "main") -> int:
        """Append rows; return the id of the snapshot."""
        names = self.library.schema().column_names
        rows = pa.table({names[0]: pa.array(keys, pa.int64()), names[1]: [f"v{key}" for key in keys]})
        self.library.append(rows, branch=branch)
        return self.head(branch)

    def head(self, branch: str = "main") -> int:
        snapshot = self.library.snapshot_by_name(branch)
        assert snapshot is not None
        return snapshot.snapshot_id

    def expire(self, *snapshots: int) -> None:
        self.library.maintenance.expire_snapshots().by_ids([*snapshots]).commit()

    def expire_and_keep_parents(self, *snapshots: int) -> None:
        """Expire snapshots as Iceberg's Java library does: those after them still name them as their parents."""
        file = Path(self.library.metadata_location.removeprefix("file://"))
        metadata = json.loads(file.read_text())
        metadata["snapshots"] = [each for each in metadata["snapshots"] if each["snapshot-id"] not in snapshots]
        file.write_text(json.dumps(metadata))

    def keys(self, since: int = 1) -> list[int]:
        return self.log.column("k", since)

    def refusal(self, **options: Any) -> InvalidRequest:
        before = [*self.log.records()] if self.log.log.newest() else []
        with pytest.raises(InvalidRequest) as refused:
            self.log.land(**options)
        assert "Nothing from this read was landed" in refused.value.message and refused.value.hint
        assert not before or self.log.records() == before
        return refused.value


@pytest.fixture(
    autouse=True, params=[pytest.param(False, id="copy", marks=pytest.mark.deep), pytest.param(True, id="reference")]
)
def by_reference(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(TableLog, "by_reference", request.param)
    return bool(request.param)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


@pytest.mark.deep
def test_the_log_begins_with_the_table_as_it_is_and_goes_on_with_each_snapshot(table: Table) -> None:
    table.append(1, 2)
    table.append(3)
    table.library.delete(EqualTo("k", 2))
    table.log.land()
    assert sorted(table.keys()) == [1, 3]
    table.append(4)
    table.append(5)
    table.log.land()
    assert table.keys()[2:] == [4, 5]
    assert table.log.land().records == 0


def test_rows_that_were_rewritten_by_a_compaction_are_not_landed_again(table: Table) -> None:
    table.append(1)
    table.log.land()
    table.append(2)
    compact(table.library)
    table.append(3)
    table.log.land()
    assert table.keys() == [1, 2, 3]


@pytest.mark.deep
def test_manifests_that_an_append_merges_do_not_land_their_older_files_again(table: Table) -> None:
    set_properties(
        table.library, **{"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    )
    for key in range(4):
        table.append(key)
        table.log.land()
    snapshot = table.library.current_snapshot()
    assert snapshot is not None and len(snapshot.manifests(table.library.io)) < 4
    assert table.keys() == [0, 1, 2, 3]


@pytest.mark.deep
@pytest.mark.parametrize("start", ["earliest", "latest", 0, 1, 2])
def test_a_log_begins_where_start_says(table: Table, start: Any) -> None:
    ids = [table.append(key) for key in (0, 1, 2)]
    begin = ids[start] if isinstance(start, int) else start
    table.log.land(start=begin)
    table.append(3)
    table.log.land(start=begin)
    assert table.keys() == list(range({"earliest": 0, "latest": 3}.get(start, start), 4))


def test_a_time_is_that_of_the_first_snapshot_at_or_after_it(table: Table) -> None:
    ids = [table.append(key) for key in range(3)]
    for start, expected in ((0, [0, 1, 2]), (1, [1, 2]), (2, [2])):
        at = next(each for each in table.library.snapshots() if each.snapshot_id == ids[start]).timestamp_ms
        log = TableLog(table.open)
        log.land(start=datetime.fromtimestamp(at / 1000, UTC).isoformat())
        assert log.column("k") == expected
    log = TableLog(table.open)
    assert log.land(start=datetime.now(UTC).isoformat()).rows == 0
    assert "2100-01-01 is in the future" in table.refusal(start="2100-01-01").message
    table.expire(ids[0])
    assert f"no longer has snapshots before {ids[1]}" in table.refusal(start="2020-01-01").message


def test_a_start_that_the_branch_does_not_have_is_refused(table: Table) -> None:
    assert "it has no snapshots" in table.refusal(start=7).message
    first = table.append(1)
    assert f"branch main begins with snapshot {first}" in table.refusal(start=7).message


def test_records_are_cut_between_files_and_a_landing_goes_on_in_the_midst(tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "v"))
    table = Table(tmp_path, partition_spec=spec)
    table.append(*range(4))
    first = table.open(max_bytes=1)
    pull = first.next_pull(first.initial_position())
    assert pull is not None and pull.end is not None and pull.behind == ("initial copy",) and pull.end["file"] == 1
    table.log.land(max_bytes=1)
    assert [record.file_count for record in table.log.records()] == [0, 1, 1, 1, 1]
    assert [bool(record.behind) for record in table.log.records()] == [False, True, True, True, False]
    table.append(*range(4, 8))
    pull = table.open(max_bytes=1).next_pull(table.log.position)
    assert pull is not None and pull.end["file"] == 1
    rest = table.open().next_pull(pull.end)
    assert rest is not None and len(rest.splits[0]) == 3 and rest.end["file"] is None
    table.log.land(max_bytes=1)
    assert sorted(table.keys()) == list(range(8))


def test_a_renamed_column_is_read_by_its_id_from_older_and_newer_files(table: Table) -> None:
    table.append(1)
    with table.library.update_schema() as update:
        update.rename_column("v", "name")
    with table.library.update_schema() as update:
        update.add_column("v", StringType())
    rows = pa.table({"k": [2], "name": ["new name"], "v": ["another v"]})
    table.library.append(rows)
    types = {**TYPES, "name": parse_type("string")}
    table.log.land(types=types)
    assert table.log.rows() == [
        {"k": 1, "v": None, "name": "v1"},
        {"k": 2, "v": "another v", "name": "new name"},
    ]


def test_a_widened_column_is_read_with_its_type_of_now(tmp_path: Path) -> None:
    from pyiceberg.types import IntegerType

    table = Table(tmp_path, Schema(NestedField(1, "k", IntegerType()), NestedField(2, "v", StringType())))
    table.library.append(pa.table({"k": pa.array([1], pa.int32()), "v": ["a"]}))
    assert "has a column k of the type int32, and `schema` declares it as int64" in table.refusal().message
    with table.library.update_schema() as update:
        update.update_column("k", LongType())
    table.append(1 << 40)
    table.log.land()
    assert table.keys() == [1, 1 << 40]


def test_the_tables_of_milepost_are_read_by_their_mapping_of_names(tmp_path: Path) -> None:
    lake = lake_on_disk(tmp_path).made()
    lake.move(1, (lake.staged(1, 2),))
    log = TableLog(
        lambda: open_iceberg_source(
            TableReading("orders", TYPES, None, "earliest", 1 << 30),
            CatalogSpec(type="sql", uri=lake.config.uri),
            "shop.totals",
            "main",
            lambda url: open_store(StoreConfig(url)),
            StoreConfig("file:///"),
        )
    )
    log.land()
    lake.move(2, (lake.staged(3),))
    log.land()
    assert log.column("k") == [1, 2, 3]


def test_files_that_were_imported_without_ids_and_partition_columns_are_read(tmp_path: Path) -> None:
    columns = Schema(
        NestedField(1, "k", LongType()), NestedField(2, "v", StringType()), NestedField(3, "day", DateType())
    )
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "day"))
    table = Table(tmp_path, columns, partition_spec=spec)
    whole = pa.table({"k": [1], "v": ["a"], "day": [date(2026, 3, 1)]})
    file = tmp_path / "imported.parquet"
    pq.write_table(whole, file)
    table.library.add_files([str(file)])
    pq.write_table(whole.drop_columns(["day"]), file)
    types = {**TYPES, "day": parse_type("date")}
    table.log.land(types=types)
    assert table.log.rows() == whole.to_pylist()
    with table.library.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")
    other = TableLog(table.open)
    with pytest.raises(InvalidRequest, match="without field ids, and no mapping of names"):
        other.land()


def test_a_column_of_a_type_without_equivalent_is_refused_only_if_it_is_declared(tmp_path: Path) -> None:
    columns = Schema(
        NestedField(1, "k", LongType()), NestedField(2, "v", StringType()), NestedField(3, "u", UUIDType())
    )
    table = Table(tmp_path, columns)
    table.log.land()
    assert "has a column u of the type uuid" in table.refusal(types={**TYPES, "u": parse_type("string")}).message
    assert "has no column K; its columns: k, v, u" in table.refusal(types={"K": parse_type("int64")}).message


def delete_in_file(table: Table) -> None:
    table.library.delete(EqualTo("k", 2))


def delete_file(table: Table) -> None:
    table.library.delete(EqualTo("v", "v1") | EqualTo("v", "v2"))


def overwrite(table: Table) -> None:
    table.library.overwrite(pa.table({"k": [9], "v": ["x"]}))


def delete_by_file(table: Table) -> None:
    delete_rows(table.library)


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (delete_in_file, r"deleted or overwrote rows in snapshot \d+ \(overwrite\)"),
        (delete_file, r"deleted or overwrote rows in snapshot \d+ \(overwrite\)"),
        (overwrite, r"deleted or overwrote rows in snapshot \d+ \(delete\)"),
        (delete_by_file, r"deleted rows in snapshot \d+ \(delete files\)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_change_that_a_log_cannot_follow_stops_the_landing_with_the_way_out(
    table: Table, change: Any, problem: str
) -> None:
    table.append(1, 2)
    table.log.land()
    change(table)
    table.append(3)
    refused = table.refusal()
    assert re.search(problem, refused.message), refused.message
    assert "another name" in refused.hint
    assert table.keys() == [1, 2]


def test_rows_that_are_deleted_in_the_range_stop_the_landing_and_are_not_lost_silently(table: Table) -> None:
    """The library's incremental scan over this range returns rows and reports nothing (iceberg-python#3512)."""
    first = table.append(1)
    table.log.land()
    table.append(2)
    table.library.delete(EqualTo("k", 2))
    table.append(3)
    assert "deleted or overwrote rows" in table.refusal().message
    assert first != table.head()


def test_a_table_with_delete_files_cannot_begin_a_log_with_its_rows(table: Table) -> None:
    table.append(1)
    delete_rows(table.library)
    refused = table.refusal()
    assert "has delete files in snapshot" in refused.message and "start: latest" in refused.hint
    log = TableLog(table.open)
    log.land(start="latest")
    table.append(2)
    log.land(start="latest")
    assert log.column("k") == [2]


@pytest.mark.deep
@pytest.mark.parametrize("expire", [Table.expire, Table.expire_and_keep_parents])
@pytest.mark.parametrize("is_landed_expired", [True, False])
def test_an_expired_snapshot_in_between_is_an_expired_position(
    table: Table, expire: Any, is_landed_expired: bool
) -> None:
    first = table.append(1)
    table.log.land()
    second = table.append(2)
    table.append(3)
    table.append(4)
    expire(table, second, *([first] if is_landed_expired else []))
    expected = r"they are expired.*It still has .*\"sequence\": 2, .* to .*\"sequence\": 4"
    with pytest.raises(PositionExpired, match=expected):
        table.log.land()
    assert table.keys() == [1]


@pytest.mark.deep
@pytest.mark.parametrize("expire", [Table.expire, Table.expire_and_keep_parents])
def test_an_expired_snapshot_that_was_landed_stops_nothing(table: Table, expire: Any) -> None:
    first = table.append(1)
    table.log.land()
    table.append(2)
    expire(table, first)
    table.log.land()
    assert table.keys() == [1, 2]


@pytest.mark.deep
@pytest.mark.parametrize("expire", [Table.expire, Table.expire_and_keep_parents])
def test_a_snapshot_of_an_empty_table_that_expires_before_it_is_landed_is_an_expired_position(
    table: Table, expire: Any
) -> None:
    table.log.land()
    first = table.append(1)
    table.append(2)
    expire(table, first)
    with pytest.raises(PositionExpired, match="they are expired"):
        table.log.land()


@pytest.mark.parametrize("expire", [Table.expire, Table.expire_and_keep_parents])
def test_a_log_may_begin_with_the_oldest_snapshot_that_is_not_expired(table: Table, expire: Any) -> None:
    first, second = table.append(1), table.append(2)
    expire(table, first)
    table.log.land(start=second)
    assert table.keys() == [2]


def test_a_deleted_data_file_is_an_expired_position(table: Table) -> None:
    table.append(1)
    table.log.land()
    known = {*(table.folder / "warehouse").rglob("data/*.parquet")}
    table.append(2)
    (added,) = {*(table.folder / "warehouse").rglob("data/*.parquet")} - known
    added.unlink()
    with pytest.raises(PositionExpired, match=f"no longer has the data file {re.escape(added.name)}"):
        table.log.land()


def test_a_deleted_manifest_is_an_expired_position(table: Table) -> None:
    table.append(1)
    table.log.land()
    known = {*table.folder.rglob("metadata/*-m0.avro")}
    table.append(2)
    (added,) = {*table.folder.rglob("metadata/*-m0.avro")} - known
    added.unlink()
    with pytest.raises(PositionExpired, match="a manifest of a snapshot after"):
        table.log.land()


@pytest.mark.long
@pytest.mark.parametrize("pattern", ["metadata/*-m0.avro", "metadata/snap-*.avro"])
@pytest.mark.parametrize("kept", [0, 0.01, 0.5, 0.99])
def test_a_manifest_that_is_not_readable_is_refused(table: Table, pattern: str, kept: float) -> None:
    table.append(1)
    table.log.land()
    known = {*table.folder.rglob(pattern)}
    table.append(2)
    (added,) = {*table.folder.rglob(pattern)} - known
    body = added.read_bytes()
    added.write_bytes(body[: int(kept * len(body))])
    assert "has a manifest that is not readable" in table.refusal().message


@pytest.mark.long
@pytest.mark.parametrize("pattern", ["data/*.parquet", "metadata/*-m0.avro"])
def test_a_log_can_go_on_after_the_newest_snapshot_of_which_a_file_is_lost(table: Table, pattern: str) -> None:
    table.append(0)
    table.log.land()
    table.append(1)
    known = {*table.folder.rglob(pattern)}
    second = table.append(2)
    (added,) = {*table.folder.rglob(pattern)} - known
    added.unlink()
    third = table.append(3)
    source: Any = table.open()
    resumed = source.resume_position("earliest", table.log.position)
    assert (resumed.position["snapshot"], resumed.backlog.count) == (second, 1)
    latest = source.resume_position("latest", table.log.position)
    lost = PassedFiles(3, 1) if pattern == "data/*.parquet" else PassedFiles(2, 0, 1)
    assert (latest.position["snapshot"], latest.passed) == (third, lost)
    pull = table.open().next_pull(resumed.position)
    assert pull is not None and pull.end["snapshot"] == third


def test_doctor_counts_the_files_that_a_start_at_the_newest_snapshot_skips(table: Table) -> None:
    (note,) = table.open(start="latest").notes(None)
    assert note.text.endswith("skips: 0")
    table.append(1)
    table.append(2)
    (note,) = table.open(start="latest").notes(None)
    assert note.text == "data files that `start: latest` skips: 2"
    assert table.open().notes(None) == ()


def test_a_table_that_a_job_upserts_into_is_refused_before_the_first_record(table: Table) -> None:
    table.append(1)
    owner = TableOwner("totals", "a1b2c3", "by_user")
    store = open_store(StoreConfig(table.library.metadata.location))
    store.put(RESERVATION, encode(new_reservation(owner, "iceberg", "upsert", ("k",))))
    assert "has mode: upsert: job totals replaces and deletes its rows" in table.refusal().message
    (warning,) = table.open().notes({"snapshot": None})
    assert warning.is_warning


@pytest.mark.deep
def test_a_branch_that_was_rolled_back_went_back(table: Table) -> None:
    first = table.append(1)
    second = table.append(2)
    table.log.land()
    with table.library.manage_snapshots() as manage:
        manage.create_branch(first, "older")
    with pytest.raises(SourceReplaced):
        table.log.land(branch="older")
    table.library.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(SourceWentBack, match=rf"snapshot {second}, which was landed, is not in the history"):
        table.log.land()
    table.append(3)
    with pytest.raises(SourceWentBack):
        table.log.land()
    table.expire(second)
    with pytest.raises(SourceWentBack):
        table.log.land()


def test_the_newest_true_position_is_in_the_history_of_the_branch(table: Table) -> None:
    snapshots = []
    for key in range(3):
        snapshots.append(table.append(key))
        table.log.land()
    ends = [record.end for record in reversed(table.log.records())]
    table.library.manage_snapshots().rollback_to_snapshot(snapshots[1]).commit()
    later = table.append(7)
    source: Any = table.open()
    newest = source.newest_true(ends)
    assert (newest, ends[newest]["snapshot"]) == (1, snapshots[1])
    assert source.newest_true(ends[:1]) is None
    table.append(8)
    for snapshot in (*snapshots[:2], later):
        table.expire(snapshot)
    expired: Any = table.open()
    with pytest.raises(InvalidRequest, match="whether it was of branch main is unknown"):
        expired.newest_true(ends)


def test_a_branch_is_read_alone(table: Table) -> None:
    first = table.append(1)
    with table.library.manage_snapshots() as manage:
        manage.create_branch(first, "audit")
    table.append(2)
    table.append(3, branch="audit")
    table.log.land(branch="audit")
    assert sorted(table.keys()) == [1, 3]
    assert "has no branch audits; it has audit, main" in TableRefusal(table).of(branch="audits")


class TableRefusal:
    """A refusal of a log that was not begun."""

    def __init__(self, table: Table) -> None:
        self.log = TableLog(table.open)

    def of(self, **options: Any) -> str:
        with pytest.raises(CheckpointError) as refused:
            self.log.land(**options)
        return refused.value.message


def test_another_table_of_the_name_is_another_source(table: Table) -> None:
    table.append(1)
    table.log.land()
    table.catalog.drop_table(NAME)
    Table(table.folder)
    with pytest.raises(SourceReplaced, match="its log was begun for table"):
        table.log.land()


def test_a_table_that_the_catalog_does_not_have_is_refused(table: Table) -> None:
    table.catalog.drop_table(NAME)
    refused = table.refusal()
    assert "the Iceberg table shop.orders does not exist in the SQL catalog at sqlite://" in refused.message


def test_a_catalog_that_cannot_be_opened_is_named_without_secrets(tmp_path: Path) -> None:
    source = open_iceberg_source(
        TableReading("orders", TYPES, None, "earliest", 1),
        CatalogSpec(type="rest", uri="http://127.0.0.1:9/api", options={"token": "s3cret"}),
        "shop.orders",
        "main",
        lambda url: open_store(StoreConfig(url)),
        StoreConfig("file:///"),
    )
    with pytest.raises(SourceUnreachable) as refused:
        source.identity()
    assert "sources.orders.catalog.uri" in refused.value.hint and "s3cret" not in refused.value.full_message()


def test_a_catalog_without_its_metadata_file_is_named(table: Table) -> None:
    table.append(1)
    for file in table.folder.rglob("*.metadata.json"):
        file.unlink()
    assert "cannot be opened: its catalog names" in table.refusal().message


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path, properties={"format-version": "1"})
    table.append(1)
    refused = table.refusal()
    assert "has format version 1" in refused.message and "'format-version' = '2'" in refused.hint


def test_timestamps_and_nulls_are_as_they_were_written(tmp_path: Path) -> None:
    columns = Schema(NestedField(1, "k", LongType()), NestedField(2, "at", TimestamptzType()))
    table = Table(tmp_path, columns)
    at = datetime(2026, 3, 1, 12, 0, 0, 7, UTC)
    rows = pa.table({"k": [1, None], "at": pa.array([at, None], pa.timestamp("us", "UTC"))})
    table.library.append(rows)
    table.log.land(types={"k": parse_type("int64"), "at": parse_type("timestamp[us, UTC]")})
    assert table.log.rows() == rows.to_pylist()


def test_a_table_without_snapshots_is_landed_once_it_has_some(table: Table) -> None:
    table.log.land()
    assert table.log.position == {"snapshot": None, "sequence": 0, "file": None}
    table.append(1)
    table.append(2)
    table.log.land()
    assert table.keys() == [1, 2]
