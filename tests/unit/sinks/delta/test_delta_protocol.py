"""No commit of ours changes the protocol of a Delta table, unless a new column requires a feature."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties

from milepost.errors import CommitConflict, InvalidRequest
from milepost.sinks.formats.delta.delta_log import JobCommit
from milepost.tables.records.reservation import TableOwner
from milepost_testkit import wording
from milepost_testkit.formats.delta_table import (
    DAY_MS,
    OWNER,
    SCHEMA,
    DeltaTableUnderTest,
    foreign_delta_table,
    rows,
    write_id,
)
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines

NTZ = pa.schema([*SCHEMA, ("at", pa.timestamp("us"))])
NESTED_NTZ = pa.schema([*SCHEMA, ("visits", pa.list_(pa.struct([("at", pa.timestamp("us"))])))])
ANOTHER = TableOwner("orders", "another life", "totals")

Protocol = dict[str, Any]

LEGACY: dict[str, Protocol] = {
    f"{reader}-{writer}": {"minReaderVersion": reader, "minWriterVersion": writer}
    for reader, writer in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 5))
}
NAMED: dict[str, Protocol] = {
    "writer features": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]},
    "no features": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []},
    "timestamps": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["changeDataFeed", "timestampNtz"],
    },
}
PROTOCOLS = LEGACY | NAMED


def protocol_of(table: DeltaTableUnderTest) -> Protocol:
    """Return the protocol as the library reads it, in the log's own form."""
    read = table.others.protocol()
    versions: Protocol = {"minReaderVersion": read.min_reader_version, "minWriterVersion": read.min_writer_version}
    if read.reader_features is not None and read.min_reader_version == 3:
        versions["readerFeatures"] = sorted(read.reader_features)
    if read.writer_features is not None and read.min_writer_version == 7:
        versions["writerFeatures"] = sorted(read.writer_features)
    return versions


def adopt(table: DeltaTableUnderTest) -> None:
    opened = table.open()
    opened.claim(OWNER, opened.missing_properties(OWNER), (0, write_id(0)))


def move(table: DeltaTableUnderTest) -> None:
    file = table.stage(rows(1))
    table.move(table.open().number + 1, [file])
    table.move(table.open().number + 1, [], [file])


def keep_log_short(table: DeltaTableUnderTest) -> None:
    for _ in range(10):
        table.move(table.open().number + 1)
    table.format.maintain(0)
    for stat in list(table.store.list("_delta_log/0")):
        if stat.key.endswith(".json"):
            table.store.delete([stat.key])
    assert [stat.key for stat in table.store.list("_delta_log/0")], "a checkpoint holds the table"


def take_over(table: DeltaTableUnderTest) -> None:
    opened = table.open()
    opened.claim(ANOTHER, opened.missing_properties(ANOTHER), (7, write_id(7)))


def retain_longer(table: DeltaTableUnderTest) -> None:
    table.retention_ms *= 9
    opened = table.open()
    opened.claim(OWNER, opened.missing_properties(OWNER), None)


def add_column(table: DeltaTableUnderTest) -> None:
    opened = table.open()
    opened.widen(pa.schema([*(opened.schema or SCHEMA), ("price", pa.float64())]))


COMMITS: dict[str, Callable[[DeltaTableUnderTest], None]] = {
    "move": move,
    "take over": take_over,
    "retain longer": retain_longer,
    "add a column": add_column,
    "keep the log short": keep_log_short,
}


@pytest.fixture
def table(tmp_path: Path) -> DeltaTableUnderTest:
    return DeltaTableUnderTest.in_folder(tmp_path / "table")


@pytest.mark.deep
@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS)
def test_no_commit_changes_the_protocol_of_an_adopted_table(
    table: DeltaTableUnderTest, protocol: Protocol, commit: Callable[[DeltaTableUnderTest], None]
) -> None:
    """Rule: readers that could read a table before it was adopted can read it after every commit (TABLES 1.11)."""
    schema = NTZ if "timestampNtz" in protocol.get("readerFeatures", ()) else SCHEMA
    foreign_delta_table(table.store, schema, protocol)
    before = protocol_of(table)
    adopt(table)
    assert protocol_of(table) == before, "adopting it"
    commit(table)
    assert protocol_of(table) == before
    table.open().check(schema)


