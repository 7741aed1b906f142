"""Select the rows of a node by values of some of its columns.

A selection is a set of known values. Bounds of event times are two additional columns::

    city   at >=    at <
    Bonn   12:00    13:00      rows of Bonn from 12:00 to before 13:00
    Ulm    12:00    13:00
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from milepost.epoch import stamp_column
from milepost.language.times import in_us, python_values
from milepost.operators.base import RowTrace

_FROM, _BEFORE = "\0from", "\0before"
"""Suffixes of the columns with bounds. No column of a job has a name with a null character."""

_NAN = "\0NaN"

_1970, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None), timedelta(microseconds=1)

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KnownValues:
    """Known values of rows: column -> values, one per row. Without columns every row matches."""

    columns: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, rows: pa.Table) -> KnownValues:
        """Return the values of rows, in a form in which equal keys are equal."""
        return cls({name: comparable_values(rows.column(name)) for name in rows.column_names})

    @property
    def names(self) -> list[str]:
        """The columns with known values or bounds."""
        return list(dict.fromkeys(name.removesuffix(_FROM).removesuffix(_BEFORE) for name in self.columns))

    def through(self, trace: RowTrace, operator: str, *, picked: bool) -> KnownValues:
        """Return the known values of the rows of one input.

        A late row belongs only to windows that were open when its operator read it::

            windows of 1 h every 30 min, lateness watermark 12:30, a row of 12:10
            11:30 to 12:30    the row is not in it
            12:00 to 13:00    the row is in it

        Args:
            operator: its uid. picked: whether to select only the rows that the operator picked.
        """
        pairs = {**trace.equal, **(trace.picked if picked else {})}
        known = {}
        for of_input, shown in pairs.items():
            for suffix in ("", _FROM, _BEFORE):
                if shown + suffix in self.columns:
                    known[of_input + suffix] = self.columns[shown + suffix]
        span = trace.span
        starts, ends = (None, None) if span is None else (self.columns.get(span.start), self.columns.get(span.end))
        if span is not None and (starts is not None or ends is not None):
            away_us = in_us(span.within)
            lows = _in_us(ends, -math.inf, -away_us) if starts is None else _in_us(starts, -math.inf)
            highs = _in_us(starts, math.inf, away_us) if ends is None else _in_us(ends, math.inf)
            known |= {span.time + _FROM: lows, span.time + _BEFORE: highs}
            if ends is not None and not span.is_session:
                known[stamp_column(operator) + _FROM] = [-math.inf] * len(ends)
                known[stamp_column(operator) + _BEFORE] = _in_us(ends, math.inf, in_us(span.allowed_lateness))
        return KnownValues(known)


def _in_us(times: Sequence[Any] | None, unknown: float, plus_us: int = 0) -> list[float | None]:
    """Return times without a zone in microseconds since 1970.

    Args:
        unknown: stands for a time of a year that Python does not represent, which is text.
    """
    return [
        None if time is None else (time - _1970) // _MICROSECOND + plus_us if isinstance(time, datetime) else unknown
        for time in times or ()
    ]


def selected(rows: pa.Table, alternatives: Iterable[KnownValues]) -> pa.Table:
    """Return the rows that match the known values of at least one alternative, in their order."""
    places = set[int]().union(*(matching(rows, known) for known in alternatives))
    return rows if len(places) == rows.num_rows else rows.take(pa.array(sorted(places), pa.int64()))


def value_tuples(rows: pa.Table, names: Sequence[str]) -> list[Values]:
    """Return the values of some columns, row by row, in a form in which equal keys are equal."""
    return [*zip(*(comparable_values(rows.column(name)) for name in names), strict=True)]


def matching(rows: pa.Table, known: KnownValues) -> list[int]:
    """Return the positions of the rows that match known values, in order."""
    equal = [name for name in known.columns if not name.endswith((_FROM, _BEFORE)) and name in rows.column_names]
    timed = [
        name.removesuffix(_FROM)
        for name in known.columns
        if name.endswith(_FROM) and name.removesuffix(_FROM) in rows.column_names
    ]
    if not equal and not timed:
        return [*range(rows.num_rows)]
    bounds: dict[Values, set[Values]] = {}
    limited = [name + _FROM for name in timed]
    for key, *limits in zip(
        _tuples(known.columns, equal),
        _tuples(known.columns, limited),
        _tuples(known.columns, [name + _BEFORE for name in timed]),
        strict=True,
    ):
        bounds.setdefault(key, set()).add(tuple(limits))
    places = _candidates(rows, known, equal)
    found = rows.select([*dict.fromkeys((*equal, *timed))]).take(pa.array(places, pa.int64()))
    values = {name: comparable_values(found.column(name)) for name in equal}
    values |= {name + _FROM: _microseconds(found.column(name)) for name in timed}
    return [
        place
        for place, key, times in zip(places, _tuples(values, equal), _tuples(values, limited), strict=True)
        if any(_within(times, *limits) for limits in bounds.get(key, ()))
    ]


def newest(rows: pa.Table, places: Sequence[int], key: Sequence[str], by: Sequence[str]) -> list[int]:
    """Return, of some positions, that of the greatest row of each key, in order; all if a column is not known.

    Of equal rows, the last one counts. Key k, by at::

        place   0   1   2   3
        k       a   b   a   a
        at      7   1   9   9        1 and 3
    """
    if not {*key, *by} <= set(rows.column_names):
        return [*places]
    found = rows.select(list(dict.fromkeys((*key, *by)))).take(pa.array(places, pa.int64()))
    greatest: dict[Values, tuple[Values, int]] = {}
    for values, order, place in zip(value_tuples(found, key), value_tuples(found, by), places, strict=True):
        ranked = (tuple(map(_rank, order)), place)
        greatest[values] = max(greatest.get(values, ranked), ranked)
    return sorted(place for _, place in greatest.values())


def _rank(value: Any) -> Values:
    """Return a comparable value's place in Spark's order: null first, NaN last."""
    return (0,) if value is None else (2,) if value == _NAN else (1, value)


def _candidates(rows: pa.Table, known: KnownValues, equal: Sequence[str]) -> list[int]:
    """Return the positions of rows that may match, by Arrow: comparing values in Python takes 100 times as long."""
    mask: Any = None
    for name in equal:
        type_ = rows.schema.field(name).type
        try:
            wanted = pa.array(_arrow_values(set(known.columns[name]), type_), type_)
            one = pc.is_in(rows.column(name), value_set=wanted)
        except (pa.ArrowException, AttributeError, OverflowError, TypeError, ValueError):
            continue  # a value that the column cannot have, or a type that Arrow does not look up
        mask = one if mask is None else pc.and_(mask, one)
    return list(range(rows.num_rows)) if mask is None else pc.indices_nonzero(mask).to_pylist()


def _arrow_values(values: Iterable[Any], type_: pa.DataType) -> Iterator[Any]:
    """Yield every value of a type that `_comparable` turns into one of `values`."""
    for value in values:
        if value == _NAN:
            yield math.nan
        elif pa.types.is_floating(type_) and value == 0:
            yield from (0.0, -0.0)
        elif pa.types.is_timestamp(type_) and type_.tz is not None and value is not None:
            yield value.replace(tzinfo=UTC)
        else:
            yield value


def _within(times: Values, start: Values, end: Values) -> bool:
    return all(
        time is not None and low is not None and high is not None and low <= time < high
        for time, low, high in zip(times, start, end, strict=True)
    )


def _microseconds(times: pa.ChunkedArray) -> list[int | None]:
    unit = pa.timestamp("us", times.type.tz) if pa.types.is_timestamp(times.type) else times.type
    microseconds: list[int | None] = times.cast(unit, safe=False).cast(pa.int64()).to_pylist()
    return microseconds


def _tuples(columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> Iterator[Values]:
    if names:
        return zip(*(columns[name] for name in names), strict=True)
    return iter([()] * max((len(values) for values in columns.values()), default=0))


def comparable_values(column: pa.ChunkedArray) -> list[Any]:
    """Return values of which equal keys are equal: one zero, one NaN, times in UTC."""
    return [_comparable(value) for value in python_values(column)]


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value + 0.0  # -0.0 + 0.0 is 0.0
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, dict):
        return tuple((name, _comparable(item)) for name, item in value.items())
    return tuple(map(_comparable, value)) if isinstance(value, list) else value
