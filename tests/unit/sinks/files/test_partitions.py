"""Partitioned tables: one value per file, stated in the log, so that engines skip files and read every row right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, IsNull

from milepost.errors import InvalidRequest
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.sinks.parquet_files.partition_values import partition_text, partition_value
from milepost.sinks.parquet_files.partitions import (
    MAX_PARTITIONS,
    PartitionBy,
    split_by_values,
)
from milepost.sinks.staging import small_files
from milepost.tables.records.committables import RowsPiece, StagingContext
from milepost_testkit import wording
from milepost_testkit.readers.reading_engines import ENGINES, EVERY_ENGINE, ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows
from tests.conformance.sinks.contract.case import SinkCase, Story, rows
from tests.conformance.sinks.contract.sink import SinkTests
from tests.conformance.sinks.contract.timelines import SinkTimelineTests
from tests.conformance.sinks.formats.delta_sink import DeltaCase
from tests.conformance.sinks.formats.iceberg_sink import TABLE, IcebergCase

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), [None, "a", "a b/c=%41ä?#&+\n\"'", "__HIVE_DEFAULT_PARTITION__", "null", "x" * 300, " "]),
    "small": (pa.int32(), [None, -(2**31), 0, 2**31 - 1]),
    "whole": (pa.int64(), [None, -(2**63), 0, 2**63 - 1]),
    "flag": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [None, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2024, 2, 29, 1, 2, 3, 456_789, UTC)],
    ),
    "local": (
        pa.timestamp("us"),
        [None, *map(datetime.fromisoformat, ("1900-01-01", "2024-02-29T01:02:03.456789"))],
    ),
}

KINDS = ("text", "whole", "at")
"""Of these types each has a text of its own kind; the others are written alike."""
"""Column -> its type and values."""


class Placed(SinkCase):
    def store_config(self, root: Path, part: str) -> StoreConfig:
        return StoreConfig(file_url(root / part))


class Delta(Placed, DeltaCase):
    partition = PartitionBy(("v",), takes_empty_text=False)


class Iceberg(Placed, IcebergCase):
    partition = PartitionBy(("v",), takes_empty_text=True)


class TestDelta(Delta, SinkTimelineTests, SinkTests):
    """The whole contract, by a column of text."""


@pytest.mark.deep
class TestIceberg(Iceberg, SinkTimelineTests, SinkTests):
    """The same."""


CASES: list[SinkCase] = [Delta(), Iceberg()]


@pytest.fixture(params=CASES, ids=lambda case: case.format_name)
def case(request: pytest.FixtureRequest) -> SinkCase:
    found = type(request.param)()
    assert isinstance(found, SinkCase)
    return found


def schema_of(column: str) -> pa.Schema:
    return pa.schema([("k", pa.int64()), ("v", VALUES[column][0]), ("n", pa.int64())])


def table_of(column: str) -> pa.Table:
    """Two rows of each value, mixed."""
    data_type, values = VALUES[column]
    twice = [*values, *reversed(values)]
    number = list(range(len(twice)))
    return pa.table([number, pa.array(twice, data_type), number], schema=schema_of(column))


def by_others(case: SinkCase, root: Path, engines: ReadingEngines, where: Any = ()) -> Iterator[tuple[str, pa.Table]]:
    """What each reader that is not ours sees.

    Args:
        where: a value of `v` to filter by; (): all rows.
    """
    store = case.table_store(root)
    if isinstance(case, IcebergCase):
        table = SqlCatalog("milepost", uri=case.catalog_uri(store)).load_table(TABLE)
        asked = {} if where == () else {"row_filter": IsNull("v") if where is None else EqualTo("v", where)}
        yield "pyiceberg", table.scan(**asked).to_arrow()
        locations = {"duckdb": table.metadata_location}
    else:
        opened = DeltaTable(str(root / "table"))
        found = pa.table(opened.to_pyarrow_table())
        yield "deltalake", found
        locations = dict.fromkeys(ENGINES, root / "table")
    for engine, location in locations.items():
        text = None if where in ((), None) else ("v", "=", str(partition_text(where)).replace("'", "''"))
        if engine == "polars" and text is not None:
            text = ("v", "=", str(where))
        yield engine, engines.read(engine, location, table_format=case.format_name, where=text)


@pytest.mark.long
@pytest.mark.parametrize(
    "column",
    [name if name in ("text", "at") else pytest.param(name, marks=pytest.mark.deep) for name in VALUES],
)
def test_every_reader_sees_each_value_as_it_was(
    case: SinkCase, column: str, tmp_path: Path, reading_engines: ReadingEngines
) -> None:
    """Contract 1: null, special characters, both ends of dates and numbers; back and forth, and joined."""
    job, rows = case.begin(tmp_path), table_of(column)
    first = job.publish(rows, schema=rows.schema)
    assert len(job.sink.files(first.contents)) == len(VALUES[column][1])
    for _ in range(small_files.GROWTH + 1):
        last = job.publish(rows, schema=rows.schema)
    files = job.sink.files(last.contents)
    assert any(file.rows_of for file in files) and len(files) < 4 * len(VALUES[column][1])
    assert all(len({*part.column("v").to_pylist()}) == 1 for part in parts(case, tmp_path))
    every = pa.concat_tables([rows] * (small_files.GROWTH + 2))
    for engine, found in by_others(case, tmp_path, reading_engines):
        assert_same_rows(
            found.select(["k", "v"]).cast(every.select(["k", "v"]).schema), every.select(["k", "v"]), engine
        )
    job.back_to(first)
    for engine, found in by_others(case, tmp_path, reading_engines):
        assert_same_rows(found.cast(rows.schema), rows, engine)


@pytest.mark.deep
@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_an_engine_reads_text_and_times_of_partitions(
    engine: str, tmp_path: Path, reading_engines: ReadingEngines
) -> None:
    """Spark takes the values from the log, and times without a zone for those of its session."""
    for column in ("text", "day", "at", "local"):
        job, rows = Delta().begin(tmp_path / column), table_of(column)
        job.publish(rows, schema=rows.schema)
        found = reading_engines.read(engine, tmp_path / column / "table")
        assert_same_rows(found.cast(rows.schema), rows, column)


def parts(case: SinkCase, root: Path) -> Iterator[pa.Table]:
    """The rows of each live file."""
    sink = case.open_sink(root)
    contents = sink.position().contents
    assert contents is not None
    for file in sink.files(contents):
        body = case.table_store(root).get(file.key)
        yield pq.read_table(pa.BufferReader(body))


@pytest.mark.deep
@pytest.mark.parametrize("column", ["text", "whole", "day"])
def test_readers_that_ask_for_a_value_see_its_rows_alone(
    case: SinkCase, column: str, tmp_path: Path, reading_engines: ReadingEngines
) -> None:
    """Contract 1: a wrongly stated value would lose rows for readers that filter."""
    job, rows = case.begin(tmp_path), table_of(column)
    job.publish(rows, schema=rows.schema)
    for value in VALUES[column][1][1:]:
        if isinstance(value, str) and not value.isalpha():
            continue
        expected = rows.filter(pc.equal(rows.column("v"), pa.scalar(value, rows.schema.field("v").type)))
        for engine, found in by_others(case, tmp_path, reading_engines, value):
            if engine != "deltalake":
                assert_same_rows(found.cast(rows.schema), expected, f"{engine} {value}")


def test_delta_says_the_value_of_each_file_and_pyiceberg_plans_the_files_of_one_alone(tmp_path: Path) -> None:
    for case in CASES:
        job = case.begin(tmp_path / case.format_name)
        job.publish(rows((1, "a"), (2, "b"), (3, "a")))
    added = pa.table(DeltaTable(str(tmp_path / "delta" / "table")).get_add_actions()).to_pylist()
    assert sorted((one["partition"]["v"], one["num_records"]) for one in added) == [("a", 2), ("b", 1)]
    iceberg = CASES[1]
    assert isinstance(iceberg, IcebergCase)
    uri = iceberg.catalog_uri(iceberg.table_store(tmp_path / "iceberg"))
    table = SqlCatalog("milepost", uri=uri).load_table(TABLE)
    planned = [task.file.record_count for task in table.scan(row_filter=EqualTo("v", "b")).plan_files()]
    assert planned == [1]


def test_an_empty_text_is_refused_in_delta_where_it_is_null_and_kept_in_iceberg(
    tmp_path: Path, reading_engines: ReadingEngines
) -> None:
    delta, iceberg = CASES
    job = delta.begin(tmp_path / "delta")
    with wording.raises(InvalidRequest) as refused:
        job.publish(rows((1, ""), (2, "b")))
    assert "NULLIF" in refused.value.hint and delta.published(tmp_path / "delta") == []
    iceberg.begin(tmp_path / "iceberg").publish(rows((1, ""), (2, "b")))
    for engine, found in by_others(iceberg, tmp_path / "iceberg", reading_engines):
        assert sorted(found.column("v").to_pylist()) == ["", "b"], engine


def test_more_values_than_files_are_good_for_are_refused(case: SinkCase, tmp_path: Path) -> None:
    job = case.begin(tmp_path)
    with wording.raises(InvalidRequest) as refused:
        job.publish(rows(*((key, str(key)) for key in range(MAX_PARTITIONS + 1))))
    assert str(MAX_PARTITIONS) in str(refused.value)
    assert "limits_per_epoch" in refused.value.hint


@pytest.mark.parametrize(
    ("value", "data_type", "said"),
    [
        (253_402_300_800_000_000, pa.timestamp("us", "UTC"), "10000-01-01T00:00:00.000000"),
        (-62_135_596_800_000_001, pa.timestamp("us"), "0000-12-31T23:59:59.999999"),
        (2_932_897, pa.date32(), "10000-01-01"),
    ],
)
def test_a_time_that_no_log_can_say_is_refused_by_name(
    case: SinkCase, tmp_path: Path, value: int, data_type: pa.DataType, said: str
) -> None:
    """Spark has years up to 294247, and the text of a partition those of four digits."""
    schema = pa.schema([("k", pa.int64()), ("v", data_type)])
    whole = pa.int32() if pa.types.is_date(data_type) else pa.int64()
    far = pa.table([pa.array([1, 2]), pa.array([0, value], whole).cast(data_type)], schema=schema)
    job = case.begin(tmp_path)
    with wording.raises(InvalidRequest) as refused:
        job.publish(far, schema=schema)
    assert said in refused.value.message
    assert refused.value.details["column"] == "v" and case.published(tmp_path) == []
    job.publish(far.slice(0, 1), schema=schema)


@pytest.mark.parametrize("column", ["missing", "f"])
def test_columns_that_cannot_part_rows_are_refused(case: SinkCase, tmp_path: Path, column: str) -> None:
    case.partition = PartitionBy((column,), takes_empty_text=True)
    schema = pa.schema([("k", pa.int64()), ("f", pa.float64())])
    with wording.raises(InvalidRequest):
        case.begin(tmp_path).publish(rows((1, 0.5), schema=schema), schema=schema)


def test_another_partition_by_for_a_table_that_is_there_is_refused(case: SinkCase, tmp_path: Path) -> None:
    """Nothing of its files could be what the new key says; the way out is to say it as it was, or another table."""
    job = case.begin(tmp_path)
    job.publish(rows((1, "a")))
    for columns in ((), ("k",), ("k", "v")):
        case.partition = PartitionBy(columns, takes_empty_text=False) if columns else None
        again = Story(case.open_sink(tmp_path), job.manifest)
        with wording.raises(InvalidRequest) as refused:
            again.publish(rows((2, "b")))
        assert "['v']" in refused.value.hint


def test_a_table_that_comes_from_elsewhere_must_be_partitioned_alike(case: SinkCase, tmp_path: Path) -> None:
    """A savepoint's files name their columns, so values never come under another one."""
    job = case.begin(tmp_path)
    (file,) = job.sink.files(job.publish(rows((1, "a"))).contents)
    assert job.sink.import_key(file, 0, checkpoint_id=2, token=1).endswith(f"0-{file.sha256}.parquet")
    for partition in ((), (("k", "a"),)):
        with wording.raises(InvalidRequest):
            job.sink.import_key(replace(file, partition=partition), 0, checkpoint_id=2, token=1)


