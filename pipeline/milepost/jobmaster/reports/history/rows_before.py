"""Find the published rows of the keys that a rule refused, in a small upsert table.

A large table is not searched: that would read all of it. So a person sees what a key had before the refused epoch if
the table has at most `MAX_ROWS` rows in `MAX_BYTES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import current_table
from milepost.jobmaster.reports.history.incident import Incident, RefusingRule
from milepost.jobmaster.reports.tables.table_files import recorded_files
from milepost.quality import rows_at
from milepost.sinks import SinkMode

MAX_BYTES = 4 << 20
MAX_ROWS = 50_000
"""Bounds of a table that is searched. Rows of change files include replaced ones."""


@dataclass(frozen=True, slots=True)
class RowsBefore:
    """What readers of a table see for the keys that a rule refused.

    Attributes:
        rows: for each refused row, that of the same key, with the same columns; None: the table has no such key.
        problem: why the table was not searched; "" if it was.
    """

    rows: tuple[Mapping[str, Any] | None, ...] = ()
    problem: str = ""


def rows_before(context: JobContext, incident: Incident) -> list[RowsBefore]:
    """Return the published rows for each rule of an incident. Reads the tables.

    Raises: StateCorrupt, StoreUnavailable, EnvironmentUnusable, InvalidRequest: a table cannot be read.
    """
    return [_before(context, rule) for rule in incident.rules]


def _before(context: JobContext, rule: RefusingRule) -> RowsBefore:
    has_keys = bool(rule.key) and all(name in row for row in rule.rows for name in rule.key)
    if not rule.rows or not has_keys or rule.sink not in {sink.name for sink in context.spec.sinks}:
        return RowsBefore()
    sink, position = current_table(context, rule.sink)
    contents = position.contents
    if sink.stored_mode_and_key()[0] is not SinkMode.UPSERT or contents is None:
        return RowsBefore()
    size = recorded_files(context, contents).bytes
    if size is None or size > MAX_BYTES or contents.rows > MAX_ROWS:
        return RowsBefore(problem=f"the table is too large to search for these keys: {contents.rows:,} rows")
    wanted = {_key(row, rule.key) for row in rule.rows}
    found: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for piece in sink.pieces(contents):
        keys = rows_at(piece, range(piece.num_rows), rule.key)
        positions = [at for at, row in enumerate(keys) if _key(row, rule.key) in wanted]
        found |= {_key(row, rule.key): row for row in rows_at(piece, positions, list(rule.rows[0]))}
    return RowsBefore(tuple(found.get(_key(row, rule.key)) for row in rule.rows))


def _key(row: Mapping[str, Any], key: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in key)
