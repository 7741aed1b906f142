"""The event-time column of a source: its values as timestamps, vectorised over a batch."""

from __future__ import annotations

from datetime import UTC, date, timedelta
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.jobspec.job.event_time_spec import EventTimeSpec
from milepost.jobspec.values.times.datetime_pattern import MONTHS, SHORT_MONTHS, DatetimePattern, parse_pattern
from milepost.jobspec.values.times.durations import in_us
from milepost.jobspec.values.times.time_zones import zone_data, zone_of
from milepost.jobspec.values.times.timestamps import EPOCH
from milepost.jobspec.values.types import ColumnType, to_arrow

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_US_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DAY_US = 86_400_000_000
_MOST_US = 2**63 - 1
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date(2, 1, 1), date(9998, 12, 31)))
"""Days that have an offset from UTC in each time zone: Python has a day before and after them."""
_LAST_OFFSET_US = 18 * 3_600_000_000


class TimeColumn:
    """Converts an event-time column; picklable.

    Attributes:
        field: of the timestamps.
    """

    def __init__(self, spec: EventTimeSpec, type_: ColumnType) -> None:
        """Args:
        type_: declared type of the column; one that fits the spec.
        """
        self.field = pa.field(spec.column, to_arrow(spec.type_of(type_)))
        self._unit = spec.unit
        self._pattern = None if spec.format is None else parse_pattern(spec.format)
        self._zone = None if spec.timezone in (None, "UTC") else zone_data(spec.timezone)

    def times(self, values: pa.Array) -> pa.Array:
        """Return the timestamps; null where a value is null or stands for none."""
        if self._pattern is not None:
            return self._of_texts(values, self._pattern)
        if pa.types.is_timestamp(values.type) and self.field.type == values.type:
            return _in_range(values)
        numbers, factor = _numbers(values, self._unit)
        fits = np.asarray(values.is_valid()) & (np.abs(numbers) <= _MOST_US // factor)
        return self._timestamps(np.where(fits, numbers, 0) * factor, fits)

    def fault(self, value: pa.Scalar) -> str:
        """Return why a value, for which there is no timestamp, has none: one clause."""
        if not value.is_valid:
            return "is null, but it is the event time"
        if self._pattern is not None:
            return f"is not a time of the format {self._pattern.text!r}"
        return "is an event time beyond the range of timestamps" + (" in a time zone" if self._zone else "")

    def _of_texts(self, values: pa.Array, pattern: DatetimePattern) -> pa.Array:
        """Each text that occurs is parsed once."""
        encoded = values.dictionary_encode()
        times, fits = _parse(encoded.dictionary, pattern)
        return self._timestamps(times, fits).take(encoded.indices)

    def _timestamps(self, times_us: Ints, fits: Bools) -> pa.Array:
        if self._zone is not None:
            times_us, has_offset = _to_utc(np.where(fits, times_us, 0), self._zone)
            fits = fits & has_offset
        return pa.array(times_us, mask=~fits).view(self.field.type)


def _in_range(values: pa.Array) -> pa.Array:
    """Return timestamps, with null for those that no int64 of microseconds holds."""
    factor = _US_PER_UNIT.get(values.type.unit, 1)
    if factor == 1:
        return values
    most = _MOST_US // factor
    numbers = values.view(pa.int64())
    fits = pc.and_(pc.less_equal(numbers, most), pc.greater_equal(numbers, -most))
    return values if pc.all(fits).as_py() is not False else pc.if_else(fits, values, pa.scalar(None, values.type))


def _numbers(values: pa.Array, unit: str | None) -> tuple[Ints, int]:
    """Return dates, local timestamps or whole numbers as int64, with how many microseconds one of them is."""
    if pa.types.is_date(values.type):
        days = values.view(pa.int32()).fill_null(0)
        return days.to_numpy().astype(np.int64), _DAY_US
    if pa.types.is_timestamp(values.type):
        numbers, unit = values.view(pa.int64()).fill_null(0).to_numpy(), values.type.unit
        if unit == "ns":
            return np.floor_divide(numbers, 1_000), 1
    else:
        numbers = values.fill_null(0).to_numpy().astype(np.int64)
    # The least int64 has no absolute value: no unit has room for it either.
    return np.maximum(numbers, -_MOST_US), _US_PER_UNIT[str(unit)]


def _parse(texts: pa.Array, pattern: DatetimePattern) -> tuple[Ints, Bools]:
    """Return the local time of each text, in UTC where it has an offset, in microseconds, and which texts name one."""
    found = pc.extract_regex(texts, rf"\A(?:{pattern.expression})\z")
    fits = np.asarray(found.is_valid())
    parts = dict(zip((field.name for field in found.type), found.flatten(), strict=True))
    months, in_month = _months(parts)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    day = _number(parts["day"])
    fits = fits & in_month & (day >= 1) & (day <= after - first)
    hour, in_day = _hours(parts)
    minute, second = (_number(parts[name]) if name in parts else np.int64(0) for name in ("minute", "second"))
    fits &= in_day & (minute <= 59) & (second <= 59)
    times = (first + day - 1) * _DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000
    if "fraction" in parts:
        padded = pc.utf8_rpad(pc.fill_null(parts["fraction"], ""), 9, "0")
        times = times + _number(padded) // 1_000
    if pattern.has_offset:
        offset, is_offset = _offsets(parts["offset"])
        times, fits = times - offset, fits & is_offset
    return times, fits


def _number(texts: pa.Array) -> Ints:
    """Return digits as numbers; 0 where there are none."""
    digits = pc.fill_null(texts, "")
    numbers: Ints = pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.int64()).to_numpy()
    return numbers


