"""Engines that had no part in writing see exactly the live rows of a table in Iceberg, whatever they filter by
(contract 1), and many commits cost no more than few."""

from __future__ import annotations

import statistics
import time
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from milepost.errors import StateCorrupt
from milepost.tables.records.committables import StagedFile
from milepost_testkit.formats.iceberg_lake import SCHEMA, IcebergLake, lake_on_server, same_rows
from milepost_testkit.readers.reading_engines import EVERY_ENGINE, CatalogTable, ReadingEngines, Where
from milepost_testkit.servers.s3_servers import SeaweedTables

_WIDE = pa.schema(
    [
        ("k", pa.int64()),
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("v", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("yes", pa.bool_()),
        ("parts", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]))),
        ("named", pa.map_(pa.string(), pa.int64())),
    ]
)
_LONG = "long " * 40
_NAN = float("nan")


def _wide(first: int, values: list[tuple[float | None, str | None]]) -> pa.Table:
    """Return rows that go up in each column, but for the given floats and texts."""
    numbers = range(first, first + len(values))
    columns = {
        "k": list(numbers),
        "n": [None if number % 3 == 0 else -number for number in numbers],
        "f": [value for value, _ in values],
        "v": [text for _, text in values],
        "day": [date(2026, 1, number) for number in numbers],
        "at": [datetime(2026, 1, 1, 12, 0, 0, number, tzinfo=UTC) for number in numbers],
        "local": [datetime(1960, 1, 1, 12, number, tzinfo=UTC).replace(tzinfo=None) for number in numbers],
        "price": [Decimal(number) / 4 for number in numbers],
        "raw": [bytes([number]) for number in numbers],
        "yes": [number % 2 == 0 for number in numbers],
        "parts": [[{"x": number, "y": ["a", None]}, None] for number in numbers],
        "named": [[("n", number)] for number in numbers],
    }
    return pa.table(columns, _WIDE)


_FILES = (
    _wide(1, [(1.0, "a"), (_NAN, "b"), (None, None)]),
    _wide(4, [(_NAN, _LONG + "z"), (_NAN, _LONG + "a")]),
    _wide(6, [(None, None), (None, None)]),
    _wide(8, [(5.0, "x"), (-5.0, "y")]),
)
_GONE = _wide(20, [(1.0, "a"), (_NAN, _LONG + "z")])
_FILTERS: tuple[Where, ...] = (
    ("k", "=", "5"),
    ("k", ">", "4"),
    ("n", "<=", "-8"),
    ("f", ">", "2"),
    ("f", "=", "NaN"),
    ("f", "<", "0"),
    ("v", "=", _LONG + "a"),
    ("v", ">", "x"),
    ("v", "=", "a"),
    ("day", ">=", "2026-01-08"),
    ("at", "=", "2026-01-01 12:00:00.000004+00:00"),
    ("at", "<", "2026-01-01 12:00:00.000004+00:00"),
    ("local", ">", "1960-01-01 12:07:00"),
    ("price", "=", "1.25"),
)


def _expected(where: Where | None) -> pa.Table:
    """Return what the filter leaves of the live rows; as DuckDB has it, NaN is above all numbers and equals itself."""
    rows = pa.concat_tables(_FILES)
    if where is None:
        return rows
    column, operator, text = where
    values = rows.column(column)
    kind = values.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        wanted = pa.scalar(datetime.fromisoformat(text), kind)
    elif pa.types.is_decimal(kind):
        wanted = pa.scalar(Decimal(text), kind)
    else:
        wanted = pa.scalar(text).cast(kind)
    if column == "f" and operator == "=":
        return rows.filter(pc.is_nan(values))
    compare = {"=": pc.equal, ">": pc.greater, ">=": pc.greater_equal, "<": pc.less, "<=": pc.less_equal}[operator]
    keep = compare(values, wanted)
    return rows.filter(pc.or_(keep, pc.is_nan(values)) if column == "f" and operator == ">" else keep)


