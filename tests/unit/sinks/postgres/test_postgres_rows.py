"""What a table in Postgres holds: every type as DuckDB reads it from the staged files; what it cannot is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.sinks.formats.postgres.postgres_types import MARK, check_columns, check_rows
from milepost.sinks.formats.postgres.row_lines import copy_bytes, lines_of
from milepost_testkit import wording
from tests.conformance.sinks.contract.case import rows
from tests.conformance.sinks.formats.postgres_sink import PostgresCase

ENDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [-128, 127]),
    "i16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "u8": (pa.uint8(), [0, 255]),
    "u16": (pa.uint16(), [0, 2**16 - 1]),
    "u32": (pa.uint32(), [0, 2**32 - 1]),
    "u64": (pa.uint64(), [0, 2**64 - 1]),
    "f32": (pa.float32(), [1.5, -3.4028234663852886e38, 1e-45, float("inf")]),
    "f64": (pa.float64(), [0.1, 5e-324, 1.7976931348623157e308, float("-inf"), -0.0]),
    "text": (pa.string(), ["", "a\tb\nc\rd\\e", "\\N", "\\.", "NULL", '"', "'", "ä€😀", " x ", "x" * 9000]),
    "large": (pa.large_string(), ["large"]),
    "bytes": (pa.binary(), [b"", b"\x00\xff\\x", b"\\N"]),
    "day": (pa.date32(), [dt.date.min, dt.date(1970, 1, 1), dt.date.max]),
    "us": (pa.timestamp("us"), [*map(dt.datetime.fromisoformat, ("0001-01-01", "1969-12-31T23:59:59.999999"))]),
    "us at its end": (pa.timestamp("us"), [dt.datetime.fromisoformat("9999-12-31T23:59:59.999999")]),
    "ms": (pa.timestamp("ms"), [dt.datetime.fromisoformat("2024-02-29T01:02:03.004")]),
    "utc": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC)]),
    "zone": (pa.timestamp("us", "Europe/Berlin"), [dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC)]),
    "small": (pa.decimal128(3, 2), [Decimal("-9.99"), Decimal("0.01")]),
    "big": (pa.decimal128(38, 10), [Decimal("0.0000000001"), Decimal("-9999999999999999999999999999.9999999999")]),
}


class TestRows(PostgresCase):
    @pytest.mark.deep
    @pytest.mark.parametrize("name", ENDS)
    def test_each_type_has_its_ends_and_null_as_duckdb_reads_them(self, tmp_path: Path, name: str) -> None:
        """Staged once, read by two: DuckDB the files, Postgres the table."""
        data_type, values = ENDS[name]
        schema = pa.schema([("k", pa.int64()), ("v", data_type)])
        job = self.begin(tmp_path)
        table = pa.table({"k": range(len(values) + 1), "v": pa.array([*values, None], data_type)}, schema=schema)
        done = job.publish(table, schema=schema)
        (file,) = job.sink.files(done.contents)
        staged = self.table_store(tmp_path).config.url.removeprefix("file://").replace("%20", " ")
        with duckdb.connect() as db:
            db.execute("SET TimeZone = 'UTC'")
            query = f"SELECT k, v FROM read_parquet('{staged}/{file.key}') ORDER BY k"
            expected = [tuple(row) for row in db.sql(query).fetchall()]
        found = self.sql_rows(tmp_path)
        if data_type == pa.float32():
            assert pa.array([row[1] for row in found], data_type) == pa.array([row[1] for row in expected], data_type)
            return
        assert [_plain(row) for row in found] == [_plain(row) for row in expected]
        assert job.sink.fault(done.contents) is None

    @pytest.mark.deep
    def test_not_a_number_is_one_value(self, tmp_path: Path) -> None:
        """NaN equals NaN: it is no difference, back and forth."""
        schema = pa.schema([("k", pa.int64()), ("v", pa.float64())])
        job = self.begin(tmp_path)
        first = job.publish(rows((1, float("nan")), (2, 2.0), schema=schema), schema=schema)
        job.publish(rows((2, float("nan")), schema=schema), schema=schema)
        assert self.sql_rows(tmp_path, "k, v = 'NaN'") == [(1, True), (2, True)]
        assert job.sink.fault(job.sink.position().contents) is None
        job.back_to(first)
        assert self.sql_rows(tmp_path, "k, v = 'NaN', _milepost")[0] == (1, True, first.version)
        assert self.sql_rows(tmp_path, "k, v = 2.0")[1] == (2, True)

    @pytest.mark.deep
    def test_a_key_of_several_columns_and_names_that_need_quotes(self, tmp_path: Path) -> None:
        """Names of columns are never part of a statement but as identifiers."""
        schema = pa.schema([("k", pa.string()), ('a "b"; DROP TABLE x; --', pa.string()), ("%s", pa.int64())])
        job = self.begin(tmp_path)
        job.publish(rows(("x", "y", 1), ("\\N", None, 2), schema=schema), schema=schema)
        done = job.publish(rows(("x", "z", 3), schema=schema), schema=schema)
        assert self.sql_rows(tmp_path, '"k", "a ""b""; DROP TABLE x; --", "%s"') == [("\\N", None, 2), ("x", "z", 3)]
        assert job.sink.fault(done.contents) is None

    @pytest.mark.parametrize(
        ("schema", "values", "said"),
        [
            ([("k", pa.int64()), ("v", pa.string())], [(1, "a\0b")], "'v' has a NUL character in 1 rows"),
            ([("k", pa.int64()), ("v", pa.string())], [(None, "a")], "'k' is part of the key and null in 1 rows"),
            ([("k", pa.string()), ("v", pa.string())], [("x" * 2700, "a")], "(k) takes 2712 bytes"),
            ([("k", pa.int64()), ("v", pa.date32())], [(1, 3_000_000)], "before the year 1 or after 9999"),
            ([("k", pa.int64()), ("v", pa.timestamp("us"))], [(1, -(2**62))], "before the year 1 or after 9999"),
            ([("k", pa.float64()), ("v", pa.string())], [(1.0, "a")], "0.0 and -0.0 are one key"),
            ([("k", pa.int64()), ("v", pa.list_(pa.int64()))], [(1, [1])], "nested types are not available"),
            ([("k", pa.int64()), ("v", pa.timestamp("ns"))], [(1, 1)], "Postgres stores times in microseconds"),
            ([("k", pa.int64()), ("v", pa.timestamp("s"))], [(1, 1)], "Postgres stores times in microseconds"),
            ([("k", pa.int64()), ("v", pa.duration("us"))], [(1, 1)], "which no type of Postgres holds"),
            ([("k", pa.int64()), (MARK, pa.int64())], [(1, 1)], "Postgres or Milepost reserves"),
            ([("k", pa.int64()), ("xmin", pa.int64())], [(1, 1)], "Postgres or Milepost reserves"),
            ([("k", pa.int64()), ("v" * 64, pa.int64())], [(1, 1)], "more than 63 bytes"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_a_table_cannot_hold_is_refused_before_the_commit_point(
        self, tmp_path: Path, schema: list[Any], values: list[Any], said: str
    ) -> None:
        """By name, with what to type; no value of a row is in the message. On a fork too."""
        columns = pa.schema(schema)
        job = self.begin(tmp_path)
        staged = job.staged(rows(*values, schema=columns), schema=columns)
        for attempt in (
            lambda: job.manifest.completed(job.sink, staged),
            lambda: job.sink.prepare_fork(staged, None),
        ):
            with wording.raises(InvalidRequest) as refused:
                attempt()
            assert said in refused.value.message and refused.value.hint
        assert self.sql_rows(tmp_path) == []

    def test_a_table_that_is_too_wide_is_refused_by_its_columns(self) -> None:
        many = pa.schema([("k", pa.int64()), *((f"c{n}", pa.int64()) for n in range(1100))])
        with wording.raises(InvalidRequest):
            check_columns("table", many, ("k",))
        fits = pa.schema([("k", pa.int64()), *((f"c{n}", pa.int64()) for n in range(900))])
        check_columns("table", fits, ("k",))

    @pytest.mark.deep
    def test_the_widest_table_that_is_taken_can_be_written(self, tmp_path: Path) -> None:
        """What is refused by its columns is what Postgres would refuse at the commit."""
        schema = pa.schema([("k", pa.int64()), *((f"c{n}", pa.int64()) for n in range(990))])
        check_columns("table", schema, ("k",))
        self.begin(tmp_path).publish(rows((1, *range(990)), schema=schema), schema=schema)
        assert self.sql_rows(tmp_path, "k, c989") == [(1, 989)]


TEXTS = st.one_of(
    st.none(),
    st.text("\\\t\n\rntrN", max_size=3),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
)
"""Those of a few special characters and any others: which are escaped, and how."""


@given(st.lists(TEXTS, min_size=1))
@example(["\\n", "\n", "\\N", None])
def test_a_line_has_one_end_and_is_another_for_each_value(values: list[str | None]) -> None:
    """Rows are compared by their lines, so no two values may have one line, nor a value break its own."""
    lines = lines_of(pa.table({"v": pa.array(values, pa.string()), "n": range(len(values))}))
    body = b"".join(bytes(piece) for piece in copy_bytes(lines)).decode()
    assert body.count("\n") == len(values) and body.count("\t") == len(values)
    found = dict(zip(values, (line.rpartition("\t")[0] for line in lines.to_pylist()), strict=True))
    assert len(set(found.values())) == len(found)


def test_rows_that_fit_are_taken() -> None:
    """Nulls outside of the key, a key of the longest size, and no rows at all."""
    schema = pa.schema([("k", pa.string()), ("d", pa.date32())])
    check_rows("table", rows(("x" * 2692, None), schema=schema), ("k",))
    check_rows("table", schema.empty_table(), ("k",))


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with its times in UTC and numbers of unlimited size as whole ones."""
    return tuple(
        value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo
        else int(value) if isinstance(value, Decimal) and value == value.to_integral_value()
        else value
        for value in row
    )  # fmt: skip
