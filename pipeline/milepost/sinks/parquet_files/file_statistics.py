"""Statistics of a data file, by which engines skip it: row count, null counts, bounds.

They come from the file's footer, in the form of Delta's log. A wrong bound silently hides rows from queries with a
filter. So bounds are stated only for types that every engine compares alike: integers, dates, timestamps in
microseconds, and short text. Floats have none, because Arrow ignores NaN in a footer, and engines sort it last.
"""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

_LONGEST_TEXT = 32
"""Characters. Longer text has no bounds: truncating an upper bound safely needs care."""

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00")
_FIRST_DAY, _LAST_DAY = date.min.toordinal(), date.max.toordinal()
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_US_PER_MS = 1000


def statistics_of(metadata: pq.FileMetaData) -> str:
    """Return the statistics of a Parquet file as JSON: numRecords, nullCount, minValues, maxValues.

    Timestamps have milliseconds, as in Delta. The lower bound is rounded down and the upper bound up: values from
    01:00:00.000100 to 01:00:00.000900 have the bounds 01:00:00.000 and 01:00:00.001.

    Args:
        metadata: of a file written by Arrow with statistics. Nested columns, and columns without statistics in some row
            group, are left out.
    """
    nulls, lower, upper = dict[str, int](), dict[str, object](), dict[str, object]()
    for field, leaf in _plain_columns(metadata.schema.to_arrow_schema()):
        groups = [metadata.row_group(index).column(leaf).statistics for index in range(metadata.num_row_groups)]
        if any(group is None or not group.has_null_count for group in groups):
            continue
        nulls[field.name] = sum(group.null_count for group in groups)
        with_values = [group for group in groups if group.num_values]
        if with_values and all(group.has_min_max for group in with_values):
            bounds = _bounds(
                field.type,
                min(group.min_raw for group in with_values),
                max(group.max_raw for group in with_values),
            )
            if bounds is not None:
                lower[field.name], upper[field.name] = bounds
    statistics = {"numRecords": metadata.num_rows, "minValues": lower, "maxValues": upper, "nullCount": nulls}
    return json.dumps(statistics, ensure_ascii=False, separators=(",", ":"))


def _plain_columns(schema: pa.Schema) -> list[tuple[pa.Field, int]]:
    """Return the columns that are not nested, each with its leaf index in the file."""
    columns, leaf = [], 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            columns.append((field, leaf))
        leaf += _leaves(field.type)
    return columns


def _leaves(data_type: pa.DataType) -> int:
    if not pa.types.is_nested(data_type):
        return 1
    return sum(_leaves(data_type.field(index).type) for index in range(data_type.num_fields))


def _bounds(data_type: pa.DataType, lowest: object, highest: object) -> tuple[object, object] | None:
    """Return a column's bounds as JSON values; None for a type without safe bounds.

    Args:
        lowest, highest: as Parquet stores them.
    """
    if isinstance(lowest, bytes) and isinstance(highest, bytes):
        if not pa.types.is_string(data_type):
            return None
        texts = lowest.decode(), highest.decode()
        return texts if max(map(len, texts)) <= _LONGEST_TEXT else None
    if not isinstance(lowest, int) or not isinstance(highest, int):
        return None
    if pa.types.is_signed_integer(data_type):
        return lowest, highest
    if pa.types.is_date32(data_type):
        return _within_calendar(lowest + _EPOCH_DAY, highest + _EPOCH_DAY)
    if pa.types.is_timestamp(data_type) and data_type.unit == "us":
        return _times(lowest // _US_PER_MS, -(-highest // _US_PER_MS), zone="Z" if data_type.tz else "")
    return None


def _within_calendar(first_day: int, last_day: int) -> tuple[str, str] | None:
    if first_day < _FIRST_DAY or last_day > _LAST_DAY:
        return None
    return date.fromordinal(first_day).isoformat(), date.fromordinal(last_day).isoformat()


def _times(first_ms: int, last_ms: int, zone: str) -> tuple[str, str] | None:
    try:
        return _moment(first_ms, zone), _moment(last_ms, zone)
    except OverflowError:
        return None


def _moment(since_epoch_ms: int, zone: str) -> str:
    moment = _EPOCH + timedelta(milliseconds=since_epoch_ms)
    return f"{moment.isoformat(timespec='milliseconds')}{zone}"
