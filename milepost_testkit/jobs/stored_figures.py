"""Stored figures of epochs that never ran, as the job master would have written them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from milepost.jobmaster.figures.row import day_of
from milepost.jobmaster.figures.row_file import encode_rows, table_of
from milepost.jobmaster.figures.timings import PHASES
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.layout import figures_key

Row = dict[str, Any]


def epoch_rows(
    count: int, end_ms: int, step_ms: int, *, timeline: str = "main", nodes: int = 4, **values: Any
) -> Iterator[Row]:
    """Yield the rows of epochs 1 to `count`, of which the newest ends at a time. Every 97th had many late rows.

    Args:
        step_ms: between two epochs. nodes: operators with figures. values: of other columns, such as a `version` that
            the job's manifest has.
    """
    for number in range(1, count + 1):
        rows, took = 1_000 + number % 97, 2_000 + number * 37 % 7_000
        ended = end_ms - (count - number) * step_ms
        yield {
            "checkpoint_id": number, "epoch": number, "timeline": timeline, "parent": number - 1, "token": number,
            "version": 3 * number, "status": "completed", "trigger_time": ended - took, "end_time": ended,
            "duration_ms": took, "rows_in": rows, "rows_out": rows // 2, "late_rows": 0 if number % 97 else rows // 2,
            "dropped_rows": 0, "bad_records": 0, "quality": "passed", "state_bytes": 1_000 * number, "lag_ms": 1_000,
            "phases": [(f"{phase}_ms", took // len(PHASES)) for phase in PHASES] + [("total_ms", took)],
            "code_hash": "a" * 64, "spec_hash": "b" * 64,
            "sources": [("rows", {"rows": rows, "objects": 1, "bad_records": 0})],
            "operators": [(f"op{at}", {"rows_in": rows, "rows_out": rows, "busy_ms": at}) for at in range(nodes)],
            "sinks": [("table", {"rows": rows, "table_rows": number * rows})],
            **values,
        }  # fmt: skip


def store_rows(context: JobContext, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows into the job's store, one object per day, as after the end of each day.

    Rows are in descending order, so that those with one `version` are a lineage too.
    """
    ordered = sorted(rows, key=lambda row: row["end_time"], reverse=True)
    for day, those in groupby(ordered, key=lambda row: day_of(row["end_time"])):
        own = [dict(row) for row in those]
        key = figures_key(day, max(row["version"] for row in own), uuid.uuid4().hex)
        context.store.put(key, encode_rows(table_of(own)))
