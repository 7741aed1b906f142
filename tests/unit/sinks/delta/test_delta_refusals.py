"""A Delta table that we cannot write, or columns that it cannot hold, are refused before anything is planned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.sinks.formats.delta.delta_types import arrow_schema, check_columns, delta_schema
from milepost_testkit import wording
from milepost_testkit.formats.delta_table import DAY_MS, OWNER, SCHEMA, DeltaTableUnderTest, write_id

HELD = pa.schema(
    [
        ("yes", pa.bool_()),
        *((f"i{bits}", getattr(pa, f"int{bits}")()) for bits in (8, 16, 32, 64)),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("money", pa.decimal128(38, 2)),
        ("whole", pa.decimal128(5, 0)),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("list", pa.list_(pa.int64())),
        ("full", pa.list_(pa.field("item", pa.string(), nullable=False))),
        ("map", pa.map_(pa.string(), pa.list_(pa.date32()))),
        ("struct", pa.struct([("x", pa.int32()), pa.field("y", pa.struct([("z", pa.float64())]), nullable=False)])),
    ]
)

NOT_HELD = {
    pa.uint8(): "int16",
    pa.uint16(): "int32",
    pa.uint32(): "int64",
    pa.uint64(): "decimal128(20, 0)",
    pa.float16(): "float32",
    pa.decimal256(50, 2): "decimal128 of at most 38 digits",
    pa.decimal128(5, -2): "decimal128 of at most 38 digits",
    pa.decimal128(3, 5): "decimal128 of at most 38 digits",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary(4): "binary",
    pa.date64(): "date32",
    pa.time32("ms"): "int64, as microseconds",
    pa.time64("us"): "int64, as microseconds",
    pa.duration("us"): "int64, as microseconds",
    pa.timestamp("ns"): "timestamp[us]",
    pa.timestamp("ms"): "timestamp[us]",
    pa.timestamp("ns", "UTC"): "timestamp[us, tz=UTC]",
    pa.timestamp("us", "Europe/Berlin"): "timestamp[us, tz=UTC]",
    pa.dictionary(pa.int32(), pa.string()): "the type of its values",
    pa.large_list(pa.int64()): "list",
    pa.list_(pa.int64(), 3): "list",
    pa.null(): "the type of its future values",
    pa.month_day_nano_interval(): "a type that Delta supports",
    pa.struct([]): "a type that Delta supports",
}


@pytest.fixture
def table(tmp_path: Path) -> DeltaTableUnderTest:
    return DeltaTableUnderTest.in_folder(tmp_path / "table")


def made_by_others(
    table: DeltaTableUnderTest,
    *,
    features: tuple[str, ...] = (),
    properties: dict[str, str] | None = None,
    partition_columns: tuple[str, ...] = (),
    column: dict[str, Any] | None = None,
) -> None:
    """Write the first version of a table as another engine could."""
    fields = [
        json.loads(delta_schema(SCHEMA))["fields"][0],
        {**json.loads(delta_schema(SCHEMA))["fields"][1], **(column or {})},
    ]
    readers = [
        name for name in features if name in ("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint")
    ]
    named = {"writerFeatures": list(features)} | ({"readerFeatures": readers} if readers else {})
    protocol = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7 if features else 2}
    metadata = {
        "id": "theirs",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(partition_columns),
        "configuration": {"delta.deletedFileRetentionDuration": "interval 4 weeks", **(properties or {})},
        "createdTime": 0,
    }
    actions = [{"protocol": protocol | (named if features else {})}, {"metaData": metadata}]
    table.store.put("_delta_log/00000000000000000000.json", "\n".join(map(json.dumps, actions)).encode())


def test_every_type_that_is_held_comes_back_as_it_was(table: DeltaTableUnderTest) -> None:
    """Rule: a table's schema is the rows' own, column by column, also within columns."""
    assert arrow_schema("totals", json.loads(delta_schema(HELD))) == HELD
    opened = table.create(HELD)
    assert opened.schema == HELD
    opened.check(HELD)
    assert table.others.protocol().writer_features == ["timestampNtz"]


@pytest.mark.long
@pytest.mark.parametrize("data_type", NOT_HELD, ids=str)
@pytest.mark.parametrize("within", [False, True], ids=["", "within"])
def test_a_type_that_is_not_held_is_refused_with_the_one_to_cast_to(data_type: pa.DataType, within: bool) -> None:
    """Rule: nothing is cast on the way into a table; the hint says what to type."""
    column = pa.list_(pa.struct([("x", data_type)])) if within else data_type
    with wording.raises(InvalidRequest) as raised:
        check_columns("totals", pa.schema([("k", pa.int64()), ("odd", column)]))
    assert raised.value.details["column"] == "odd" and str(NOT_HELD[data_type]) in raised.value.hint


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("a b", pa.int64())]),
        pa.schema([("a=b", pa.int64())]),
        pa.schema([("s", pa.struct([("x;y", pa.int64())]))]),
        pa.schema([("Total", pa.int64()), ("total", pa.int64())]),
    ],
    ids=lambda schema: ",".join(schema.names),
)
def test_a_name_that_engines_refuse_is_refused(table: DeltaTableUnderTest, schema: pa.Schema) -> None:
    """Rule: any engine reads the table; no table is made."""
    with wording.raises(InvalidRequest) as raised:
        table.format.create(OWNER, schema)
    assert "rename" in raised.value.hint and table.format.open() is None


def test_a_plain_table_of_another_engine_can_be_written(table: DeltaTableUnderTest) -> None:
    """Rule: features that are named but not used do not matter; this requires no owner."""
    features = ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "timestampNtz")
    made_by_others(
        table, features=features, properties={"delta.appendOnly": "false", "delta.columnMapping.mode": "none"}
    )
    opened = table.open()
    opened.check(SCHEMA)
    assert (opened.owner, opened.number, opened.table_id) == (None, 0, "theirs")
    assert [commit.version for commit in opened.foreign_commits()] == [0]


REFUSED: dict[str, dict[str, Any]] = {
    "deletion vectors, the feature": {"features": ("deletionVectors",)},
    "an unknown feature": {"features": ("rowTracking", "domainMetadata")},
    "column mapping, the feature": {"features": ("columnMapping",)},
    "append only": {"properties": {"delta.appendOnly": "true"}},
    "deletion vectors": {"properties": {"delta.enableDeletionVectors": "true"}},
    "transactions expire": {"properties": {"delta.setTransactionRetentionDuration": "interval 1 day"}},
    "a constraint": {"properties": {"delta.constraints.low": "k > 0"}},
    "column mapping": {"properties": {"delta.columnMapping.mode": "name"}},
    "partitions": {"partition_columns": ("name",)},
    "generated": {"column": {"metadata": {"delta.generationExpression": "k"}}},
    "identity": {"column": {"metadata": {"delta.identity.start": 1}}},
    "invariant": {"column": {"metadata": {"delta.invariants": "{}"}}},
    "not null": {"column": {"nullable": False}},
    "another type": {"column": {"type": "integer"}},
    "another capital": {"column": {"name": "Name"}},
}  # fmt: skip


@pytest.mark.parametrize("made", REFUSED.values(), ids=REFUSED)
def test_a_table_that_we_would_break_is_refused(table: DeltaTableUnderTest, made: dict[str, Any]) -> None:
    """Rule: features, properties and columns are checked against what we can write (TABLES 1.11)."""
    made_by_others(table, **made)
    with wording.raises(InvalidRequest):
        table.open().check(SCHEMA)


def test_a_retention_of_exactly_ours_is_enough(tmp_path: Path) -> None:
    """Rule: a table of ours lacks nothing, also where the retention is no whole second."""
    for name, retention_ms in (("whole", 7 * DAY_MS), ("odd", 7 * DAY_MS + 1), ("none", 0)):
        table = DeltaTableUnderTest.in_folder(tmp_path / name, retention_ms)
        assert table.create().missing_properties(OWNER) == {}


def test_a_shorter_retention_is_raised_and_a_longer_one_left(table: DeltaTableUnderTest) -> None:
    """Rule: to what retained checkpoints need, by a commit of its own that is no foreign one; never lowered."""
    made_by_others(table, properties={"delta.logRetentionDuration": "interval 23 hours"})
    week = f"interval {7 * DAY_MS // 1000} seconds"
    lacking = table.open().missing_properties(OWNER)
    assert {name: value for name, value in lacking.items() if name.startswith("delta.")} == {
        "delta.logRetentionDuration": week
    }
    table.open().claim(OWNER, lacking, (0, write_id(0)))
    properties = table.others.metadata().configuration
    assert properties["delta.logRetentionDuration"] == week
    assert properties["delta.deletedFileRetentionDuration"] == "interval 4 weeks"
    longer = replace(table, retention_ms=60 * DAY_MS)
    opened = longer.open()
    assert opened.owner == OWNER and {*opened.missing_properties(OWNER)} == {
        "delta.logRetentionDuration",
        "delta.deletedFileRetentionDuration",
    }
    opened.claim(OWNER, opened.missing_properties(OWNER), None)
    assert longer.open().missing_properties(OWNER) == {} and longer.open().foreign_commits() == ()
    assert longer.open().table_id == "theirs"


def test_a_retention_in_other_words_is_refused_with_what_to_type(table: DeltaTableUnderTest) -> None:
    """Rule: it may be longer than ours, so it is not overwritten."""
    made_by_others(table, properties={"delta.logRetentionDuration": "for ever"})
    with wording.raises(InvalidRequest):
        table.open().missing_properties(OWNER)


def test_a_column_of_a_type_that_is_not_known_is_named(table: DeltaTableUnderTest) -> None:
    """Rule: a table with columns that we could not carry on is refused, by the column."""
    made_by_others(table, column={"type": "variant"}, features=("variantType",))
    with wording.raises(InvalidRequest):
        table.open()


def test_a_damaged_log_is_refused_by_the_place(table: DeltaTableUnderTest) -> None:
    """Rule: the location has no table that can be opened, and no new one is created over it."""
    table.create()
    table.store.put("_delta_log/00000000000000000000.json", b"{nothing")
    with wording.raises(InvalidRequest):
        table.open()
    with wording.raises(InvalidRequest):
        table.format.create(OWNER, SCHEMA)


@pytest.mark.parametrize(
    "name",
    [
        "AWS_S3_ALLOW_UNSAFE_RENAME",
        "MOUNT_ALLOW_UNSAFE_RENAME",
        "AWS_S3_LOCKING_PROVIDER",
        "aws_s3_allow_unsafe_rename",
    ],
)
def test_unsafe_commits_are_refused_by_the_variable(
    table: DeltaTableUnderTest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Rule: an unconditional commit could overwrite another's (TABLES 3)."""
    opened = table.create()
    monkeypatch.setenv(name, "true")
    for call in (table.format.open, lambda: table.format.create(OWNER, SCHEMA), lambda: table.format.maintain(0)):
        with wording.raises(EnvironmentUnusable) as raised:
            call()
        assert name in str(raised.value)
        assert f"unset {name}" in raised.value.hint
    assert opened.live_files() == {}