@pytest.fixture
def wide_lake(lake: IcebergLake) -> IcebergLake:
    """A table of which one file went in a second move, and of which one has its columns in another order."""
    lake.made(_WIDE)
    first = [lake.stage(_FILES[0]), lake.stage(_GONE), lake.stage(_FILES[1])]
    lake.move(1, tuple(first), schema=_WIDE)
    backwards = _FILES[2].select(_WIDE.names[::-1])
    lake.move(2, (lake.stage(backwards), lake.stage(_FILES[3])), (first[1],), schema=_WIDE)
    return lake


@pytest.mark.deep
@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_an_engine_sees_exactly_the_live_rows_with_and_without_filters(
    engine: str, wide_lake: IcebergLake, reading_engines: ReadingEngines
) -> None:
    """Contract 1: bounds of columns never make an engine skip a row: NaN, nulls, long text."""
    catalog = CatalogTable(wide_lake.config.uri.removeprefix("sqlite:///"), wide_lake.config.table_name)
    wrong = []
    for where in (None, *_FILTERS):
        found = reading_engines.read(engine, catalog, table_format="iceberg", where=where)
        if not same_rows(found.cast(_WIDE), _expected(where)):
            wrong.append((where, found.column("k").to_pylist(), _expected(where).column("k").to_pylist()))

    assert wrong == []


def test_pyiceberg_sees_exactly_the_live_rows_and_skips_files_by_their_bounds(wide_lake: IcebergLake) -> None:
    """Contract 1: a second reader; and the statistics that were staged are of use."""
    table = wide_lake.foreign_table()

    assert same_rows(table.scan().to_arrow().cast(_WIDE), _expected(None))
    for column, value in (("k", "5"), ("v", "'x'"), ("day", "'2026-01-08'")):
        where = (column, "=", value.strip("'"))
        scan = table.scan(f"{column} = {value}")
        assert same_rows(scan.to_arrow().cast(_WIDE), _expected(where)), where
    assert len([*table.scan("k = 5").plan_files()]) == 1
    assert len([*table.scan("f > 2.0").plan_files()]) == len(_FILES)


def test_duckdb_reads_a_table_of_a_server_by_its_newest_metadata(
    seaweed_tables: SeaweedTables, reading_engines: ReadingEngines
) -> None:
    """Contract 1: what a catalog's own server wrote is read as well."""
    lake = lake_on_server(seaweed_tables).made()
    gone = lake.staged(1)
    lake.move(1, (gone, lake.staged(2)))
    lake.move(2, (lake.staged(3),), (gone,))

    location = lake.foreign_table().metadata_location
    found = reading_engines.read("duckdb", location, table_format="iceberg", server=seaweed_tables)

    assert sorted(found.column("k").to_pylist()) == [2, 3]


def test_statistics_that_cannot_be_read_are_refused_and_wrong_kinds_are_left_out(lake: IcebergLake) -> None:
    """Contract 1: an engine skips no file by a bound that is not surely one."""
    file = lake.made().staged(1)
    doubtful = '{"minValues": {"k": 0.5, "v": 7}, "maxValues": {"k": true, "v": 9}, "nullCount": {"k": 0}}'
    lake.move(1, (StagedFile(file.key, file.rows, file.size, file.sha256, doubtful),))
    (task,) = lake.foreign_table().scan().plan_files()
    assert (task.file.lower_bounds, task.file.upper_bounds, task.file.null_value_counts) == (None, None, {1: 0})

    other = lake.staged(2)
    with pytest.raises(StateCorrupt):
        lake.move(2, (StagedFile(other.key, other.rows, other.size, other.sha256, "[]"),))