def test_rows_of_a_large_epoch_wait_within_the_budget_and_are_in_order_within_their_partition(tmp_path: Path) -> None:
    """A partition may have several files of one epoch, which later ones join."""
    case = Delta()
    job = case.begin(tmp_path)
    pieces = [rows(*((key, "ab"[key % 2]) for key in range(start, start + 100))) for start in range(0, 2000, 100)]
    files = job.sink.stage_pieces(map(RowsPiece, pieces), StagingContext(1, 1, 0, 3 * pieces[0].nbytes)).files
    assert len(files) > 4 and sum(file.rows for file in files) == 2000
    for value in "ab":
        own = [file for file in files if file.partition == (("v", value),)]
        keys = [key for file in own for key in read(case, tmp_path, file.key).column("k").to_pylist()]
        assert keys == [key for key in range(2000) if "ab"[key % 2] == value]


def read(case: SinkCase, root: Path, key: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(case.table_store(root).get(key)))


def test_what_an_engine_put_together_keeps_its_partition(tmp_path: Path) -> None:
    """Contract 7: going back and forth over it takes the engine's files out and puts them in again."""
    case = Delta()
    job = case.begin(tmp_path)
    job.publish(rows((1, "a"), (2, "b")))
    first = job.publish(rows((3, "a"), (4, "b")))
    DeltaTable(str(tmp_path / "table")).optimize.compact()
    second = job.publish(rows((5, "a")))
    assert {file.partition for file in job.sink.files(second.contents)} == {(("v", "a"),), (("v", "b"),)}
    job.back_to(first)
    job.back_to(second)
    found = pa.table(DeltaTable(str(tmp_path / "table")).to_pyarrow_table())
    assert sorted(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == case.published(tmp_path)


@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b", ""]), st.sampled_from([None, 0, 1])), max_size=40),
)
def test_rows_are_split_by_all_values_together_in_their_order(values: list[tuple[str | None, int | None]]) -> None:
    table = pa.table(
        {
            "p": pa.array([one for one, _ in values], pa.string()),
            "q": pa.array([other for _, other in values], pa.int64()),
            "n": pa.array(range(len(values)), pa.int64()),
        }
    )
    found = {(part["p"][0].as_py(), part["q"][0].as_py()): part for part in split_by_values(table, ("p", "q"))}
    assert sum(part.num_rows for part in found.values()) == len(values)
    for both, part in found.items():
        assert part.column("n").to_pylist() == [at for at, value in enumerate(values) if value == both]


@pytest.mark.parametrize("column", VALUES)
def test_a_value_is_its_text_and_back(column: str) -> None:
    data_type, values = VALUES[column]
    assert [partition_value(partition_text(value), data_type) for value in values] == values
