"""Format `delta`: what a landing reads of a table, in which order, and what it refuses with the way out."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from milepost.codec import encode
from milepost.errors import InvalidRequest, PositionExpired, SourceReplaced, SourceWentBack
from milepost.jobspec.job import EventTimeSpec
from milepost.language import parse_type
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.sources.landed import PassedFiles, TableReading, open_delta_source
from milepost.sources.landed.delta.commits import DeltaRows
from milepost.sources.landed.delta.delta_source import DeltaSource
from milepost.sources.landed.tables import pulls
from milepost.storage.open import open_store
from milepost.tables.records.reservation import RESERVATION, TableOwner, new_reservation
from milepost_testkit.jobs.landed_table import TableLog

TYPES = {"k": parse_type("int64"), "v": parse_type("string")}
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deletion_vector_of(row: int) -> dict[str, Any]:
    """Return a deletion vector of one row, inline, as Delta's protocol has it: a RoaringBitmapArray in Z85."""
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)
    body = struct.pack("<IqI", 1681511377, 1, 0) + bitmap
    text = ""
    for at in range(0, len(body), 4):
        number = int.from_bytes(body[at : at + 4].ljust(4, b"\0"), "big")
        text += "".join(_Z85[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(body), "cardinality": 1}


class Table:
    """A Delta table in a folder, and a log of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, TableLog(self.open)

    def open(self, types: Mapping[str, Any] = TYPES, **options: Any) -> DeltaSource:
        url = file_url(self.folder)
        settings = {"start": "earliest", "max_bytes": 1 << 30, "event_time": None, **options}
        return open_delta_source(TableReading("orders", types, **settings), url, open_store(StoreConfig(url)))

    def append(self, *keys: int, **options: Any) -> None:
        rows = pa.table({"k": pa.array(keys, pa.int64()), "v": [f"v{key}" for key in keys]})
        write_deltalake(self.folder, rows, mode="append", **options)

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.folder)

    def commit(self, *actions: Mapping[str, Any], version: int | None = None) -> None:
        """Write a commit as another engine could."""
        number = self.delta.version() + 1 if version is None else version
        self.log_file(number).write_text("".join(f"{json.dumps(action)}\n" for action in actions))

    def log_file(self, version: int) -> Path:
        return self.folder / "_delta_log" / f"{version:020d}.json"

    def actions(self, version: int) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_file(version).read_text().splitlines()]

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


copied_and_by_reference = pytest.mark.parametrize(
    "by_reference", [False, True], ids=["copy", "reference"], indirect=True
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "orders")


def test_the_log_begins_with_the_table_as_it_is_and_goes_on_with_each_commit(table: Table) -> None:
    table.append(1, 2)
    table.append(3)
    table.delta.delete("k = 2")
    table.log.land()
    assert table.keys() == [3, 1]
    table.append(4)
    table.append(5)
    table.log.land()
    assert table.keys() == [3, 1, 4, 5]
    assert table.log.land().rows == 0


def test_rows_that_were_rewritten_by_optimize_are_not_landed_again(table: Table) -> None:
    table.append(1)
    table.log.land()
    table.append(2)
    table.append(3)
    assert table.delta.optimize.compact()["numFilesRemoved"] == 3
    table.append(4)
    table.log.land()
    assert table.keys() == [1, 2, 3, 4]


def test_an_optimize_alone_appends_no_record(table: Table) -> None:
    table.append(1)
    table.append(2)
    table.log.land()
    table.delta.optimize.compact()
    assert table.log.land().records == 0
    table.append(3)
    table.log.land()
    assert table.keys() == [1, 2, 3]


@pytest.mark.parametrize(
    ("start", "expected"), [("earliest", [1, 2, 3, 4]), ("latest", [4]), (1, [2, 3, 4]), (3, [4]), (0, [1, 2, 3, 4])]
)
def test_a_log_begins_where_start_says(table: Table, start: str | int, expected: list[int]) -> None:
    for key in (1, 2, 3):
        table.append(key)
    table.log.land(start=start)
    table.append(4)
    table.log.land(start=start)
    assert table.keys() == expected


def test_a_time_is_that_of_the_first_commit_at_or_after_it(table: Table) -> None:
    began = datetime(2026, 3, 1, tzinfo=UTC)
    for number in range(4):
        table.append(number)
        seconds = (began + timedelta(hours=number)).timestamp()
        os.utime(table.log_file(number), (seconds, seconds))
    for start, expected in (("2026-03-01T01:00:00Z", [1, 2, 3]), ("2026-03-01T02:30", [3]), ("2026-04-01", [])):
        log = TableLog(table.open)
        log.land(start=start)
        assert log.column("k") == expected
    table.delta.create_checkpoint()
    table.log_file(0).unlink()
    assert "no longer has commits before version 1" in table.refusal(start="2026-02-01").message


def test_in_commit_timestamps_are_the_times_of_a_table_that_has_them(table: Table) -> None:
    table.append(0)
    for number in (1, 2):
        table.append(number)
        first, *others = table.actions(number)
        first["commitInfo"]["inCommitTimestamp"] = 1_000_000 * number
        table.commit(first, *others, version=number)
    (state,) = [each for each in table.actions(0) if "metaData" in each]
    state["metaData"]["configuration"] = {"delta.enableInCommitTimestamps": "true"}
    table.commit({"commitInfo": {"inCommitTimestamp": 3_000_000}}, state)
    first, *others = table.actions(0)
    first["commitInfo"]["inCommitTimestamp"] = 0
    table.commit(first, *others, version=0)
    table.log.land(start="1970-01-01T00:30:00Z")
    assert table.keys() == [2]


def test_a_version_that_the_log_does_not_have_is_refused_as_start(table: Table) -> None:
    table.append(1)
    assert "does not have the commits from version 7 on" in table.refusal(start=7).message
    assert "2100-01-01 is in the future" in table.refusal(start="2100-01-01").message


@pytest.mark.parametrize("max_bytes", [1, 1_500])
def test_records_are_cut_between_files_and_a_landing_goes_on_in_the_midst(table: Table, max_bytes: int) -> None:
    for key in range(3):
        write_deltalake(
            table.folder,
            pa.table({"k": [key, key + 10], "v": ["a", "b"]}),
            mode="append",
            partition_by=["v"],
        )
    table.log.land(max_bytes=max_bytes)
    records = table.log.records()
    assert len(records) >= 3
    assert [bool(record.behind) for record in records[1:]] == [True] * (len(records) - 2) + [False]
    write_deltalake(table.folder, pa.table({"k": [7, 17], "v": ["a", "b"]}), mode="append", partition_by=["v"])
    table.log.land(max_bytes=max_bytes)
    assert not table.log.records()[-1].behind
    assert sorted(table.keys()) == [0, 1, 2, 7, 10, 11, 12, 17]


def test_a_landing_that_stopped_within_a_commit_continues_after_the_landed_file(table: Table) -> None:
    table.append(1)
    table.log.land()
    write_deltalake(table.folder, pa.table({"k": [2], "v": ["x"]}), mode="append")
    source = table.open()
    pull = source.next_pull(table.log.position)
    assert pull is not None and pull.end is not None
    added = [action for action in table.actions(1) if "add" in action]
    shutil.copy(table.folder / added[0]["add"]["path"], table.folder / "second.parquet")
    twice = {"add": {**added[0]["add"], "path": "second.parquet"}}
    table.commit(*table.actions(1), twice, version=1)
    pull = table.open(max_bytes=1).next_pull(table.log.position)
    assert pull is not None and pull.end["version"] == 1 and pull.end["file"] == 1
    rest = table.open().next_pull(pull.end)
    assert rest is not None and [file.key for file in rest.splits[0]] == ["second.parquet"]


def test_partition_values_come_from_the_log_with_their_types(table: Table) -> None:
    columns: dict[str, Any] = {
        "k": [1, 2],
        "text": ["a b%/ü", None],
        "day": [date(2026, 3, 1), None],
        "at": pa.array([datetime(2026, 3, 1, 12, 30, 0, 5, UTC), None], pa.timestamp("us", "UTC")),
        "wall": pa.array([datetime(2026, 3, 1, 12, 30, tzinfo=UTC).replace(tzinfo=None), None], pa.timestamp("us")),
        "yes": [True, None],
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "small": pa.array([-3, None], pa.int8()),
    }
    rows = pa.table(columns)
    names = ["text", "day", "at", "wall", "yes", "price", "small"]
    write_deltalake(table.folder, rows.slice(0, 1), partition_by=names)
    notations = {"k": "int64", "text": "string", "day": "date", "at": "timestamp[us, UTC]", "wall": "timestamp[us]"}
    notations |= {"yes": "bool", "price": "decimal(10,2)", "small": "int8"}
    types = {name: parse_type(text) for name, text in notations.items()}
    table.log.land(types=types)
    write_deltalake(table.folder, rows, mode="append", partition_by=names)
    table.log.land(types=types)
    first, second = rows.to_pylist()
    assert sorted(table.log.rows(), key=lambda row: row["k"]) == [first, first, second]


@copied_and_by_reference
def test_a_column_that_was_added_later_is_null_in_older_rows(table: Table) -> None:
    table.append(1)
    wider = pa.table({"k": [2], "v": ["b"], "n": pa.array([5], pa.int32())})
    write_deltalake(table.folder, wider, mode="append", schema_mode="merge")
    types = {**TYPES, "n": parse_type("int32")}
    for start in ("earliest", 0):
        log = TableLog(partial(table.open, types=types))
        log.land(start=start)
        assert sorted(log.rows(), key=lambda row: row["k"]) == [
            {"k": 1, "v": "v1", "n": None},
            {"k": 2, "v": "b", "n": 5},
        ]


def test_spark_s_int96_timestamps_are_times_in_utc(table: Table) -> None:
    at = datetime(2400, 3, 1, 12, 0, 0, 7, UTC)
    write_deltalake(table.folder, pa.table({"at": pa.array([at], pa.timestamp("us", "UTC"))}))
    (file,) = [action["add"] for action in table.actions(0) if "add" in action]
    naive = pa.table({"at": pa.array([at.replace(tzinfo=None)], pa.timestamp("us"))})
    pq.write_table(naive, table.folder / file["path"], use_deprecated_int96_timestamps=True)
    table.log.land(types={"at": parse_type("timestamp[us, UTC]")})
    assert table.log.rows() == [{"at": at}]


def delete(table: Table) -> None:
    table.delta.delete("k = 2")


def update(table: Table) -> None:
    table.delta.update(predicate="k = 2", updates={"v": "'changed'"})


def overwrite(table: Table) -> None:
    write_deltalake(table.folder, pa.table({"k": [9], "v": ["x"]}), mode="overwrite")


def restore(table: Table) -> None:
    """Bring back rows that were deleted before the log began: only files are added."""
    table.delta.restore(0)


def deletion_vector(table: Table) -> None:
    (added,) = [action["add"] for action in table.actions(0) if "add" in action]
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 1, "cardinality": 1}
    table.commit({"add": {**added, "path": "other.parquet", "deletionVector": vector}})


def absolute_path(table: Table) -> None:
    (added,) = [action["add"] for action in table.actions(0) if "add" in action]
    table.commit({"add": {**added, "path": "s3://other/orders/part-0.parquet"}})


def outside(table: Table) -> None:
    (added,) = [action["add"] for action in table.actions(0) if "add" in action]
    table.commit({"add": {**added, "path": "a/%2E%2E/../secret.parquet"}})


def other_type(table: Table) -> None:
    (state,) = [action["metaData"] for action in table.actions(0) if "metaData" in action]
    table.commit({"metaData": {**state, "schemaString": state["schemaString"].replace("long", "string")}})


def column_mapping(table: Table) -> None:
    (state,) = [action["metaData"] for action in table.actions(0) if "metaData" in action]
    table.commit({"metaData": {**state, "configuration": {"delta.columnMapping.mode": "name"}}})


def unknown_feature(table: Table) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["teleport"], "writerFeatures": []}
    table.commit({"protocol": {**protocol, "writerFeatures": ["teleport"]}})


@pytest.mark.parametrize(
    ("change", "problem", "way_out"),
    [
        (delete, r"deleted or updated rows in version 1 \(DELETE\)", "another name"),
        (update, r"deleted or updated rows in version 1 \(UPDATE\)", "another name"),
        (overwrite, r"deleted or updated rows in version 1 \(WRITE\)", "another name"),
        (deletion_vector, "has a data file with deleted rows in version 1", "REORG TABLE"),
        (absolute_path, "outside of its folder in version 1", "copy the clone"),
        (outside, "outside of its folder in version 1", "copy the clone"),
        (other_type, "has a column k of the type string, and `schema` declares it as int64", "declare k"),
        (column_mapping, "its log has no mapping of k", "repair the table"),
        (unknown_feature, "cannot be opened: .*Feature 'teleport' is not supported", "DROP FEATURE"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_change_that_a_log_cannot_follow_stops_the_landing_with_the_way_out(
    table: Table, change: Any, problem: str, way_out: str
) -> None:
    table.append(1, 2)
    table.log.land()
    change(table)
    refused = table.refusal()
    assert re.search(problem, refused.message), refused.message
    assert way_out in refused.hint
    assert table.keys() == [1, 2]


def test_a_restore_stops_the_landing_although_it_only_adds_files(table: Table) -> None:
    table.append(1, 2)
    table.delta.delete("k = 2")
    table.log.land()
    restore(table)
    assert "was restored to an older version by version 2" in table.refusal().message
    other = TableLog(table.open)
    other.land()
    assert sorted(other.column("k")) == [1, 2]


def test_a_restore_is_named_although_the_restored_table_lacks_a_column(table: Table) -> None:
    table.append(1)
    wider = pa.table({"k": [2], "v": ["b"], "n": pa.array([5], pa.int32())})
    write_deltalake(table.folder, wider, mode="append", schema_mode="merge")
    types = {**TYPES, "n": parse_type("int32")}
    table.log.land(types=types)
    restore(table)
    assert "was restored to an older version by version 2" in table.refusal(types=types).message


def test_a_change_of_rows_before_the_log_began_stops_nothing(table: Table) -> None:
    table.append(1, 2)
    delete(table)
    update(table)
    table.log.land()
    table.append(3)
    table.log.land()
    assert table.keys() == [1, 3]


def test_a_cleaned_commit_is_an_expired_position(table: Table) -> None:
    table.append(1)
    table.log.land()
    for key in (2, 3, 4):
        table.append(key)
    table.delta.create_checkpoint()
    table.log_file(1).unlink()
    with pytest.raises(PositionExpired, match=r"has the commit of version 1.*It still has .*\"version\": null"):
        table.log.land()
    table.log_file(0).unlink()
    with pytest.raises(PositionExpired, match=r"It still has \{[^}]*\"version\": 1\} to \{[^}]*\"version\": 3\}"):
        table.log.land()
    assert table.keys() == [1]


def test_a_vacuumed_file_is_an_expired_position(table: Table) -> None:
    table.append(1)
    table.log.land()
    table.append(2)
    table.append(3)
    table.delta.optimize.compact()
    table.delta.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(PositionExpired, match=r"no longer has the data file .*vacuumed"):
        table.log.land()
    assert table.log.records()[-1].total_rows == 1


def test_a_log_can_go_on_after_the_newest_commit_of_which_a_file_is_lost(table: Table) -> None:
    for key in range(5):
        table.append(key)
        if key == 0:
            table.log.land()
    for version in (1, 3):
        (file,) = [action["add"]["path"] for action in table.actions(version) if "add" in action]
        (table.folder / file).unlink()
    source: Any = table.open()
    resumed = source.resume_position("earliest", table.log.position)
    assert (resumed.position["version"], resumed.backlog.count) == (3, 1)
    latest = source.resume_position("latest", table.log.position)
    assert (latest.position, latest.passed) == (source._before(5).encode(), PassedFiles(4, 2))
    pull = table.open().next_pull(resumed.position)
    assert pull is not None and pull.end["version"] == 4


def test_a_gap_to_the_newest_commit_passes_no_known_delete(table: Table) -> None:
    table.append(1)
    table.log.land()
    table.append(2)
    (file,) = [action["add"]["path"] for action in table.actions(1) if "add" in action]
    (table.folder / file).unlink()
    table.delta.delete("k = 1")
    for where in ("earliest", "latest"):
        with pytest.raises(InvalidRequest, match="deleted or updated rows in version 2"):
            table.open().resume_position(where, table.log.position)


def test_doctor_counts_the_files_that_a_start_at_the_newest_commit_skips(table: Table) -> None:
    table.append(1)
    table.append(2)
    (note,) = table.open(start="latest").notes(None)
    assert note.text == "data files that `start: latest` skips: 2" and not note.is_warning
    table.log.land(start="latest")
    assert table.open(start="latest").notes(table.log.position) == table.open().notes(None) == ()


def reserve(table: Table, mode: str) -> None:
    """Let a job write the table with this mode."""
    owner = TableOwner("totals", "a1b2c3", "by_user")
    store = open_store(StoreConfig(file_url(table.folder)))
    store.put(RESERVATION, encode(new_reservation(owner, "delta", mode, ("k",) if mode == "upsert" else ())))


@copied_and_by_reference
def test_a_table_that_a_job_upserts_into_is_refused_before_the_first_record(table: Table) -> None:
    table.append(1)
    for mode in ("append", "changelog"):
        reserve(table, mode)
        assert table.open().initial_position() and table.open().notes(None) == ()
    reserve(table, "upsert")
    refused = table.refusal()
    assert "has mode: upsert: job totals replaces and deletes its rows" in refused.message
    assert "`format: milepost`" in refused.hint
    assert table.log.log.newest() is None


def test_a_log_of_a_table_that_a_job_upserts_into_goes_on_with_a_warning(table: Table) -> None:
    table.append(1)
    table.log.land()
    reserve(table, "upsert")
    table.append(2)
    table.log.land()
    assert table.keys() == [1, 2]
    (note,) = table.open().notes(table.log.position)
    assert note.is_warning and "job totals writes it with mode: upsert" in note.text


def test_a_gap_in_an_initial_copy_passes_the_files_up_to_the_newest_that_is_lost(table: Table) -> None:
    for key in (1, 2, 3, 4):
        table.append(key)
    source = table.open(max_bytes=1)
    first = source.next_pull(source.initial_position())
    assert first is not None and first.end is not None and first.behind
    files = [Path(file.uri.removeprefix("file://")) for file in source._initial or []]
    table.append(5)
    assert table.open().resume_position("earliest", first.end).position == first.end
    files[2].unlink()
    resumed = table.open().resume_position("earliest", first.end)
    assert (resumed.position["initial"], resumed.position["file"], resumed.passed) == (3, 3, PassedFiles(2, 1))
    assert resumed.behind
    files[3].unlink()
    resumed = table.open().resume_position("earliest", first.end)
    assert (resumed.position["version"], resumed.position["file"], resumed.passed) == (3, None, PassedFiles(3, 2))
    assert not resumed.behind


def test_an_initial_copy_whose_version_was_cleaned_is_an_expired_position(table: Table) -> None:
    for key in (1, 2):
        table.append(key)
    source = table.open(max_bytes=1)
    first = source.next_pull(source.initial_position())
    assert first is not None and first.end is not None and first.behind
    for key in (3, 4):
        table.append(key)
    assert table.open(max_bytes=1).next_pull(first.end) is not None
    table.delta.create_checkpoint()
    for version in (0, 1, 2):
        table.log_file(version).unlink()
    with pytest.raises(PositionExpired, match="can no longer be read as of version 1"):
        table.open(max_bytes=1).next_pull(first.end)


def test_a_log_that_was_cleaned_after_it_was_read_stops_nothing(table: Table) -> None:
    for key in (1, 2):
        table.append(key)
    table.log.land()
    table.delta.create_checkpoint()
    table.log_file(0).unlink()
    assert table.log.land().rows == 0
    table.append(3)
    table.log_file(1).unlink()
    table.log.land()
    assert sorted(table.keys()) == [1, 2, 3]


def test_another_table_at_the_path_is_another_source(table: Table) -> None:
    table.append(1)
    table.log.land()
    shutil.rmtree(table.folder)
    table.append(2)
    with pytest.raises(SourceReplaced, match="its log was begun for table"):
        table.log.land()


def test_a_table_that_was_moved_is_the_same_source(table: Table) -> None:
    table.append(1)
    table.log.land()
    table.folder = table.folder.rename(table.folder.with_name("moved"))
    table.append(2)
    table.log.land()
    assert table.keys(since=2) == [2]


def test_a_table_that_was_restored_from_an_older_copy_went_back(table: Table) -> None:
    table.append(1)
    shutil.copytree(table.folder, table.folder.with_name("copy"))
    table.append(2)
    table.log.land()
    shutil.rmtree(table.folder)
    shutil.copytree(table.folder.with_name("copy"), table.folder)
    with pytest.raises(SourceWentBack, match="is at version 0, and 1 was landed"):
        table.log.land()
    table.append(7)
    with pytest.raises(SourceWentBack, match="has another commit of version 1"):
        table.log.land()
    table.append(8)
    with pytest.raises(SourceWentBack, match="has another commit of version 1"):
        table.log.land()
    assert table.log.records()[-1].total_rows == 2


def test_the_newest_true_position_ends_with_a_commit_that_the_table_still_has(table: Table) -> None:
    for key in range(3):
        table.append(key)
        table.log.land()
        if key == 1:
            shutil.copytree(table.folder, table.folder.with_name("copy"))
    ends = [record.end for record in reversed(table.log.records())]
    shutil.rmtree(table.folder)
    shutil.copytree(table.folder.with_name("copy"), table.folder)
    for key in (7, 8):
        source: Any = table.open()
        newest = source.newest_true(ends)
        assert ends[newest]["version"] == 1, "everything up to version 1 is read"
        assert source.newest_true(ends[:newest]) is None
        table.append(key)
    source = table.open()
    with (
        patch.object(type(source.log), "body", lambda log, version: None),
        pytest.raises(InvalidRequest, match="no longer has the commit of version 2, so whether it is the one"),
    ):
        source.newest_true(ends)


def test_a_folder_without_a_table_is_refused(table: Table) -> None:
    assert "does not exist" in table.refusal().message
    table.folder.mkdir()
    (table.folder / "rows.parquet").write_bytes(b"x")
    assert "does not exist" in table.refusal().message


def test_a_commit_or_a_file_that_is_not_readable_is_named(table: Table) -> None:
    table.append(1)
    table.log.land()
    table.append(2)
    (file,) = [action["add"]["path"] for action in table.actions(1) if "add" in action]
    (table.folder / file).write_bytes(b"PAR1 is not enough")
    assert f"has a data file {file} that is not readable as Parquet" in table.refusal().message


@pytest.mark.parametrize(
    "actions",
    [
        [{"add": {"dataChange": True}}],
        [{"add": "everything"}],
        [{"add": {"path": 5, "size": "many", "dataChange": True}}],
        [{"metaData": {"schemaString": "no json"}}],
        [{"protocol": {}}],
        [{"remove": []}],
    ],
    ids=str,
)
def test_a_commit_that_does_not_follow_the_protocol_is_refused(table: Table, actions: list[dict[str, Any]]) -> None:
    source: Any = table.open()
    with pytest.raises(InvalidRequest, match="does not follow Delta's protocol"):
        source.rows.appended(1, actions)


def test_a_declared_column_that_the_table_does_not_have_is_refused_by_name(table: Table) -> None:
    table.append(1)
    refused = table.refusal(types={"k": parse_type("int64"), "V": parse_type("string")})
    assert "has no column V; its columns: k, v" in refused.message


def test_a_row_without_an_event_time_is_refused(table: Table) -> None:
    rows = pa.table({"at": pa.array([datetime(2026, 3, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC"))})
    write_deltalake(table.folder, rows)
    with pytest.raises(InvalidRequest, match="row 2, column at"):
        table.log.land(types={"at": parse_type("timestamp[us, UTC]")}, event_time=EventTimeSpec(column="at"))


@pytest.mark.deep
def test_nested_columns_and_wide_files_are_as_duckdb_reads_them(table: Table) -> None:
    rows = pa.table(
        {
            "k": list(range(40_000)),
            "tags": pa.array([[str(number), None] for number in range(40_000)], pa.list_(pa.string())),
            "who": pa.array([{"id": number, "name": f"n{number}"} for number in range(40_000)]),
        }
    )
    write_deltalake(table.folder, rows, commit_properties=CommitProperties({"by": "test"}))
    types = {
        "k": parse_type("int64"),
        "tags": parse_type("list<string>"),
        "who": parse_type("struct<id: int64, name: string>"),
    }
    table.log.land(types=types)
    files = str(table.folder / "*.parquet")
    expected = duckdb.sql("SELECT * FROM read_parquet($files) ORDER BY k", params={"files": files}).to_arrow_table()
    assert table.log.rows() == expected.to_pylist()


def test_a_table_without_rows_is_landed_once_it_has_some(table: Table) -> None:
    DeltaTable.create(table.folder, pa.schema([("k", pa.int64()), ("v", pa.string())]))
    table.log.land()
    assert table.keys() == []
    table.append(1)
    table.log.land()
    assert table.keys() == [1]


def test_a_feature_in_a_commit_that_is_no_longer_in_force_is_refused_as_well(table: Table) -> None:
    table.append(1)
    table.log.land()
    (protocol,) = [action for action in table.actions(0) if "protocol" in action]
    unknown_feature(table)
    table.commit(protocol, version=2)
    refused = table.refusal()
    assert "uses the Delta features teleport in version 1" in refused.message
    assert "DROP FEATURE teleport" in refused.hint


def test_a_table_whose_log_lost_a_commit_is_refused(table: Table) -> None:
    for key in (1, 2, 3):
        table.append(key)
    table.log_file(1).unlink()
    refused = table.refusal()
    assert "cannot be opened" in refused.message and "the engine that wrote it" in refused.hint


def test_a_table_with_deletion_vectors_cannot_begin_a_log_with_its_rows(table: Table) -> None:
    table.append(1, 2, 3)
    (added,) = [action["add"] for action in table.actions(0) if "add" in action]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    table.commit(
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": added["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**added, "deletionVector": deletion_vector_of(1)}},
    )
    refused = table.refusal()
    assert "has data files with deleted rows" in refused.message
    assert "REORG TABLE" in refused.hint and "start: latest" in refused.hint
    log = TableLog(table.open)
    log.land(start="latest")
    table.commit({"add": {**added, "path": "more.parquet"}})
    shutil.copy(table.folder / added["path"], table.folder / "more.parquet")
    log.land(start="latest")
    assert log.column("k") == [1, 2, 3]


def test_a_table_that_may_have_deletion_vectors_and_has_none_is_read(table: Table) -> None:
    table.append(1)
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    table.commit({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    table.log.land()
    assert table.keys() == [1]


class MappedTable(Table):
    """A table that maps the names of its columns, written as the protocol has it. `names`: logical -> physical."""

    def __init__(self, folder: Path, mode: str, **names: str) -> None:
        super().__init__(folder)
        self.mode, self.names, self.ids = mode, names, {name: number for number, name in enumerate(names, 1)}
        self.log_file(0).parent.mkdir(parents=True)
        self.log_file(0).write_text("")
        protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
        self.commit(protocol, self.metadata(), version=0)

    def metadata(self) -> dict[str, Any]:
        fields = [
            {
                "name": name,
                "type": "string" if name == "v" else "long",
                "nullable": True,
                "metadata": {
                    "delta.columnMapping.id": self.ids[name],
                    "delta.columnMapping.physicalName": physical,
                },
            }
            for name, physical in self.names.items()
        ]
        return {
            "metaData": {
                "id": "6f0e6b3e-0000-4000-8000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": ["p"],
                "configuration": {"delta.columnMapping.mode": self.mode, "delta.columnMapping.maxColumnId": "9"},
                "createdTime": 0,
            }
        }

    def rename(self, name: str, other: str) -> None:
        self.names = {other if each == name else each: physical for each, physical in self.names.items()}
        self.ids[other] = self.ids.pop(name)
        self.commit(self.metadata())

    def replace_column(self, name: str, physical: str) -> None:
        """Drop a column, and add another one of its name."""
        self.names[name], self.ids[name] = physical, 9
        self.commit(self.metadata())

    def add(self, p: int, **columns: list[Any]) -> None:
        """Append a file with these columns. In it they have other names, and ids if these count."""
        arrays = [pa.array(values) for values in columns.values()]
        named = [self.names[name] if self.mode == "name" else f"file-{name}" for name in columns]
        ids = [self.ids[name] if self.mode == "id" else 77 - at for at, name in enumerate(columns)]
        fields = [
            pa.field(name, array.type, metadata={"PARQUET:field_id": str(number)})
            for name, array, number in zip(named, arrays, ids, strict=True)
        ]
        file = f"x{self.delta.version()}/part.parquet"
        (self.folder / file).parent.mkdir()
        pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), self.folder / file)
        size = (self.folder / file).stat().st_size
        partition = {"partitionValues": {self.names["p"]: str(p)}, "modificationTime": self.delta.version()}
        self.commit({"add": {"path": file, "size": size, "dataChange": True, **partition}})


MAPPED = {"k": parse_type("int64"), "v": parse_type("string"), "p": parse_type("int64")}


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("is_initial", [True, False])
def test_mapped_columns_are_read_by_what_identifies_them_also_after_a_rename(
    tmp_path: Path, mode: str, is_initial: bool
) -> None:
    table = MappedTable(tmp_path / "orders", mode, old="col-1", v="col-2", p="col-3")
    start: dict[str, Any] = {"types": MAPPED, "start": "earliest" if is_initial else 0}
    table.add(7, old=[1, 2], v=["a", "b"])
    table.rename("old", "k")
    table.add(8, k=[3], v=["c"])
    table.replace_column("v", "col-4")
    table.add(9, k=[4], v=["d"])
    table.log.land(**start)
    assert table.log.rows() == [
        {"k": 1, "v": None, "p": 7},
        {"k": 2, "v": None, "p": 7},
        {"k": 3, "v": None, "p": 8},
        {"k": 4, "v": "d", "p": 9},
    ]


def test_fields_within_a_mapped_column_are_refused(tmp_path: Path) -> None:
    table = MappedTable(tmp_path / "orders", "name", k="col-1", p="col-2")
    (state,) = [action["metaData"] for action in table.actions(0) if "metaData" in action]
    mapped = {"delta.columnMapping.id": 8, "delta.columnMapping.physicalName": "col-8"}
    inner = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": mapped}]}
    schema = json.loads(state["schemaString"])
    schema["fields"][0]["type"] = inner
    table.commit({"metaData": {**state, "schemaString": json.dumps(schema)}})
    refused = table.refusal(types={"k": parse_type("struct<a: int64>")})
    assert "does not map those within k" in refused.message and "without column mapping" in refused.hint


@copied_and_by_reference
def test_a_large_commit_is_read_once_for_all_of_its_records(
    table: Table, by_reference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append(0)
    table.log.land()
    monkeypatch.setattr(pulls, "REFERENCED_FILES", 2)
    table.append(1)
    (added,) = [action["add"] for action in table.actions(1) if "add" in action]
    table.commit(*({"add": added} for _ in range(5)))
    appended, read = DeltaRows.appended, []

    def counted(self: DeltaRows, version: int, actions: Any) -> Any:
        read.append(version)
        return appended(self, version, actions)

    monkeypatch.setattr(DeltaRows, "appended", counted)
    table.log.land()
    assert read == [1, 2]
    records = table.log.records()[2:]
    assert table.keys(since=2) == [1] * 6
    assert [record.file_count for record in records] == ([2, 2, 2] if by_reference else [1])
    assert [record.backlog.count for record in records if record.backlog] == ([1, 1, 0] if by_reference else [0])
