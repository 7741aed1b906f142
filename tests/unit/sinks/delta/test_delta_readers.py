"""Engines that had no part in writing a Delta table see exactly its live rows, with filters and without."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.sinks.formats.delta.locations import delta_location
from milepost.tables.records.committables import StagedFile
from milepost_testkit.formats.delta_table import DeltaTableUnderTest, rows, write_id
from milepost_testkit.readers.reading_engines import EVERY_ENGINE, ReadingEngines, Where

LONG = "z" * 40
SMILE = "\U0001f600"
TIMES = [-62_135_596_800_000_000, -1, 0, 1_704_067_200_123_456, 1_704_067_200_123_999, 253_402_300_799_999_999]
ASKED_TIMES = [
    "0001-01-01 00:00:00",
    "1969-12-31 23:59:59.999999",
    "2024-01-01 00:00:00.123456",
    "2024-01-01 00:00:00.123999",
    "9999-12-31 23:59:59.999999",
]
VALUES: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {
    "i": (pa.int64(), [-(2**63), -7, 0, 3, 2**53 + 1, 2**63 - 1], ["-9223372036854775808", "0", "9007199254740993"]),
    "small": (pa.int8(), [-128, -1, 0, 1, 126, 127], ["-128", "0", "127"]),
    "f": (pa.float64(), [-math.inf, -0.0, 0.5, math.nan, 1e300, math.inf], ["0.5", "1e300", "0"]),
    "money": (pa.decimal128(38, 2), [Decimal("-1.01"), Decimal(0), Decimal(10) ** 30, *map(Decimal, (1, 2, 3))], []),
    "text": (
        pa.string(),
        ["", "a", 'ä\u0000\n"\\', LONG, LONG + "1", SMILE],
        ["a", LONG, LONG + "1", SMILE],
    ),
    "day": (
        pa.date32(),
        [-800_000, date.min, date(1969, 12, 31), date(1970, 1, 1), date.max, 4_000_000],
        ["0001-01-01", "1970-01-01", "9999-12-31"],
    ),
    "at": (pa.timestamp("us", "UTC"), TIMES, ASKED_TIMES),
    "local": (pa.timestamp("us"), TIMES, ASKED_TIMES),
}
"""Column -> its type, its values in ascending order, values to filter by."""

GROUPS: dict[int, list[int | None]] = {100: [None] * 2, 200: [0, 5], 300: [2, 3]}
"""First id -> places of the values, of row groups of one file: nulls alone, both ends, NaN next to a number."""

SCHEMA = pa.schema([("id", pa.int64()), *((name, data_type) for name, (data_type, _, _) in VALUES.items())])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> DeltaTableUnderTest:
    """A table with a file of each value, one with several row groups, and a deleted file."""
    under_test = DeltaTableUnderTest.in_folder(tmp_path_factory.mktemp("delta") / "table")
    under_test.held_bytes = 0
    under_test.create(SCHEMA)
    files = [under_test.stage(row) for row in single_rows()]
    files.append(under_test.stage(*(of_values(first_id, places) for first_id, places in GROUPS.items())))
    gone = under_test.stage(of_values(400, [1, 1, 1]))
    under_test.move(1, [*files[:3], gone])
    under_test.move(2, files[3:], [gone])
    return under_test


def of_values(first_id: int, places: list[int | None]) -> pa.Table:
    columns = [
        pa.array([None if place is None else values[place] for place in places], data_type)
        for data_type, values, _ in VALUES.values()
    ]
    return pa.table([pa.array([first_id + number for number in range(len(places))]), *columns], schema=SCHEMA)


def single_rows() -> Iterator[pa.Table]:
    return (of_values(place, [place]) for place in range(6))


def live_rows() -> pa.Table:
    return pa.concat_tables([*single_rows(), *(of_values(first_id, places) for first_id, places in GROUPS.items())])


def sortable(name: str, value: Any) -> Any:
    """NaN is above all else for every engine."""
    return (1, 0) if name == "f" and value is not None and math.isnan(value) else (0, value)


def expected_ids(where: Where) -> set[int]:
    """Return the ids of the live rows that a filter keeps, by values as Arrow stores them."""
    name, operator, text = where
    data_type = SCHEMA.field(name).type
    live = stored(live_rows())
    if pa.types.is_timestamp(data_type) or pa.types.is_date(data_type):
        python = datetime.fromisoformat(text) if pa.types.is_timestamp(data_type) else date.fromisoformat(text)
        if getattr(data_type, "tz", None):
            python = python.replace(tzinfo=UTC)
        wanted = stored(pa.table({name: pa.array([python], data_type)})).column(name)[0].as_py()
    else:
        wanted = int(text) if pa.types.is_integer(data_type) else float(text) if name == "f" else text
    compare = {"=": lambda a, b: a == b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b, ">": lambda a, b: a > b}
    return {
        row["id"]
        for row in live.to_pylist()
        if row[name] is not None and compare[operator](sortable(name, row[name]), sortable(name, wanted))
    }


def stored(table: pa.Table) -> pa.Table:
    """Return a table with days and times as the numbers that they are stored as: Python has no year 12,922."""
    columns = {}
    for field in table.schema:
        plain = {"date32[day]": pa.int32()}.get(str(field.type), field.type)
        plain = pa.int64() if pa.types.is_timestamp(field.type) else plain
        columns[field.name] = table.column(field.name).cast(plain)
    return pa.table(columns)


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_an_engine_sees_the_live_rows_and_no_others(
    engine: str, table: DeltaTableUnderTest, reading_engines: ReadingEngines, tmp_path: Path
) -> None:
    """Rule: any engine reads it, values at the ends of their types too (TABLES 1.1)."""
    found = reading_engines.read(engine, folder_of(table)).cast(SCHEMA)
    ordered = stored(found).sort_by("id").to_pylist()
    assert repr(ordered) == repr(stored(live_rows()).sort_by("id").to_pylist())


@pytest.mark.deep
@pytest.mark.parametrize("engine", EVERY_ENGINE)
@pytest.mark.parametrize("name", [name for name, (_, _, asked) in VALUES.items() if asked])
def test_an_engine_that_skips_files_misses_no_row(
    engine: str, name: str, table: DeltaTableUnderTest, reading_engines: ReadingEngines
) -> None:
    """Rule: statistics never lose rows: NaN, nulls, long text, negative numbers, times between milliseconds."""
    for value in VALUES[name][2]:
        for operator in ("=", "<", ">=", ">"):
            where = (name, operator, value)
            found = reading_engines.read(engine, folder_of(table), where=where).column("id").to_pylist()
            assert sorted(found) == sorted(expected_ids(where)), where


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_files_are_skipped_by_their_statistics(
    engine: str, table: DeltaTableUnderTest, reading_engines: ReadingEngines
) -> None:
    """Rule: statistics are there to be used: a file that cannot have the row is not even opened."""
    (spoiled,) = (key for key, ids in ids_by_file(table).items() if ids == {1})
    body = table.store.get(spoiled)
    table.store.put(spoiled, b"x" * len(body))
    try:
        for where in (("i", "=", "3"), ("text", "=", SMILE), ("day", "=", "1970-01-01")):
            found = reading_engines.read(engine, folder_of(table), where=where)
            assert found.num_rows == len(expected_ids(where))
    finally:
        table.store.put(spoiled, body)


@pytest.mark.deep
@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_after_many_commits_an_engine_sees_the_newest(engine: str, many: Many, reading_engines: ReadingEngines) -> None:
    """Rule: hundreds of commits, checkpoints of the log among them, change nothing of what is read (TABLES 6)."""
    found = reading_engines.read(engine, folder_of(many.table))
    assert sorted(found.column("k").to_pylist()) == many.keys
    filtered = reading_engines.read(engine, folder_of(many.table), where=("k", ">=", str(many.commits - 5)))
    assert filtered.num_rows == sum(key >= many.commits - 5 for key in many.keys)


@pytest.mark.long
def test_after_many_commits_the_log_is_as_long_as_after_ten(many: Many) -> None:
    """Rule: hundreds of commits without growth, where nothing older is to be looked at (TABLES 6)."""
    assert many.longest_log <= 15
    opened = many.table.open()
    assert (opened.number, opened.write_id, len(opened.live_files())) == (many.commits, write_id(many.commits), 9)
    assert opened.foreign_commits() == ()


@dataclass(frozen=True)
class Many:
    """A table after many moves, of which each takes out what was put in nine before.

    Attributes:
        commits: how many moves. keys: of its rows. longest_log: objects of its log, at most, after upkeep.
    """

    table: DeltaTableUnderTest
    commits: int
    keys: list[int]
    longest_log: int


@pytest.fixture(scope="module", params=[60, pytest.param(300, marks=pytest.mark.deep)])
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Many:
    commits: int = request.param
    table = DeltaTableUnderTest.in_folder(tmp_path_factory.mktemp("many") / "table", retention_ms=0)
    table.create()
    live: list[StagedFile] = []
    longest = 0
    for number in range(1, commits + 1):
        live.append(table.stage(rows(number)))
        gone = [live.pop(0)] if len(live) > 9 else []
        table.move(number, live[-1:], gone)
        table.format.maintain(0)
        longest = max(longest, sum(1 for _ in table.store.list("_delta_log/")))
    return Many(table, commits, list(range(commits - 8, commits + 1)), longest)


def ids_by_file(table: DeltaTableUnderTest) -> dict[str, set[int]]:
    live = table.open().live_files()
    files = {key: pq.read_table(pa.BufferReader(table.store.get(key))) for key in live}
    return {key: set(file.column("id").to_pylist()) for key, file in files.items()}


def folder_of(table: DeltaTableUnderTest) -> str:
    return delta_location("totals", table.store.config).uri
