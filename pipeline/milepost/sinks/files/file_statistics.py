"""Statistics of a data file let engines skip it: its rows, and per column its nulls and the ends of its values.

They are taken from the file's own footer, in the form of Delta's log. What is wrong there silently loses rows of those
who filter, so ends are said only where every engine compares values alike: whole numbers, dates, times of microseconds
and short text. Nothing is said of floats: Arrow leaves NaN out of a footer, and engines sort it above all else.
"""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

_LONGEST_TEXT = 32
"""Characters: what is longer is not cut, which would need care at the upper end, but left out."""

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00")
_FIRST_DAY, _LAST_DAY = date.min.toordinal(), date.max.toordinal()
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_US_PER_MS = 1000


def statistics_of(metadata: pq.FileMetaData) -> str:
    """Return the statistics of a Parquet file as JSON: numRecords, nullCount, minValues, maxValues.

    Times are said in milliseconds, as Delta has it: rounded down at the lower end, and up at the upper one.

    Args:
        metadata: of the file as it was written, by Arrow's writer with its statistics on. Columns within columns, and
            those of which a row group says nothing, are left out.
    """
    nulls, lower, upper = dict[str, int](), dict[str, object](), dict[str, object]()
    for field, leaf in _plain_columns(metadata.schema.to_arrow_schema()):
        groups = [metadata.row_group(index).column(leaf).statistics for index in range(metadata.num_row_groups)]
        if any(group is None or not group.has_null_count for group in groups):
            continue
        nulls[field.name] = sum(group.null_count for group in groups)
        with_values = [group for group in groups if group.num_values]
        if with_values and all(group.has_min_max for group in with_values):
            ends = _ends(
                field.type,
                min(group.min_raw for group in with_values),
                max(group.max_raw for group in with_values),
            )
            if ends is not None:
                lower[field.name], upper[field.name] = ends
    said = {"numRecords": metadata.num_rows, "minValues": lower, "maxValues": upper, "nullCount": nulls}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def _plain_columns(schema: pa.Schema) -> list[tuple[pa.Field, int]]:
    """Return the columns that hold no columns, each with its number among the file's columns."""
    found, leaf = [], 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            found.append((field, leaf))
        leaf += _leaves(field.type)
    return found


def _leaves(data_type: pa.DataType) -> int:
    if not pa.types.is_nested(data_type):
        return 1
    return sum(_leaves(data_type.field(index).type) for index in range(data_type.num_fields))


def _ends(data_type: pa.DataType, lowest: object, highest: object) -> tuple[object, object] | None:
    """Return a column's least and greatest value as JSON has them; None where they are not to be said.

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
