"""Sources in a job spec: which objects to read, and how."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from milepost.jobspec.job.event_time_spec import EventTime
from milepost.language import (
    SOURCE_FORMATS,
    ColumnName,
    ColumnType,
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


class EpochLimits(SpecModel):
    """Limits on the input of one epoch. An epoch always takes whole objects, and at least one.

    Attributes:
        max_files: maximum number of objects per epoch. null: no limit.
        max_bytes: maximum total size of these objects as stored. null: no limit.
    """

    max_files: Annotated[int, Field(ge=1)] | None = None
    max_bytes: Annotated[Size, Field(ge=1)] | None = None


class SourceSpec(SpecModel):
    """Objects that keep arriving under a path.

    Attributes:
        format: csv, json (one JSON object per line) or parquet.
        path: the objects to read: an S3 or file URL, or a path relative to the spec. `*` matches within one path
            segment, `**` across segments. `.gz`, `.zst` and `.bz2` objects are decompressed. A path that matches files
            the job itself writes is refused.
        options: options of the format's pyarrow reader, under their pyarrow names. json and parquet have none. With
            `newlines_in_values: false` a large csv object is read in parts.
        partitions: additional columns, taken from the `name=value` segments of an object's key.
        columns: the columns of the objects, by name. Every object must have all of them: a csv in its header, a json
            in at least one line. A field that a json line omits is null. Columns that are not declared are ignored. A
            csv cannot hold lists or structs. In json, decimals, dates and times may be strings. The order matters: a
            new table has its columns in this order, and it breaks ties between rows.
        optional_columns: columns of `schema` that an object may lack; its rows then have null. Use it for a column
            that was added later, or a json field that occurs in no line of a small object. A misspelled column name is
            then null as well. `event_time` cannot be optional, and `options.column_names` cannot be combined with it.
        static: the source is a lookup table, not a stream. Each epoch reads its objects as they are when the epoch is
            triggered. It may feed only lookups, has no watermark, and never consumes an object. It may have only
            `format`, `path`, `options`, `partitions`, `schema`, `optional_columns`, `on_bad_name`, `settle` and
            `dimension_limit`.
        dimension_limit: maximum memory that the rows of a static source may take. An epoch that exceeds it is refused.
            Needs `static`.
        event_time: the column that holds the event time: its name if it is a timestamp or a date, or a mapping that
            says how to read it as a time. null: no event time, and no watermark.
        watermark_delay: how far the watermark stays behind the newest event time read. Needs `event_time`.
        max_event_time_ahead: a row whose event time is further ahead of the epoch's trigger time is processed but does
            not advance the watermark. null: every row advances it. Needs `event_time`.
        idle_timeout: a source without new objects for this long no longer holds back operators that also read other
            sources. When it produces rows again, those are late for windows that were emitted in the meantime. Needs
            `event_time`. null: it holds them back indefinitely.
        start: earliest, latest or a time: where the first epoch starts to read. latest: all existing objects are
            recorded as consumed, except those that may still be written (`settle`), which count as new.
        limits_per_epoch: limits on the input of one epoch.
        on_change: what to do when a consumed object has a new version: fail, ignore (it stays consumed) or reprocess
            (it is read again).
        on_missing: what to do when a planned object is deleted before it is read: fail, or skip (it is read if it
            reappears).
        on_bad_name: what to do when an object's name cannot be used: fail, or skip (it is left out, counted and
            reported).
        settle: an object under a local path that was modified more recently than this is left for the next plan. 0s:
            no delay. Refused on S3, where an object appears atomically.
        expect_every: how long the source may receive no object before it counts as overdue: `status` then exits with
            6, and `run`, `show` and the Checkpoints page report it. They also report a path that has never matched an
            object. null: no expectation.
        forget_after: a consumed object that was deleted, and was last modified this long before the newest object, is
            forgotten. An unknown object that is just as old is never read: it fails the plan, or with `on_change:
            ignore` is left out and counted. Cannot be combined with `on_missing: skip`. null: all objects are
            remembered.
        bad_records: what to do when a record cannot be read: fail the epoch, or dead_letter: the record goes to
            `<source>.bad`, which a sink with mode append may read, and all other records are read.
        max_bad_ratio: the epoch fails when a larger share of a source's records, 0 to 1, cannot be read. null: no
            limit. Like the next three keys, it needs `bad_records: dead_letter`.
        min_rows: `max_bad_ratio` applies only if an epoch has at least this many records of the source.
        max_bad_records: the epoch fails when more than this many of a source's records cannot be read. null: no limit.
        on_bad_object: what to do when an object cannot be read at all, or its record boundaries cannot be determined:
            fail, or dead_letter (one row in `<source>.bad`; none of its records are read).
    """

    unavailable_values: ClassVar[Mapping[str, frozenset[str]]] = {"format": frozenset({"nexmark", "spark"})}

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
        """The event time column, or None."""
        return None if self.event_time is None else self.event_time.column

    @property
    def row_types(self) -> dict[str, ColumnType]:
        """The columns of the rows, with the event time as a timestamp, then the partition columns."""
        types = {**self.columns, **self.partitions}
        if self.event_time is not None and self.event_time.column in self.columns:
            types[self.event_time.column] = self.event_time.type_of(self.columns[self.event_time.column])
        return types

    @property
    def indivisible_reason(self) -> str | None:
        """The setting that forces one reader per object. None: several readers share a large object."""
        if (option := SOURCE_FORMATS[self.format].indivisible_option(self.options)) is not None:
            return f"options.{option}"
        if self.on_bad_object == "dead_letter":
            return "on_bad_object: dead_letter"
        return "on_missing: skip" if self.on_missing == "skip" else None

    @property
    def start_time_ms(self) -> int | None:
        """`start` in milliseconds since 1970-01-01T00:00Z; None for earliest and latest."""
        return None if self.start in ("earliest", "latest") else start_time_ms(self.start)
