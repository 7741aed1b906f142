"""Sources that are tables of Postgres, read by logical decoding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema

from milepost.jobspec.job.sources.landed_source import LandedSourceSpec, LandRules
from milepost.language import ColumnName, ColumnType, ConnId, Many, Size, Text, Type, parse_type

METADATA_TYPES: Mapping[str, ColumnType] = {
    "op": parse_type("string"),
    "lsn": parse_type("int64"),
    "number": parse_type("int64"),
    "commit_time": parse_type("timestamp[us, UTC]"),
    "xid": parse_type("int64"),
}
"""What a column of `metadata` takes from a change -> its type."""

NEEDED_METADATA = ("op", "lsn", "number")
"""Without `op` a deleted row looks like one of nulls; the others order the changes of a row."""

_TABLE = r"^[^.\s\"]{1,63}\.[^.\s\"]{1,63}$"


def _check_table(text: str) -> str:
    if not re.fullmatch(_TABLE, text) or not text.isprintable():
        raise ValueError(f"expected SCHEMA.TABLE, without quotes, spaces and further dots, got {text!r}")
    return text


TableText = Annotated[str, AfterValidator(_check_table), WithJsonSchema({"type": "string", "pattern": _TABLE})]


class PostgresLandLimits(LandRules):
    """When the source is landed, and limits on what a landing appends to the log as one record.

    A landing appends as many records as it needs. A record has whole transactions. One with more than 10,000 rows, or
    16 MB of them, has a record of its own, however large it is.

    Attributes:
        max_rows: a record ends with the transaction that reaches this number of rows.
        max_bytes: or this size of their texts.
    """

    max_rows: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    max_bytes: Annotated[Size, Field(ge=1)] = 256_000_000


class PostgresSourceSpec(LandedSourceSpec):
    """The changes of a Postgres table, read by logical decoding, after a copy of its rows.

    Each change is a row. An update of the key is two: a delete of the old key, and an update. The server needs
    `wal_level = logical`, and the table a publication of its own.

    Attributes:
        format: always postgres.
        dsn: the database, `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`. `${env:…}` is allowed, and required for a
            password. null if `conn_id` is given.
        conn_id: Airflow Connection of type `postgres`, instead of `dsn`. Outside Airflow it is read from the
            environment variable `AIRFLOW_CONN_<ID>`. null if `dsn` is given.
        table: name of the table, `schema.name`.
        publication: a publication of this table alone, with all operations.
        key: columns of the table's primary key, or of another unique index if the table has REPLICA IDENTITY FULL.
            Without FULL, a deleted row has these columns only.
        table_columns: columns of the table, by name. Others are not landed. `string` takes the text of every type. The
            order matters: a new table has its columns in this order, then those of `metadata`.
        metadata: further columns, by name, of the change itself: op (insert, update, delete, or copy), lsn (where the
            transaction was committed, as a number), number (of the change in its transaction, from 1), commit_time or
            xid. op, lsn and number are required: lsn and number, in this order, order all changes.
        start: copy: a new log begins with a copy of the table's rows. latest: with the changes from then on. It cannot
            be changed later.
        land: how the source is landed.
    """

    format: Literal["postgres"]
    dsn: Text | None = None
    conn_id: ConnId | None = None
    table: TableText
    publication: Annotated[Text, Field(max_length=63)]
    key: Annotated[Many[ColumnName], Field(min_length=1)]
    table_columns: Annotated[dict[ColumnName, Type], Field(alias="schema", min_length=1)]
    metadata: dict[ColumnName, Literal["op", "lsn", "number", "commit_time", "xid"]]
    start: Literal["copy", "latest"] = "copy"
    land: PostgresLandLimits = PostgresLandLimits()

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        return self.table_columns | {name: METADATA_TYPES[item] for name, item in self.metadata.items()}

    @property
    def column_names(self) -> tuple[str, ...]:
        return (*self.table_columns, *self.metadata)

    @property
    def identity(self) -> dict[str, str]:
        """The database is known by its id once it is landed; the log has that."""
        texts = {"table": self.table, "publication": self.publication, "key": ", ".join(self.key), "start": self.start}
        return {"format": self.format, **texts}

    @property
    def location(self) -> str:
        return f"postgres:{self.table}"

    @property
    def connection_texts(self) -> dict[tuple[str, ...], str]:
        return {} if self.dsn is None else {("dsn",): self.dsn}

    def with_connection_texts(self, texts: Mapping[tuple[str, ...], str]) -> Self:
        return self.model_copy(update={"dsn": texts.get(("dsn",), self.dsn)})
