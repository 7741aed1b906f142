"""Sources that are files: which objects to read, and how."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from milepost.jobspec.job.sources.source_spec import BadRecordRules, ObjectLayout, SourceSpec
from milepost.language import (
    SOURCE_FORMATS,
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


class EpochLimits(SpecModel):
    """Limits on the input of one epoch. An epoch always takes whole objects, and at least one.

    Attributes:
        max_files: maximum number of objects per epoch. null: no limit.
        max_bytes: maximum total size of these objects as stored. null: no limit.
    """

    max_files: Annotated[int, Field(ge=1)] | None = None
    max_bytes: Annotated[Size, Field(ge=1)] | None = None


class FileSourceSpec(SourceSpec):
    """Objects that keep arriving under a path.

    Attributes:
        format: csv, json (one JSON object per line) or parquet.
        path: the objects to read: an S3 or file URL, or a path relative to the spec. `*` matches within one path
            segment, `**` across segments. `.gz`, `.zst` and `.bz2` objects are decompressed. A path that matches files
            the job itself writes is refused.
        options: options of the format's pyarrow reader, under their pyarrow names. json and parquet have none. With
            `newlines_in_values: false` a large csv object is read in parts. An empty csv field of a string column is
            null only with `strings_can_be_null: true`; otherwise it is the empty string.
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

    format: Literal["csv", "json", "parquet"]
    path: Text
    options: dict[str, Any] = Field(default_factory=dict)
    partitions: dict[ColumnName, Type] = Field(default_factory=dict)
    columns: Annotated[dict[ColumnName, Type], Field(alias="schema", min_length=1)]
    optional_columns: Many[ColumnName] = ()
    static: bool = False
    dimension_limit: Annotated[Size, Field(ge=1)] = 256_000_000
    start: Start = "earliest"
    limits_per_epoch: EpochLimits = EpochLimits()
    on_change: Literal["fail", "ignore", "reprocess"] = "fail"
    on_missing: Literal["fail", "skip"] = "fail"
    on_bad_name: Literal["fail", "skip"] = "fail"
    settle: Duration = timedelta(seconds=2)
    forget_after: PositiveDuration | None = None
    bad_records: Literal["fail", "dead_letter"] = "fail"
    max_bad_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    min_rows: Annotated[int, Field(ge=1)] = 1
    max_bad_records: Annotated[int, Field(ge=0)] | None = None
    on_bad_object: Literal["fail", "dead_letter"] = "fail"

    @property
    def identity(self) -> dict[str, str]:
        return {"root": _root(self.path)}

    @property
    def layout(self) -> ObjectLayout:
        return ObjectLayout(self.format, self.options, self.optional_columns, self.partitions)

    @property
    def location(self) -> str:
        return self.path

    @property
    def starts_at_latest(self) -> bool:
        return self.start == "latest"

    @property
    def is_static(self) -> bool:
        return self.static

    @property
    def bad_record_rules(self) -> BadRecordRules | None:
        if self.bad_records == "fail":
            return None
        return BadRecordRules(
            self.on_bad_object == "dead_letter", self.max_bad_records, self.max_bad_ratio, self.min_rows
        )

    @property
    def skips_missing(self) -> bool:
        return self.on_missing == "skip"

    @property
    def indivisible_reason(self) -> str | None:
        if (option := SOURCE_FORMATS[self.format].indivisible_option(self.options)) is not None:
            return f"options.{option}"
        if self.on_bad_object == "dead_letter":
            return "on_bad_object: dead_letter"
        return "on_missing: skip" if self.on_missing == "skip" else None

    @property
    def start_time_ms(self) -> int | None:
        """`start` in milliseconds since 1970-01-01T00:00Z; None for earliest and latest."""
        return None if self.start in ("earliest", "latest") else start_time_ms(self.start)


def _root(path: str) -> str:
    """Return what object keys are relative to: the bucket, or the folder before the first wildcard."""
    scheme, _, rest = path.partition("://")
    if scheme == "s3":
        return f"{scheme}://{rest.split('/')[0]}"
    fixed = re.split(r"[*?\[]", path, maxsplit=1)[0]
    return fixed[: fixed.rfind("/") + 1]