@pytest.mark.deep
@pytest.mark.parametrize("schema", [SCHEMA, NTZ, NESTED_NTZ], ids=["plain", "timestamp", "nested timestamp"])
@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS)
def test_no_commit_changes_the_protocol_of_a_table_of_ours(
    table: DeltaTableUnderTest, schema: pa.Schema, commit: Callable[[DeltaTableUnderTest], None]
) -> None:
    """The library's own call for properties adds `variantType` wherever the table has named features."""
    table.create(schema)
    before = protocol_of(table)
    commit(table)
    assert protocol_of(table) == before
    table.open().check(schema)


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
@pytest.mark.parametrize("wider", [NTZ, NESTED_NTZ], ids=["column", "nested"])
def test_a_new_timestamp_adds_its_feature_and_keeps_all_others(
    table: DeltaTableUnderTest, protocol: Protocol, wider: pa.Schema
) -> None:
    """A timestamp without a zone requires `timestampNtz`; what the legacy versions stood for is then named."""
    legacy = {
        1: set[str](),
        2: {"appendOnly", "invariants"},
        3: {"appendOnly", "invariants", "checkConstraints"},
        4: {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"},
        5: {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"},
        7: {*protocol.get("writerFeatures", ())},
    }
    foreign_delta_table(table.store, SCHEMA, protocol)
    adopt(table)
    table.open().widen(wider)
    after = protocol_of(table)
    assert (after["minReaderVersion"], after["minWriterVersion"]) == (3, 7)
    assert after["readerFeatures"] == ["timestampNtz"]
    assert {*after["writerFeatures"]} == legacy[protocol["minWriterVersion"]] | {"timestampNtz"}
    table.open().check(wider)
    table.move(1, [table.stage(rows(1, schema=wider))])
    assert table.keys() == [1] and table.open().schema == wider


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_read_a_table_after_every_kind_of_commit(
    table: DeltaTableUnderTest, reading_engines: ReadingEngines, engine: str
) -> None:
    """What we write into the log ourselves is what their own readers of Delta expect there."""
    foreign_delta_table(table.store, SCHEMA, LEGACY["1-4"])
    adopt(table)
    table.move(1, [table.stage(rows(1))])
    table.open().widen(NTZ)
    table.move(2, [table.stage(rows(2, schema=NTZ))])
    retain_longer(table)
    take_over(table)
    found = reading_engines.read(engine, table.store.config.url.removeprefix("file://"))
    assert sorted(found.column("k").to_pylist()) == [1, 2] and "at" in found.column_names


def test_a_column_that_is_added_to_a_table_that_we_cannot_write_changes_nothing(table: DeltaTableUnderTest) -> None:
    """An engine switched column mapping on after `prepare` looked: a named protocol would say that it is off."""
    key = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"}
    name = {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "c2"}
    foreign_delta_table(
        table.store,
        SCHEMA,
        LEGACY["2-5"],
        {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"},
        metadata=(key, name),
    )
    with wording.raises(InvalidRequest):
        table.open().widen(NTZ)
    assert table.others.version() == 0


def test_a_writer_version_that_the_library_does_not_write_is_refused_by_its_number(table: DeltaTableUnderTest) -> None:
    """Version 6 stands for identity columns: found after the commit point, every try would fail."""
    foreign_delta_table(table.store, SCHEMA, {"minReaderVersion": 2, "minWriterVersion": 6})
    with wording.raises(InvalidRequest):
        table.open().check(SCHEMA)


def test_everything_else_that_the_log_says_of_a_table_stays(table: DeltaTableUnderTest) -> None:
    """Name, description, time of creation, properties of others and metadata of columns outlive a claim."""
    properties = {"theirs": "yes", "delta.checkpointInterval": "7"}
    comments = ({"comment": "who, “the” key", "width": 7}, {})
    foreign_delta_table(table.store, SCHEMA, LEGACY["1-2"], properties, metadata=comments)
    before, columns = table.others.metadata(), json.loads(table.others.schema().to_json())
    adopt(table)
    table.open().widen(pa.schema([*SCHEMA, ("price", pa.float64())]))
    after = table.others.metadata()
    for name in ("id", "name", "description", "created_time", "partition_columns"):
        assert getattr(after, name) == getattr(before, name), name
    assert before.configuration.items() <= after.configuration.items()
    assert json.loads(table.others.schema().to_json())["fields"][:2] == columns["fields"]
    assert table.others.history()[0]["operation"] == "ADD COLUMNS"
    assert table.others.history()[1]["operation"] == "SET TBLPROPERTIES"


def test_a_claim_on_an_outdated_handle_is_refused(table: DeltaTableUnderTest) -> None:
    """Rule: a commit of properties is a compare-and-set on the version of its handle, as every other is."""
    table.create(NTZ)
    outdated = table.open()
    table.move(1)
    with wording.raises(CommitConflict):
        outdated.claim(OWNER, {"delta.logRetentionDuration": "interval 99 days"}, None)
    assert "99 days" not in str(table.others.metadata().configuration)


# -- tables that an earlier version changed --------------------------------------------------------------------------


def bricked(table: DeltaTableUnderTest, schema: pa.Schema = NTZ) -> None:
    """Change a property as earlier versions did: by the library, which also adds `variantType`."""
    table.create(schema)
    table.move(1, [table.stage(rows(1, schema=schema))])
    table.others.alter.set_table_properties(
        {"delta.logRetentionDuration": f"interval {14 * DAY_MS // 1000} seconds"},
        commit_properties=CommitProperties(JobCommit(OWNER.identity, OWNER.sink).as_metadata()),
    )
    assert "variantType" in protocol_of(table)["readerFeatures"]


def test_a_table_that_an_earlier_version_changed_is_written_again_and_freed(table: DeltaTableUnderTest) -> None:
    """Its next epoch is not refused, and the upkeep after that drops the feature: all readers are back."""
    bricked(table)
    table.open().check(NTZ)
    table.move(2, [table.stage(rows(2, schema=NTZ))])
    table.format.maintain(table.retention_ms)
    assert protocol_of(table)["readerFeatures"] == ["timestampNtz"]
    assert "variantType" not in protocol_of(table)["writerFeatures"]
    opened = table.open()
    assert (opened.number, opened.foreign_commits()) == (2, ()) and table.keys() == [1, 2]
    version = table.others.version()
    table.format.maintain(table.retention_ms)
    assert table.others.version() == version, "it is done once"


def test_the_feature_stays_where_another_writer_added_it(table: DeltaTableUnderTest) -> None:
    """No column uses it, so the table can be written; whether it is needed is its writer's decision."""
    table.create(NTZ)
    table.others.alter.set_table_properties({"theirs": "1"}, raise_if_not_exists=False)
    assert "variantType" in protocol_of(table)["readerFeatures"]
    before = protocol_of(table)
    table.open().check(NTZ)
    table.move(1, [table.stage(rows(1, schema=NTZ))])
    table.format.maintain(table.retention_ms)
    assert protocol_of(table) == before


def test_the_feature_stays_where_we_only_repeated_it(table: DeltaTableUnderTest) -> None:
    """The library writes the whole protocol with each change of properties, also what was there before."""
    table.create(NTZ)
    table.others.alter.set_table_properties({"theirs": "1"}, raise_if_not_exists=False)
    table.others.alter.set_table_properties(
        {"ours": "1"},
        raise_if_not_exists=False,
        commit_properties=CommitProperties(JobCommit(OWNER.identity, OWNER.sink).as_metadata()),
    )
    before = protocol_of(table)
    table.move(1)
    table.format.maintain(table.retention_ms)
    assert protocol_of(table) == before