@pytest.mark.deep
@pytest.mark.parametrize("commits", [120, 300])
def test_hundreds_of_commits_leave_the_table_and_its_commits_as_small_as_thirty(
    commits: int, lake: IcebergLake
) -> None:
    """Section 6: no growth of the metadata, of what is read to commit, nor of the time that it takes."""
    lake.made()
    live: list[StagedFile] = [lake.staged(number) for number in range(8)]
    lake.move(1, tuple(live))
    seconds: list[float] = []
    sizes: list[tuple[int, int, int]] = []
    for number in range(2, commits + 2):
        added, removed = lake.staged(1000 + number), live.pop(0)
        live.append(added)
        start = time.perf_counter()
        lake.move(number, (added,), (removed,))
        seconds.append(time.perf_counter() - start)
        lake.format.maintain(retention_ms=0)
        if number % 15 == 0:
            table = lake.foreign_table()
            head = table.current_snapshot()
            assert head is not None
            objects = sum(1 for _ in lake.store.list("metadata/"))
            size = lake.store.stat(table.metadata_location.removeprefix(f"{table.location()}/")).size
            sizes.append((objects, size, len(head.manifests(table.io))))

    assert lake.opened().live_files() == {file.key: file.size for file in live}
    assert max(objects for objects, _, _ in sizes[2:]) <= 120
    assert max(size for _, size, _ in sizes[5:]) < 1.5 * max(size for _, size, _ in sizes[:5])
    assert max(manifests for _, _, manifests in sizes) <= 16
    assert statistics.median(seconds[-commits // 5 :]) < 2 * statistics.median(
        seconds[commits // 10 : commits // 10 * 3]
    )


@pytest.mark.deep
def test_appends_without_end_are_listed_in_few_manifests(lake: IcebergLake) -> None:
    """Section 6: what a commit reads does not grow with the commits before it, only with what is live."""
    lake.made()
    for number in range(1, 61):
        lake.move(number, (lake.staged(number),))

    table = lake.foreign_table()
    head = table.current_snapshot()

    assert head is not None and head.summary is not None
    assert len(head.manifests(table.io)) <= 16
    assert head.summary["total-data-files"] == "60"
    assert lake.keys() == list(range(1, 61))


@pytest.mark.long
def test_what_maintenance_takes_is_of_no_reader_of_the_present(lake: IcebergLake) -> None:
    """Contract 10: data files stay, foreign snapshots stay, tagged ones stay; ours within the retention stay."""
    lake.made()
    files = [lake.staged(number) for number in range(20)]
    for number, file in enumerate(files[:10], start=1):
        lake.move(number, (file,))
    lake.foreign_table().append(pa.table({"k": [99], "v": ["foreign"]}, SCHEMA))
    tagged = lake.foreign_table().current_snapshot()
    assert tagged is not None and tagged.parent_snapshot_id is not None
    lake.foreign_table().manage_snapshots().create_tag(tagged.parent_snapshot_id, "audit").commit()
    for number, file in enumerate(files[10:], start=11):
        lake.move(number, (file,))

    lake.format.maintain(retention_ms=3_600_000)
    assert len(lake.foreign_table().metadata.snapshots) == 21
    lake.format.maintain(retention_ms=0)

    table = lake.foreign_table()
    kept = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    assert kept == {tagged.snapshot_id, tagged.parent_snapshot_id, table.metadata.current_snapshot_id}
    assert len(table.scan(snapshot_id=tagged.parent_snapshot_id).to_arrow()) == 10
    assert len(table.scan(snapshot_id=tagged.snapshot_id).to_arrow()) == 11
    assert (lake.opened().number, len(lake.keys())) == (20, 21)
    assert {stat.key for stat in lake.store.list("_milepost/")} == {file.key for file in files}


@pytest.mark.long
def test_of_a_history_without_end_so_many_snapshots_stay(lake: IcebergLake) -> None:
    """However often a job commits within a week: each of them would be in the metadata of every commit."""
    lake.made()
    for number in range(1, 11):
        lake.move(number, (lake.staged(number),))
    newest = [snapshot.snapshot_id for snapshot in lake.foreign_table().metadata.snapshots][-5:]

    lake.opened().expire(before_ms=0, at_most=4, at_least=6)
    assert len(lake.foreign_table().metadata.snapshots) == 10, "five are beyond four and the present"
    lake.opened().expire(before_ms=0, at_most=4, at_least=5)

    assert [snapshot.snapshot_id for snapshot in lake.foreign_table().metadata.snapshots] == newest
    assert lake.keys() == list(range(1, 11))