def _months(parts: dict[str, pa.Array]) -> tuple[Ints, Bools]:
    """Return months since 1970, and whether they are of the calendar."""
    year = _number(parts["year"]) if "year" in parts else _number(parts["short_year"]) + 2000
    if "month" in parts:
        month = _number(parts["month"])
    else:
        name, names = ("short_month", SHORT_MONTHS) if "short_month" in parts else ("long_month", MONTHS)
        month = pc.fill_null(pc.index_in(parts[name], pa.array(names)), 0).to_numpy().astype(np.int64) + 1
    return (year - 1970) * 12 + month - 1, (month >= 1) & (month <= 12) & (year >= 1)


def _hours(parts: dict[str, pa.Array]) -> tuple[Ints | np.int64, Bools]:
    """Return hours of the day, and whether a clock has them; an optional one that is not there is 0."""
    if "half_hour" in parts:
        hour = _number(parts["half_hour"])
        is_there = np.asarray(pc.not_equal(pc.fill_null(parts["half_hour"], ""), ""))
        is_after_noon = np.asarray(pc.fill_null(pc.equal(parts["half"], "PM"), False))
        return np.where(is_there, hour % 12 + 12 * is_after_noon, 0), (hour <= 12) & ((hour >= 1) | ~is_there)
    hour = _number(parts["hour"]) if "hour" in parts else np.zeros(len(parts["day"]), dtype=np.int64)
    return hour, hour <= 23


def _offsets(texts: pa.Array) -> tuple[Ints, Bools]:
    """Return offsets from UTC in microseconds, and whether a clock has them; 0 where there is none."""
    plain = pc.replace_substring(pc.replace_substring(pc.fill_null(texts, ""), "Z", ""), ":", "")
    hours, minutes = (_number(pc.utf8_slice_codeunits(plain, start, start + 2)) for start in (1, 3))
    size = (hours * 60 + minutes) * 60_000_000
    is_west = np.asarray(pc.starts_with(plain, "-"))
    return np.where(is_west, -size, size), (minutes <= 59) & (size <= _LAST_OFFSET_US)


def _to_utc(local_us: Ints, zone: bytes) -> tuple[Ints, Bools]:
    """Return the moments at which clocks of a zone show these times, and which days have clocks.

    A time that a clock skips is as if it had not been set yet; of one that it shows twice it is the first.
    """
    days = local_us // _DAY_US
    fits = (days >= _FIRST_DAY) & (days <= _LAST_DAY)
    distinct, each = np.unique(np.clip(days, _FIRST_DAY, _LAST_DAY), return_inverse=True)
    begin, end = (_offsets_at(distinct + by, _DAY_US, zone) for by in (0, 1))
    offsets = begin[each]
    changing = np.flatnonzero((begin != end)[each] & fits)
    times, of_each = np.unique(local_us[changing], return_inverse=True)
    offsets[changing] = _offsets_at(times, 1, zone)[of_each]
    return local_us - offsets, fits


def _offsets_at(times: Ints, factor: int, zone: bytes) -> Ints:
    return np.array([_offset_us(time * factor, zone) for time in times.tolist()], dtype=np.int64)


@lru_cache(maxsize=100_000)
def _offset_us(local_us: int, zone: bytes) -> int:
    local = (EPOCH + timedelta(microseconds=local_us)).replace(tzinfo=zone_of(zone))
    return local_us - in_us(local.astimezone(UTC) - EPOCH)
