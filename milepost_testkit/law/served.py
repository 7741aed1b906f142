"""The table of a law's job in Postgres, read and changed by SQL, in the database of `PG_DSN`."""

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
    """Return an operator with the newest row of each key, of which some are deletes.

    Args:
        few: of each name of `NARROW`, so that each object replaces or deletes rows of those before it. Otherwise
            of each moment. Neither is ever null.
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
    """Return the rows of the table, in these columns."""
    listed = sql.SQL(", ").join(map(sql.Identifier, schema.names))
    rows = _run(sql.SQL("SELECT {} FROM {}").format(listed, _TABLE)).fetchall()
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def empty_table() -> None:
    """Delete its rows, behind the job's back."""
    _run(sql.SQL("DELETE FROM {}").format(_TABLE))


def drop_table() -> None:
    """Drop it, if it is there."""
    _run(sql.SQL("DROP TABLE IF EXISTS {}").format(_TABLE))


_TABLE = sql.Identifier("public", SERVED)
_OPTIONS = "-c TimeZone=UTC -c DateStyle=ISO -c client_min_messages=warning"


def _run(statement: sql.Composed) -> psycopg.Cursor[tuple[Any, ...]]:
    with psycopg.connect(os.environ["PG_DSN"], options=_OPTIONS) as connection:
        return connection.execute(statement)
