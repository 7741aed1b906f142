"""Convert the event-time column of a batch to timestamps, vectorised."""

from __future__ import annotations

from datetime import UTC, date, timedelta
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.jobspec.job import EventTimeSpec
from milepost.language import ColumnType, to_arrow
from milepost.language.times import (
    EPOCH,
    MONTHS,
    SHORT_MONTHS,
    DatetimePattern,
    in_us,
    parse_pattern,
    zone_data,
    zone_of,
)

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_US_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DAY_US = 86_400_000_000
_MOST_US = 2**63 - 1
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date(2, 1, 1), date(9998, 12, 31)))
"""Range of days, since 1970, for which every zone has a UTC offset: Python needs a day on either side."""
_LAST_OFFSET_US = 18 * 3_600_000_000


class TimeColumn:
    """Converts an event-time column; picklable.

    Attributes:
        field: name and type of the timestamps.
    """

    def __init__(self, spec: EventTimeSpec, type_: ColumnType) -> None:
        """Choose the conversion.

        Args:
            type_: declared type of the column, which fits the spec.
        """
        self.field = pa.field(spec.column, to_arrow(spec.type_of(type_)))
        self._unit = spec.unit
        self._pattern = None if spec.format is None else parse_pattern(spec.format)
        self._zone = None if spec.timezone in (None, "UTC") else zone_data(spec.timezone)

    def times(self, values: pa.Array) -> pa.Array:
        """Return the timestamps; null where a value is null or is not a valid time."""
        if self._pattern is not None:
            return self._of_texts(values, self._pattern)
        if pa.types.is_timestamp(values.type) and self.field.type == values.type:
            return _in_range(values)
        numbers, factor = _numbers(values, self._unit)
        fits = np.asarray(values.is_valid()) & (np.abs(numbers) <= _MOST_US // factor)
        return self._timestamps(np.where(fits, numbers, 0) * factor, fits)

    def fault(self, value: pa.Scalar) -> str:
        """Return as one clause why a value has no timestamp."""
        if not value.is_valid:
            return "is null, but the event time is required"
        if self._pattern is not None:
            return f"is not a time of the format {self._pattern.text!r}"
        return "is an event time beyond the range of timestamps" + (" in a time zone" if self._zone else "")

    def _of_texts(self, values: pa.Array, pattern: DatetimePattern) -> pa.Array:
        """Parse each distinct text once."""
        encoded = values.dictionary_encode()
        times, fits = _parse(encoded.dictionary, pattern)
        return self._timestamps(times, fits).take(encoded.indices)

    def _timestamps(self, times_us: Ints, fits: Bools) -> pa.Array:
        if self._zone is not None:
            times_us, has_offset = _to_utc(np.where(fits, times_us, 0), self._zone)
            fits = fits & has_offset
        return pa.array(times_us, mask=~fits).view(self.field.type)


def _in_range(values: pa.Array) -> pa.Array:
    """Replace timestamps outside the int64 range of microseconds by null."""
    factor = _US_PER_UNIT.get(values.type.unit, 1)
    if factor == 1:
        return values
    most = _MOST_US // factor
    numbers = values.view(pa.int64())
    fits = pc.and_(pc.less_equal(numbers, most), pc.greater_equal(numbers, -most))
    return values if pc.all(fits).as_py() is not False else pc.if_else(fits, values, pa.scalar(None, values.type))


def _numbers(values: pa.Array, unit: str | None) -> tuple[Ints, int]:
    """Convert dates, local timestamps or integers to int64; also return the microseconds per unit."""
    if pa.types.is_date(values.type):
        days = values.view(pa.int32()).fill_null(0)
        return days.to_numpy().astype(np.int64), _DAY_US
    if pa.types.is_timestamp(values.type):
        numbers, unit = values.view(pa.int64()).fill_null(0).to_numpy(), values.type.unit
        if unit == "ns":
            return np.floor_divide(numbers, 1_000), 1
    else:
        numbers = values.fill_null(0).to_numpy().astype(np.int64)
    # The smallest int64 has no absolute value, and is out of range in every unit.
    return np.maximum(numbers, -_MOST_US), _US_PER_UNIT[str(unit)]


def _parse(texts: pa.Array, pattern: DatetimePattern) -> tuple[Ints, Bools]:
    """Parse texts to local times in microseconds, UTC if they have an offset; also return which are valid."""
    groups = pc.extract_regex(texts, rf"\A(?:{pattern.expression})\z")
    fits = np.asarray(groups.is_valid())
    parts = dict(zip((field.name for field in groups.type), groups.flatten(), strict=True))
    months, in_calendar = _months(parts)
    # February 2024 is month 649: it begins at day 19_754 and the next month at 19_783, so it has 29 days.
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    next_first = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    day = _number(parts["day"])
    fits = fits & in_calendar & (day >= 1) & (day <= next_first - first)
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
    """Convert digits to numbers; an empty text is 0."""
    digits = pc.fill_null(texts, "")
    numbers: Ints = pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.int64()).to_numpy()
    return numbers


