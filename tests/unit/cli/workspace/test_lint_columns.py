"""`lint` refuses columns that a sink's format cannot hold, with the words of an epoch that is refused for them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.sinks.formats.delta.delta_types import check_columns
from milepost.sinks.formats.iceberg.schemas import to_iceberg
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost

SPEC = """
name: small
storage: ../store
sources:
  events: {path: "../landing/*.parquet", format: parquet, schema: {k: string, n: int16, at: "TIME"}}
operators: OPERATORS
sinks:
  - SINK
"""
ICEBERG = 'format: iceberg, table: shop.events, catalog: {type: sql, uri: "sqlite:///catalog.db"}'
AGGREGATE = (
    '[{uid: totals, kind: aggregate, inputs: [events], key: [k], aggregates: {first: min(at), "n n": count(*)}}]'
)


def lint(tmp_path: Path, sink: str, *, time: str = "timestamp[us]", operators: str = "[]", reads: str = "events"):
    path = tmp_path / "config" / "small.yaml"
    path.parent.mkdir()
    row = f"{{name: table, input: {reads}, path: ../lake/table, {sink}}}"
    path.write_text(SPEC.replace("OPERATORS", operators).replace("SINK", row).replace("TIME", time))
    return milepost("lint", path)


def refused(check) -> str:
    with pytest.raises(InvalidRequest) as raised:
        check()
    """Return the first sentence of what it says."""
    return raised.value.message.partition(". ")[0]


def test_a_type_that_delta_cannot_hold_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("ns"))])
    said = refused(lambda: check_columns("table", schema))
    assert_clear_error(lint(tmp_path, "format: delta, mode: append", time="timestamp[ns]"), 2, said, golden="lint")


def test_a_type_that_iceberg_cannot_hold_is_refused(tmp_path: Path) -> None:
    said = refused(lambda: to_iceberg("table", pa.schema([("n", pa.int16())])))
    assert_clear_error(lint(tmp_path, f"{ICEBERG}, mode: append"), 2, said, golden="lint")


def test_the_names_and_types_of_an_aggregate_are_known(tmp_path: Path) -> None:
    outcome = lint(tmp_path, "format: delta, mode: upsert", operators=AGGREGATE, reads="totals")
    assert_clear_error(outcome, 2, golden="lint")


def test_what_the_format_holds_passes(tmp_path: Path) -> None:
    assert lint(tmp_path, "format: delta, mode: append").exit_code == 0


def test_our_own_format_holds_all(tmp_path: Path) -> None:
    assert lint(tmp_path, "format: parquet, mode: append", time="timestamp[ns]").exit_code == 0


def test_types_that_only_spark_knows_are_left_to_the_epoch(tmp_path: Path) -> None:
    sql = '[{uid: clean, kind: sql, inputs: [events], sql: "SELECT k, CAST(n AS TINYINT) AS m FROM events"}]'
    outcome = lint(tmp_path, f"{ICEBERG}, mode: append", operators=sql, reads="clean")
    assert outcome.exit_code == 0, outcome.stderr
