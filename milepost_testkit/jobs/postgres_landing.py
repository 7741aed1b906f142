"""Land a Postgres table without a job: what the lander would store, record by record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import CheckpointError
from milepost.jobspec.job import EventTimeSpec, PostgresAccess
from milepost.language import parse_type
from milepost.protocol.landed import Position
from milepost.sources.landed import (
    LandedSource,
    PostgresTable,
    Reached,
    TableName,
    open_postgres_source,
    slot_name,
    stored_position,
)
from milepost_testkit.servers.postgres_server import Database

METADATA = {"op": "op", "lsn": "lsn", "number": "number", "committed": "commit_time", "xid": "xid"}
_TYPES = {"op": "string", "lsn": "int64", "number": "int64", "commit_time": "timestamp[us, UTC]", "xid": "int64"}


@dataclass
class PostgresLog:
    """The log of one table, `public.t` by default, and how a source of it is opened.

    Attributes:
        schema: declared columns. position: after the newest record. records: rows of each. behind: likewise of each.
        job_identity: another one has another slot.
    """

    database: Database
    schema: Mapping[str, str]
    key: tuple[str, ...] = ("id",)
    start: str = "latest"
    table: str = "public.t"
    publication: str = "p"
    event_time: str | None = None
    max_rows: int = 100_000
    max_bytes: int = 256_000_000
    job_identity: str = "one"
    position: Position = None
    records: list[pa.Table] = field(default_factory=list)
    behind: list[tuple[str, ...]] = field(default_factory=list)

    def source(self, *, may_create: bool = True, dsn: str | None = None) -> LandedSource:
        """Open the source for one landing."""
        declared = {name: parse_type(type_) for name, type_ in self.schema.items()}
        metadata = {name: parse_type(_TYPES[item]) for name, item in METADATA.items()}
        return open_postgres_source(
            "t",
            PostgresTable(
                TableName(*self.table.split(".")), self.publication, self.key, declared, METADATA, self.start == "copy"
            ),
            lambda: PostgresAccess("the `dsn` of source t", dsn=dsn or self.database.dsn),
            declared | metadata,
            None if self.event_time is None else EventTimeSpec(column=self.event_time),
            slot=slot_name("shop", "t", f"{self.database.name} {self.job_identity}"),
            max_rows=self.max_rows,
            max_bytes=self.max_bytes,
            may_create=may_create,
        )

    @property
    def slot(self) -> str:
        return str(self.source().identity()["slot"])

    def begin(self) -> None:
        """Begin the log, which creates the slot."""
        source = self.source()
        source.identity()
        self.position = stored_position("t", source.initial_position())

    def land(self, *, acknowledge: bool = True, most: int = 1_000) -> list[dict[str, Any]]:
        """Land to the end, or at most so many records, as the lander does. Returns the new rows."""
        source = self.source()
        source.identity()
        if self.position is None:
            self.position = stored_position("t", source.initial_position())
        else:
            source.commit(self.position)
        first = len(self.records)
        while len(self.records) - first < most and (pull := source.next_pull(self.position)) is not None:
            batches: list[pa.RecordBatch] = []
            end, behind = None, ()
            for item in source.read(pull.splits[0]):
                if isinstance(item, Reached):
                    end, behind = stored_position("t", item.position), item.behind
                else:
                    batches.append(item)
            if not batches:
                break
            assert end is not None and end != self.position
            self.records.append(pa.Table.from_batches(batches))
            self.behind.append(behind)
            self.position = end
            if acknowledge:
                source.commit(end)
        return [row for table in self.records[first:] for row in table.to_pylist()]

    def changes(self, **options: Any) -> list[tuple[Any, ...]]:
        """Land, and return op and declared columns of each new row."""
        return [(row["op"], *(row[name] for name in self.schema)) for row in self.land(**options)]

    def table_now(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """Return what an upsert table of all landed rows shows: the newest row of each key, without deleted ones."""
        newest: dict[tuple[Any, ...], dict[str, Any]] = {}
        for record in self.records:
            for row in record.to_pylist():
                key = tuple(row[name] for name in self.key)
                held = newest.get(key)
                if held is None or (held["lsn"], held["number"]) < (row["lsn"], row["number"]):
                    newest[key] = row
        return {key: tuple(row[name] for name in self.schema) for key, row in newest.items() if row["op"] != "delete"}

    def refused(self, error: type[CheckpointError], *words: str, dsn: str | None = None) -> CheckpointError:
        """Land once more, and return the error, whose message and hint have the words and no secret."""
        source = self.source(dsn=dsn)
        with pytest.raises(error) as raised:
            source.identity()
            position = self.position if self.position is not None else source.initial_position()
            pull = source.next_pull(position)
            if pull is not None:
                list(source.read(pull.splits[0]))
        text = raised.value.full_message()
        missing = [word for word in words if word not in text]
        assert not missing, (missing, text)
        assert self.database.password not in text
        return raised.value


def replicated(database: Database, *statements: str, publication: str = "p", table: str = "t") -> None:
    """Let the user replicate, under settings that change how values are written; make a table and its publication."""
    database.run_as_superuser(f'ALTER ROLE "{database.user}" REPLICATION')
    for setting in ("bytea_output = 'escape'", "extra_float_digits = -3", "IntervalStyle = 'iso_8601'"):
        database.run_as_superuser(f'ALTER ROLE "{database.user}" SET {setting}')
    for statement in statements:
        database.run(statement)
    database.run(f"CREATE PUBLICATION {publication} FOR TABLE {table}")