def _months(parts: dict[str, pa.Array]) -> tuple[Ints, Bools]:
    """Return months since January 1970, and whether month and year are valid."""
    year = _number(parts["year"]) if "year" in parts else _number(parts["short_year"]) + 2000
    if "month" in parts:
        month = _number(parts["month"])
    else:
        name, names = ("short_month", SHORT_MONTHS) if "short_month" in parts else ("long_month", MONTHS)
        month = pc.fill_null(pc.index_in(parts[name], pa.array(names)), 0).to_numpy().astype(np.int64) + 1
    return (year - 1970) * 12 + month - 1, (month >= 1) & (month <= 12) & (year >= 1)


def _hours(parts: dict[str, pa.Array]) -> tuple[Ints | np.int64, Bools]:
    """Return hours of the day, and whether they are valid. A missing optional hour is 0."""
    if "half_hour" in parts:
        hour = _number(parts["half_hour"])
        is_present = np.asarray(pc.not_equal(pc.fill_null(parts["half_hour"], ""), ""))
        is_after_noon = np.asarray(pc.fill_null(pc.equal(parts["half"], "PM"), False))
        return np.where(is_present, hour % 12 + 12 * is_after_noon, 0), (hour <= 12) & ((hour >= 1) | ~is_present)
    hour = _number(parts["hour"]) if "hour" in parts else np.zeros(len(parts["day"]), dtype=np.int64)
    return hour, hour <= 23


def _offsets(texts: pa.Array) -> tuple[Ints, Bools]:
    """Return UTC offsets in microseconds, and whether they are valid. A missing offset is 0."""
    plain = pc.replace_substring(pc.replace_substring(pc.fill_null(texts, ""), "Z", ""), ":", "")
    hours, minutes = (_number(pc.utf8_slice_codeunits(plain, start, start + 2)) for start in (1, 3))
    size = (hours * 60 + minutes) * 60_000_000
    is_west = np.asarray(pc.starts_with(plain, "-"))
    return np.where(is_west, -size, size), (minutes <= 59) & (size <= _LAST_OFFSET_US)


def _to_utc(local_us: Ints, zone: bytes) -> tuple[Ints, Bools]:
    """Convert local times of a zone to UTC; also return which are in the supported range of days.

    A local time skipped by a clock change uses the offset before the change. One that occurs twice is the first.

    Offsets are looked up once per distinct day. In Berlin, 2024-03-31 begins at +01:00 and ends at +02:00, so only the
    times of that day are looked up one by one; on 2024-03-30 both ends are +01:00, which then applies to all its times.
    """
    days = local_us // _DAY_US
    fits = (days >= _FIRST_DAY) & (days <= _LAST_DAY)
    distinct, day_index = np.unique(np.clip(days, _FIRST_DAY, _LAST_DAY), return_inverse=True)
    begin, end = (_offsets_at(distinct + days_later, _DAY_US, zone) for days_later in (0, 1))
    offsets = begin[day_index]
    changing = np.flatnonzero((begin != end)[day_index] & fits)
    times, time_index = np.unique(local_us[changing], return_inverse=True)
    offsets[changing] = _offsets_at(times, 1, zone)[time_index]
    return local_us - offsets, fits


def _offsets_at(times: Ints, factor: int, zone: bytes) -> Ints:
    return np.array([_offset_us(time * factor, zone) for time in times.tolist()], dtype=np.int64)


@lru_cache(maxsize=100_000)
def _offset_us(local_us: int, zone: bytes) -> int:
    local = (EPOCH + timedelta(microseconds=local_us)).replace(tzinfo=zone_of(zone))
    return local_us - in_us(local.astimezone(UTC) - EPOCH)
