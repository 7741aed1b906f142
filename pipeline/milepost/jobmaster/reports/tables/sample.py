"""Sample a table as readers see it now: a few rows of its newest file, as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import Any

import pyarrow as pa

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import current_table
from milepost.jobmaster.reports.tables.table_files import recorded_files
from milepost.language.times import python_values
from milepost.sinks import first_rows
from milepost.tables.records import decode_schema

SAMPLED_ROWS = 20

CELL_CHARACTERS = 200
"""A longer value is cut."""


@dataclass(frozen=True, slots=True)
class TableSample:
    """Rows of a table's newest file.

    Attributes:
        checkpoint_id: the checkpoint that the table shows now, by its own mark; 0: the empty table.
        version: of the table for its readers, such as the version of Delta; None: its format has none.
        file: key of the file; None: the table has no rows.
        rows: values as text, None for null. cut: number of values that were cut.
        left_out: columns with values that are too large for a sample, or beyond the first ones.
    """

    checkpoint_id: int
    version: str | None
    file: str | None
    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    cut: int
    left_out: tuple[str, ...]


def table_sample(context: JobContext, name: str) -> TableSample:
    """Return a sample of a sink's table.

    Raises: NotFound: no such sink. InvalidRequest: what the table shows is in none of the job's records. StateCorrupt:
        the file is missing or damaged. StoreUnavailable, EnvironmentUnusable: the table cannot be reached.
    """
    sink, position = current_table(context, name)
    contents, version = position.contents, position.readers_version
    files = [file for file in recorded_files(context, contents).newest if file.rows]
    if contents is None or not files:
        return TableSample(0 if contents is None else contents.checkpoint_id, version, None, (), (), 0, ())
    sample = first_rows(name, sink.store, files[-1], decode_schema(contents.schema), SAMPLED_ROWS)
    columns, cut = [], 0
    for column in sample.rows.columns:
        values, shortened = _texts(column)
        columns.append(values)
        cut += shortened
    return TableSample(
        contents.checkpoint_id,
        version,
        files[-1].key,
        tuple(sample.rows.column_names),
        tuple(zip(*columns, strict=True)),
        cut,
        sample.left_out,
    )


def _texts(column: pa.ChunkedArray) -> tuple[Sequence[str | None], int]:
    """Return the values as text, and how many of them were cut."""
    texts = [None if value is None else _text(value) for value in python_values(column)]
    cut = [text for text in texts if text is not None and len(text) > CELL_CHARACTERS]
    return [text if text is None or len(text) <= CELL_CHARACTERS else _cut(text) for text in texts], len(cut)


def _cut(text: str) -> str:
    return f"{text[: CELL_CHARACTERS - 1]}…"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=_text)
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, date | time) else str(value)
