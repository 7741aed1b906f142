"""The sources of a job spec: which objects, how they are read, and which of them an epoch takes."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from milepost.spec.job.csv_records import csv_whole_because
from milepost.spec.job.event_time_spec import EventTime
from milepost.spec.values.fields import (
    ColumnName,
    Duration,
    Many,
    PositiveDuration,
    Size,
    SpecModel,
    Start,
    Text,
    Type,
    start_time_ms,
)
from milepost.spec.values.types import ColumnType


class EpochLimits(SpecModel):
    """Caps of one epoch's input, soft at object borders: at least one object, never part of one.

    Attributes:
        max_files: objects of one epoch; null: any number.
        max_bytes: their bytes as stored; null: any number.
    """

    max_files: Annotated[int, Field(ge=1)] | None = None
    max_bytes: Annotated[Size, Field(ge=1)] | None = None


class SourceSpec(SpecModel):
    """Objects that keep landing under a path.

    Attributes:
        format: what the objects are: csv, json (a JSON object per line) or parquet.
        path: which objects: an S3 or file URL, or a path relative to the spec. `*` within one part, `**` across parts.
            `.gz`, `.zst` and `.bz2` are decompressed. What the job itself writes is refused.
        options: of the format's pyarrow reader, by their names there; json and parquet have none. With
            `newlines_in_values: false` a large csv object is read in parts.
        partitions: further columns, taken from `name=value` parts of the object's key.
        columns: the columns of the objects, by name. Each object has them all, a csv in its header, a json in some
            line; where a line leaves one out it is null. Further ones are passed over. A csv cannot hold lists
            and structs; a decimal, a date or a time of json may be a text. A new table has its columns in this order,
            which also breaks ties between rows.
        optional_columns: those of `schema` that an object may lack, all of whose rows then have null: one that came
            later, a json field that no line of a small object has. A column whose name is wrong is null as well.
            Not `event_time`; not with `column_names`.
        static: what its objects hold is looked up, as it is when an epoch is triggered, and is no stream: it may feed
            lookups only, has no watermark, and no object of it is ever consumed. Only `format`, `path`, `options`,
            `partitions`, `schema`, `optional_columns`, `on_bad_name`, `settle` and `dimension_limit` go with it.
        dimension_limit: bytes in memory that the rows of a static source may take; an epoch with more is refused.
            Needs `static`.
        event_time: the column that times rows: its name, if it is a timestamp or a date, or a mapping that says how it
            is read as a time; null: none, and no watermark.
        watermark_delay: how far the watermark stays behind the newest event time read. Needs `event_time`.
        max_event_time_ahead: a row whose event time is further ahead of the trigger of its epoch is kept, and does not
            move the watermark; null: every row does. Needs `event_time`.
        idle_timeout: a source in which nothing new was found for so long holds back no operator that also reads others,
            until it gives rows again: those are late where windows have been emitted meanwhile. Needs `event_time`.
            null: it holds them back for ever.
        start: earliest, latest or a time: which objects the first epoch takes. latest: what it finds is recorded as
            consumed, but for objects that may still be written (`settle`), which are new.
        limits_per_epoch: caps of one epoch's input.
        on_change: when a consumed object now has another version: fail, ignore (it stays as consumed) or reprocess (it
            is read again).
        on_missing: when a planned object is gone before it is read: fail, or skip (it is read when it is back).
        on_bad_name: when an object's name cannot be used: fail, or skip (it is left out, counted and named).
        settle: an object of a local path that was modified less than so long ago is left for the next plan; 0s: none.
            Refused on S3, where an object appears as a whole.
        expect_every: how long nothing may land before somebody should look: `status` exits with 6, and `run`, `show`
            and the Checkpoints page say it, as they do of a path that never named an object. null: nothing is expected.
        forget_after: a consumed object that is gone and was last modified so long before the newest one is forgotten.
            An object that is as old, and not remembered, is never read: it fails the plan, or is left out and counted
            with `on_change: ignore`. Not with `on_missing: skip`. null: everything is remembered.
        bad_records: when a record cannot be read: fail, the epoch fails; dead_letter, it goes to `<source>.bad`, which
            a sink of mode append may read, and all others are read.
        max_bad_ratio: the epoch fails when a larger share of a source's records cannot be read, 0 to 1; null: any.
            Needs `bad_records: dead_letter`, as the next three.
        min_rows: `max_bad_ratio` is judged only where an epoch has at least so many records of the source.
        max_bad_records: the epoch fails when more of a source's records cannot be read; null: any number.
        on_bad_object: when an object cannot be read at all, or nobody can tell where its records end: fail, or
            dead_letter (one row in `<source>.bad`, and none of its records is read).
    """

    format: Literal["csv", "json", "parquet"]
    path: Text
    options: dict[str, Any] = Field(default_factory=dict)
    partitions: dict[ColumnName, Type] = Field(default_factory=dict)
    columns: Annotated[dict[ColumnName, Type], Field(alias="schema", min_length=1)]
    optional_columns: Many[ColumnName] = ()
    static: bool = False
    dimension_limit: Annotated[Size, Field(ge=1)] = 256_000_000
    event_time: EventTime | None = None
    watermark_delay: Duration = timedelta(0)
    max_event_time_ahead: Duration | None = timedelta(days=7)
    idle_timeout: PositiveDuration | None = None
    start: Start = "earliest"
    limits_per_epoch: EpochLimits = EpochLimits()
    on_change: Literal["fail", "ignore", "reprocess"] = "fail"
    on_missing: Literal["fail", "skip"] = "fail"
    on_bad_name: Literal["fail", "skip"] = "fail"
    settle: Duration = timedelta(seconds=2)
    expect_every: PositiveDuration | None = None
    forget_after: PositiveDuration | None = None
    bad_records: Literal["fail", "dead_letter"] = "fail"
    max_bad_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    min_rows: Annotated[int, Field(ge=1)] = 1
    max_bad_records: Annotated[int, Field(ge=0)] | None = None
    on_bad_object: Literal["fail", "dead_letter"] = "fail"

    @property
    def time_column(self) -> str | None:
        """The column that times rows; None: there is none."""
        return None if self.event_time is None else self.event_time.column

    @property
    def row_types(self) -> dict[str, ColumnType]:
        """The columns of rows: those of its objects, of which the event time is a timestamp, then partition columns."""
        types = {**self.columns, **self.partitions}
        if self.event_time is not None and self.event_time.column in self.columns:
            types[self.event_time.column] = self.event_time.type_of(self.columns[self.event_time.column])
        return types

    @property
    def whole_because(self) -> str | None:
        """Why each object has one reader, however large it is; None: a large one is read in parts by several."""
        if self.format == "csv" and (because := csv_whole_because(self.options)) is not None:
            return f"options.{because}"
        if self.on_bad_object == "dead_letter":
            return "on_bad_object: dead_letter"
        return "on_missing: skip" if self.on_missing == "skip" else None

    @property
    def start_time_ms(self) -> int | None:
        """Milliseconds of a `start` that is a time; None for earliest and latest."""
        return None if self.start in ("earliest", "latest") else start_time_ms(self.start)
