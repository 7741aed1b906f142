"""An object larger than what is held is read in parts, each of the planned version, and gives the same rows."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from milepost.errors import CommitConflict
from milepost.language.types import parse_type
from milepost.protocol.exchange.barrier import SubtaskIdentity
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.sources.contract import BadRecord, ObjectPart, ObjectReader, PartReader, SourceObject, whole_object
from milepost.sources.csv.csv_reader import CsvReader
from milepost.sources.json_lines.json_lines_reader import JsonLinesReader
from milepost.sources.kernel import streams
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.parquet import parquet_reader
from milepost.sources.parquet.parquet_reader import ParquetReader
from milepost.spark.task.source_task import SourceSplit, run_source
from milepost.spark.wire.task_output import Declined, OperatorStageEnd, Rows
from milepost.spark.worker.task_memory import task_memory
from milepost.spark.worker.task_metrics import TaskMetrics
from milepost.storage.local.store import LocalStore
from milepost_testkit.stores.called_store import CalledStore, T

ROWS = 100_000
TABLE = pa.table({"k": pa.array(range(ROWS)), "t": pa.array([f"text {number}" for number in range(ROWS)])})
DECLARED = DeclaredColumns("s", {"k": parse_type("int64"), "t": parse_type("string")})
HELD = 70_000


class Largest(CalledStore):
    """Records the largest body that was returned, and the requests."""

    def __init__(self, inner: LocalStore) -> None:
        self.inner = inner
        self.largest = self.requests = 0
        self.before: Callable[[int], None] = lambda _: None

    def _call(self, operation: str, key: str, act: Callable[[], T]) -> T:
        if operation == "get":
            self.before(self.requests)
            self.requests += 1
        found = act()
        if isinstance(found, bytes):
            self.largest = max(self.largest, len(found))
        return found


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_WHOLE_READ_BYTES", HELD)
    monkeypatch.setattr(streams, "_BLOCK", HELD)
    monkeypatch.setattr(parquet_reader, "_COLUMN_BYTES", HELD)
    monkeypatch.setattr(streams, "_CHUNK", HELD // 2)


@pytest.fixture
def store(tmp_path: Path) -> Largest:
    return Largest(LocalStore(StoreConfig(url=tmp_path.as_uri())))


def csv_body() -> bytes:
    sink = pa.BufferOutputStream()
    pacsv.write_csv(TABLE, sink)
    return sink.getvalue().to_pybytes()


def json_body() -> bytes:
    return "".join(f'{{"k": {row["k"]}, "t": "{row["t"]}"}}\n' for row in TABLE.to_pylist()).encode()


def parquet_body() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink, row_group_size=10_000, compression="none", use_dictionary=False)
    return sink.getvalue().to_pybytes()


def landed(store: Largest, key: str, body: bytes) -> SourceObject:
    stat = store.inner.put(key, body)
    return SourceObject(key, stat.etag, stat.size, stat.last_modified_ms)


each_format = pytest.mark.parametrize(
    ("key", "body", "reader"),
    [
        ("a.csv", csv_body, CsvReader(DECLARED)),
        ("a.csv.gz", lambda: gzip.compress(csv_body()), CsvReader(DECLARED)),
        ("a.json", json_body, JsonLinesReader(DECLARED)),
        ("a.parquet", parquet_body, ParquetReader(DECLARED)),
    ],
    ids=["csv", "compressed csv", "json", "parquet"],
)


@pytest.mark.deep
@each_format
def test_no_request_exceeds_one_block(
    store: Largest, key: str, body: Callable[[], bytes], reader: ObjectReader
) -> None:
    obj = landed(store, key, body())
    assert obj.size > 3 * HELD
    assert pa.Table.from_batches(reader.read_part(store, whole_object(obj))).equals(TABLE)
    assert store.requests > 3
    assert 0 < store.largest <= 2 * HELD, "a page of Parquet may follow what was buffered"


@pytest.mark.parametrize(("key", "body"), [("a.csv", csv_body), ("a.parquet", parquet_body)], ids=["csv", "parquet"])
def test_an_object_that_changes_between_two_parts_is_refused(
    store: Largest, key: str, body: Callable[[], bytes]
) -> None:
    """Rows of two versions are never mixed: the read ends where the version does."""
    content = body()
    obj = landed(store, key, content)
    store.before = lambda count: None if count != 3 else store.inner.put(key, content) and None
    reader = CsvReader(DECLARED) if key == "a.csv" else ParquetReader(DECLARED)
    with pytest.raises(CommitConflict):
        list(reader.read_part(store, whole_object(obj)))


@each_format
def test_an_object_that_is_still_written_while_it_is_read_declines_the_epoch(
    store: Largest, tmp_path: Path, key: str, body: Callable[[], bytes], reader: ObjectReader
) -> None:
    """Size and time are compared after each part, the last one included: no half of a file is ever all of it."""
    obj = landed(store, key, body())
    list(reader.read_part(store, whole_object(obj)))
    last = store.requests - 1

    def grow(count: int) -> None:
        if count == last:
            with (tmp_path / key).open("ab") as file:
                file.write(b"\n")

    store.requests, store.before = 0, grow
    end = answers(store, [obj], reader)[-1]
    assert isinstance(end, Declined)
    assert end.decline.reason == CheckpointFailureReason.SOURCE_OBJECT_CHANGED


@pytest.mark.deep
def test_a_bad_record_of_a_large_object_is_found_by_its_line(store: Largest) -> None:
    lines = csv_body().split(b"\n")
    lines[75_000] = b"x,bad"
    obj = landed(store, "a.csv", b"\n".join(lines))
    with pytest.raises(BadRecord) as caught:
        list(CsvReader(DECLARED).read_part(store, whole_object(obj)))
    assert (caught.value.line, caught.value.column) == (75_001, "k")
    assert store.largest <= HELD


def answers(
    store: Largest, objects: list[SourceObject], reader: PartReader
) -> list[Rows | Declined | OperatorStageEnd]:
    """What a source subtask hands on with `on_missing: skip`, in order."""
    identity = SubtaskIdentity(CheckpointId(1), FencingToken(1), 0, 0)
    split = SourceSplit(
        "s", identity, store.config, tuple(map(whole_object, objects)), reader, None, skips_missing=True
    )
    with task_memory(store.config.url.removeprefix("file://")) as memory:
        found = list(run_source(split, store, TaskMetrics(0, 0, 0), memory))
    return [item for item in found if isinstance(item, Rows | Declined | OperatorStageEnd)]


@dataclass
class Going:
    """A reader whose object is deleted, and is found to be, once a batch of it was emitted."""

    inner: PartReader
    store: ObjectStore

    @property
    def schema(self) -> pa.Schema:
        return self.inner.schema

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        yield next(iter(self.inner.read_part(store, part)))
        self.store.delete([part.object.key])
        yield from self.inner.read_part(store, part)


@each_format
def test_an_object_deleted_while_it_is_read_is_never_skipped(
    store: Largest, key: str, body: Callable[[], bytes], reader: ObjectReader
) -> None:
    """It stays new and is read whole when it is back: otherwise its emitted rows would be published twice."""
    obj = landed(store, key, body())
    end = answers(store, [obj], Going(reader, store.inner))[-1]
    assert isinstance(end, Declined)
    assert end.decline.reason == CheckpointFailureReason.SOURCE_OBJECT_MISSING
    assert f"object {key}" in end.decline.detail


@pytest.mark.deep
@each_format
def test_an_object_deleted_between_two_reads_is_declined_or_skipped_whole(
    store: Largest, key: str, body: Callable[[], bytes], reader: ObjectReader
) -> None:
    """`on_missing: skip`, and the store reports the deletion: a reader that has emitted rows acknowledges nothing.

    A reader may read ahead, so whether a row was emitted when it found out is not fixed.
    """
    obj = landed(store, key, body())
    assert isinstance(answers(store, [obj], reader)[-1], OperatorStageEnd)
    last = store.requests - 1

    def delete(count: int) -> None:
        if count == last:
            store.inner.delete([key])

    store.requests, store.before = 0, delete
    *rows, end = answers(store, [obj], reader)
    if isinstance(end, Declined):
        assert end.decline.reason == CheckpointFailureReason.SOURCE_OBJECT_MISSING
        assert key in end.decline.detail
    else:
        assert isinstance(end, OperatorStageEnd)
        assert (rows, end.ack["sources"]["s"]["missing"]) == ([], [key])


@pytest.mark.deep
@each_format
def test_an_object_deleted_before_any_row_was_emitted_is_skipped(
    store: Largest, key: str, body: Callable[[], bytes], reader: ObjectReader
) -> None:
    kept, gone = landed(store, f"kept-{key}", body()), landed(store, key, body())
    store.inner.delete([gone.key])
    *rows, end = answers(store, [kept, gone], reader)
    assert isinstance(end, OperatorStageEnd)
    assert end.ack["sources"]["s"]["missing"] == [key]
    assert pa.concat_tables(item.rows for item in rows).equals(TABLE)


def test_no_range_request_ends_beyond_the_planned_size(store: Largest) -> None:
    """Of an object that has grown, only what was planned is read; a store may refuse a range beyond its end."""
    content = csv_body()
    stat = store.inner.put("a.csv", content)
    stops: list[int] = []
    ranged = store.inner.get_range

    def get_range(key: str, etag: str, start: int, stop: int) -> bytes:
        stops.append(stop)
        return ranged(key, etag, start, stop)

    store.inner.get_range = get_range  # type: ignore[method-assign]
    planned = content.index(b"\n", HELD + 1_000) + 1
    obj = SourceObject("a.csv", stat.etag, planned, stat.last_modified_ms)
    read = pa.Table.from_batches(CsvReader(DECLARED).read_part(store, whole_object(obj)))
    assert read.equals(TABLE.slice(0, content[:planned].count(b"\n") - 1))
    assert len(stops) > 1 and max(stops) == planned
