"""Read and change the Postgres table of a law's job by SQL, in `PG_DSN`."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

SERVED = "served"
"""The sink, its table, and the operator whose updates and deletes it gets."""

SINK = {
    "name": SERVED, "input": SERVED, "format": "postgres", "mode": "upsert", "dsn": "${env:PG_DSN}",
    "table": f"public.{SERVED}",
}  # fmt: skip


def served_operator(source: str, *, few: bool) -> dict[str, Any]:
    """Return an operator with the newest row per key, some of which are deletes.

    Args:
        few: use the names of `NARROW` as keys, so that each object replaces or deletes earlier rows. Otherwise the
            keys are times. Keys are never null.
    """
    key, sequence = ("k", ["t", "i"]) if few else ("t", ["i", "f"])
    return {
        "uid": SERVED,
        "kind": "latest",
        "inputs": [source],
        "key": [key],
        "sequence_by": sequence,
        "delete_when": "x > 1",
        "columns": ["t", "i", "f", "k"],
    }


def served_rows(schema: pa.Schema) -> pa.Table:
    """Return the rows of the table with these columns."""
    listed = sql.SQL(", ").join(map(sql.Identifier, schema.names))
    rows = _run(sql.SQL("SELECT {} FROM {}").format(listed, _TABLE)).fetchall()
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def empty_table() -> None:
    """Delete its rows from outside the job."""
    _run(sql.SQL("DELETE FROM {}").format(_TABLE))


def drop_table() -> None:
    """Drop the table, if it exists."""
    _run(sql.SQL("DROP TABLE IF EXISTS {}").format(_TABLE))


_TABLE = sql.Identifier("public", SERVED)
_OPTIONS = "-c TimeZone=UTC -c DateStyle=ISO -c client_min_messages=warning"


def _run(statement: sql.Composed) -> psycopg.Cursor[tuple[Any, ...]]:
    with psycopg.connect(os.environ["PG_DSN"], options=_OPTIONS) as connection:
        return connection.execute(statement)
