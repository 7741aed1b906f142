"""The sources of a job spec: which objects, how they are read, and which of them an epoch takes."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from milepost.spec.values.fields import ColumnName, Duration, Size, SpecModel, Start, Text, Type, start_time_ms


class EpochLimits(SpecModel):
    """Caps of one epoch's input, soft at object borders: at least one object, never part of one."""

    max_files: Annotated[int, Field(ge=1)] | None = None
    max_bytes: Annotated[Size, Field(ge=1)] | None = None


class SourceSpec(SpecModel):
    """Objects that keep landing under a path.

    Attributes:
        columns: `schema` in the file: the columns of the objects, by name.
        partitions: further columns, taken from `name=value` parts of the object's key.
        event_time: column that times rows; None = a static source, without watermark.
        max_event_time_ahead: a row whose event time is further ahead of the trigger of its epoch is kept, and does not
            move the watermark; None: every row does.
        start: earliest, latest or a time: which objects the first epoch takes. latest: what it finds is recorded as
            consumed, but for objects that may still be written (`settle`), which are new.
        on_bad_name: what an object means whose name cannot be used: fail, or skip (left out, counted and named).
        settle: an object of a local path that was modified less than so long ago is left for the next plan; 0s: none.
    """

    format: Literal["csv", "json", "parquet"]
    path: Text
    options: dict[str, Any] = Field(default_factory=dict)
    partitions: dict[ColumnName, Type] = Field(default_factory=dict)
    columns: Annotated[dict[ColumnName, Type], Field(alias="schema", min_length=1)]
    event_time: ColumnName | None = None
    watermark_delay: Duration = timedelta(0)
    max_event_time_ahead: Duration | None = timedelta(days=7)
    start: Start = "earliest"
    limits_per_epoch: EpochLimits = EpochLimits()
    on_change: Literal["fail", "ignore", "reprocess"] = "fail"
    on_missing: Literal["fail", "skip"] = "fail"
    on_bad_name: Literal["fail", "skip"] = "fail"
    settle: Duration = timedelta(seconds=2)
    bad_records: Literal["fail"] = "fail"

    @property
    def start_time_ms(self) -> int | None:
        """Milliseconds of a `start` that is a time; None for earliest and latest."""
        return None if self.start in ("earliest", "latest") else start_time_ms(self.start)
