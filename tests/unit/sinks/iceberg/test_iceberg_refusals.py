"""A table or a column that Iceberg, or we, cannot write is refused before anything is planned (contract 9, 10, 11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from milepost.errors import InvalidRequest
from milepost_testkit import wording
from milepost_testkit.formats.iceberg_lake import SCHEMA, IcebergLake
from milepost_testkit.formats.iceberg_writers import delete_rows, identify, require, set_properties


def _make_anew(lake: IcebergLake, version: int) -> None:
    """Make the table anew in another version of the format."""
    table = lake.foreign_table()
    document = {**json.loads(table.metadata.model_dump_json()), "format-version": version, "next-row-id": 0}
    document |= {"schema": document["schemas"][0], "partition-spec": []}
    location = f"{table.location()}/metadata/other.metadata.json"
    with table.io.new_output(location).create() as file:
        file.write(json.dumps(document).encode())
    table.catalog.drop_table(lake.config.table)
    table.catalog.register_table(lake.config.table, location)


def test_a_table_elsewhere_is_refused_by_both_places(lake: IcebergLake) -> None:
    """A sink's path is the location of its table: its files are keys below it."""
    catalog = lake.made().foreign_table().catalog
    catalog.drop_table(lake.config.table)
    catalog.create_table(lake.config.table, Schema(NestedField(1, "k", LongType())), "file:///elsewhere")

    with wording.raises(InvalidRequest) as refused:
        lake.format.open()

    assert refused.value.hint


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda table: set_properties(table, **{"gc.enabled": "true"}), "lets engines delete files"),
        (lambda table: set_properties(table, **{"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}), "py-io-impl"),
        (lambda table: set_properties(table, **{"schema.name-mapping.default": "[]"}), "does not map column 'k'"),
        (
            lambda table: table.update_spec().add_field("k", IdentityTransform(), "by_k").commit(),
            "is partitioned by by_k",
        ),
        (lambda table: table.update_sort_order().asc("k", IdentityTransform()).commit(), "has a sort order"),
        (identify, "identifier fields (k)"),
        (require, "requires values in column 'k'"),
        (delete_rows, "has delete files of another writer"),
    ],
    ids=["gc", "io", "names", "partitions", "order", "identifiers", "required", "deletes"],
)
def test_a_table_that_we_cannot_write_is_refused_with_what_to_do(
    lake: IcebergLake, change: Callable[[Table], Any], reason: str
) -> None:
    """Contract 11: features of a table are checked before anything is planned on it."""
    lake.made().move(1, (lake.staged(1),))
    change(lake.foreign_table())

    with wording.raises(InvalidRequest) as refused:
        lake.opened().check(SCHEMA)

    assert reason in refused.value.message
    assert refused.value.hint


def test_a_table_of_version_1_is_written(lake: IcebergLake) -> None:
    """Contract 11: both versions that we can write are written."""
    _make_anew(lake.made(), 1)
    kept, gone = lake.staged(1), lake.staged(2)

    lake.opened().check(SCHEMA)
    lake.move(1, (kept, gone))
    after = lake.move(2, (lake.staged(3),), (gone,))

    assert lake.foreign_table().format_version == 1
    assert (after.number, after.foreign_commits(), lake.keys()) == (2, (), [1, 3])


def test_a_table_of_version_3_is_refused(lake: IcebergLake) -> None:
    """Contract 11: a version that we cannot write is named."""
    _make_anew(lake.made(), 3)

    with wording.raises(InvalidRequest) as refused:
        lake.opened().check(SCHEMA)

    assert refused.value.hint


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("k", pa.int64()), ("K", pa.int64())]),
        pa.schema([("s", pa.list_(pa.struct([("x", pa.int32()), ("X", pa.int32())])))]),
    ],
    ids=["columns", "within a column"],
)
def test_names_that_differ_only_in_capital_letters_are_refused(lake: IcebergLake, schema: pa.Schema) -> None:
    """Contract 1: DuckDB reads such a table, and reads it wrong."""
    with wording.raises(InvalidRequest):
        lake.made(schema)


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (pa.uint64(), "DECIMAL(20, 0)"),
        (pa.uint32(), "BIGINT"),
        (pa.int16(), "INT"),
        (pa.timestamp("ns"), "microseconds"),
        (pa.timestamp("us", "Europe/Berlin"), "UTC"),
        (pa.time64("ns"), "microseconds"),
        (pa.date64(), "DATE"),
        (pa.decimal256(50, 2), "38 digits"),
        (pa.duration("us"), "a type that Iceberg supports"),
        (pa.struct([("x", pa.list_(pa.uint8()))]), "a type that Iceberg supports"),
    ],
    ids=str,
)
def test_types_that_iceberg_cannot_hold_are_refused_by_column(
    lake: IcebergLake, kind: pa.DataType, advice: str
) -> None:
    """Contract 11: a type that would come back as another is not taken."""
    with wording.raises(InvalidRequest) as refused:
        lake.made(pa.schema([("k", pa.int64()), ("odd", kind)]))

    assert advice in refused.value.hint
    assert lake.format.open() is None
