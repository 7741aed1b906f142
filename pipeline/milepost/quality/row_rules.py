"""Split rows into those that a sink publishes and those that its row rules refuse, in the task that has the rows.

A row rule is an expectation with `on_fail: drop` or `quarantine`. Every rule judges every row: a row that two rules
refuse is rejected once and counted by both. It is quarantined if one of them says so, otherwise dropped.

Rules are evaluated in Arrow, so that a task does not import Great Expectations. Both give the same answer for every
row: NaN counts as null, rules other than those about nulls accept nulls, and integers are compared exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.codec import Count, int_keys
from milepost.errors import InvalidRequest
from milepost.jobspec.job import Expectation, QualitySpec
from milepost.language import Bound, ColumnType, is_true, range_bound, row_rule_problem
from milepost.operators.base import OBJECT_COLUMN, REJECTED_COLUMNS, RULE_COLUMN

_EPOCH = date(1970, 1, 1)
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

Mask = Any
"""Array of booleans, one per row."""


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """What one rule counted. missing: rows without a value, which it accepts; None for a rule about nulls."""

    elements: Count
    missing: Count | None
    refused: Count

    def __add__(self, other: RuleCounts) -> RuleCounts:
        missing = None if self.missing is None or other.missing is None else self.missing + other.missing
        return RuleCounts(self.elements + other.elements, missing, self.refused + other.refused)


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """The rows that the rules of one sink refused.

    Attributes:
        dropped, quarantined: numbers of rows, each counted once.
        rules: what each rule counted, by its position in the suite.
    """

    dropped: Count = 0
    quarantined: Count = 0
    rules: Annotated[Mapping[int, RuleCounts], int_keys(RuleCounts)] = field(default_factory=dict)

    def __add__(self, other: RejectedRows) -> RejectedRows:
        rules = dict(self.rules)
        for number, counts in other.rules.items():
            rules[number] = rules[number] + counts if number in rules else counts
        return RejectedRows(self.dropped + other.dropped, self.quarantined + other.quarantined, rules)


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Rows that were split. quarantined: with `REJECTED_COLUMNS`; None: there are none."""

    accepted: pa.Table
    quarantined: pa.Table | None
    counts: RejectedRows


@dataclass(frozen=True, slots=True)
class RowRules:
    """The row rules of one sink, for rows of one schema.

    Attributes:
        rules: by their position in the suite.
    """

    sink: str
    schema: pa.Schema
    rules: Mapping[int, Expectation]

    @classmethod
    def of(cls, suite: QualitySpec, schema: pa.Schema) -> RowRules:
        """Return the rules of a suite. Raises InvalidRequest: a column is missing, or its type does not fit a rule."""
        for rule in suite.row_rules.values():
            column, where = str(rule.arguments["column"]), f"quality of sink {suite.sink}, {rule.type}"
            if column not in schema.names:
                names = ", ".join(schema.names)
                raise InvalidRequest(f"{where}: there is no column {column}; the columns are {names}. Nothing was run.")
            type_ = column_type(schema.field(column).type)
            problem = row_rule_problem(rule.type, rule.arguments, rule.on_fail, type_)
            if problem is not None:
                raise InvalidRequest(f"{where}: {problem[1]}. Nothing was run.", hint="correct the expectation")
        return cls(suite.sink, schema, suite.row_rules)

    @property
    def rejected_schema(self) -> pa.Schema:
        """Schema of quarantined rows."""
        return pa.schema([*self.schema, *(pa.field(name, pa.string()) for name in REJECTED_COLUMNS)])

    def split(self, rows: pa.Table, read_from: str | None = None) -> SplitRows:
        """Split rows. If no rule refuses one, the accepted rows are the same table.

        Args:
            read_from: the source object that the rows were read from, if it is known.
        """
        masks: dict[int, Mask] = {}
        counts: dict[int, RuleCounts] = {}
        for number, rule in self.rules.items():
            masks[number], missing = _refused(rule, rows.column(str(rule.arguments["column"])))
            counts[number] = RuleCounts(rows.num_rows, missing, int(masks[number].sum()))
        refused = np.logical_or.reduce(list(masks.values()))
        if not refused.any():
            return SplitRows(rows, None, RejectedRows(rules=counts))
        quarantining = [masks[number] for number, rule in self.rules.items() if rule.on_fail == "quarantine"]
        quarantined = np.logical_or.reduce(quarantining) if quarantining else np.zeros(rows.num_rows, dtype=bool)
        total, stored = int(refused.sum()), int(quarantined.sum())
        return SplitRows(
            rows.filter(pa.array(~refused)),
            self._explained(rows, masks, quarantined, read_from) if stored else None,
            RejectedRows(total - stored, stored, counts),
        )

    def _explained(self, rows: pa.Table, masks: Mapping[int, Mask], chosen: Mask, read_from: str | None) -> pa.Table:
        """Return the chosen rows with `REJECTED_COLUMNS`."""
        labels = {number: rule_label(rule) for number, rule in self.rules.items()}
        by_rule = {number: mask[chosen] for number, mask in masks.items()}
        texts = [
            "; ".join(dict.fromkeys(labels[number] for number, mask in by_rule.items() if mask[at]))
            for at in range(int(chosen.sum()))
        ]
        explained = rows.filter(pa.array(chosen)).append_column(RULE_COLUMN, pa.array(texts, pa.string()))
        return explained.append_column(OBJECT_COLUMN, pa.array([read_from] * len(texts), pa.string()))


def refused_positions(rule: Expectation, rows: pa.Table) -> list[int]:
    """Return the positions of the rows that a row rule refuses."""
    refused, _ = _refused(rule, rows.column(str(rule.arguments["column"])))
    return [int(position) for position in np.flatnonzero(refused)]


def rule_label(rule: Expectation) -> str:
    """Return the name of a rule in `RULE_COLUMN`: its type and its column."""
    return f"{rule.type}({rule.arguments['column']})"


def column_type(type_: pa.DataType) -> ColumnType:
    """Return the column type of an Arrow type, as far as rules distinguish them."""
    if pa.types.is_timestamp(type_):
        return ColumnType("timestamp", unit=type_.unit, utc=type_.tz is not None)
    if pa.types.is_decimal(type_):
        return ColumnType("decimal", precision=type_.precision, scale=type_.scale)
    names = {"float": "float32", "double": "float64", "date32[day]": "date", "large_string": "string"}
    return ColumnType(names.get(str(type_), str(type_)))


def _refused(rule: Expectation, column: pa.ChunkedArray) -> tuple[Mask, int | None]:
    """Return which rows a rule refuses, and how many have no value if it is not about nulls."""
    missing = _numpy(pc.is_null(column, nan_is_null=pa.types.is_floating(column.type)))
    if rule.type == "expect_column_values_to_not_be_null":
        return missing, None
    if rule.type == "expect_column_values_to_be_null":
        return ~missing, None
    return _JUDGES[rule.type](rule.arguments, column) & ~missing, int(missing.sum())


def _numpy(mask: pa.ChunkedArray) -> Mask:
    return np.asarray(mask.fill_null(False)).astype(bool)


def _between(arguments: Mapping[str, Any], column: pa.ChunkedArray) -> Mask:
    low, high = (
        None if (value := arguments.get(name)) is None else range_bound(value) for name in ("min_value", "max_value")
    )
    strict_low, strict_high = is_true(arguments.get("strict_min", False)), is_true(arguments.get("strict_max", False))
    type_ = column.type
    if pa.types.is_floating(type_):
        values = column.cast(pa.float64())
        below = None if low is None else (pc.less_equal if strict_low else pc.less)(values, low)
        above = None if high is None else (pc.greater_equal if strict_high else pc.greater)(values, high)
        return np.logical_or.reduce([_numpy(mask) for mask in (below, above) if mask is not None])
    if pa.types.is_decimal(type_):
        return _by_value(column, lambda value: not _is_within(value, low, high, strict_low, strict_high))
    if pa.types.is_integer(type_):
        values = column
    else:
        values = column.cast(pa.int32() if pa.types.is_date(type_) else pa.int64())
    masks = []
    if low is not None:
        masks.append(_beyond(values, _exact(low, type_), strict_low, -1))
    if high is not None:
        masks.append(_beyond(values, _exact(high, type_), strict_high, 1))
    return np.logical_or.reduce(masks)


def _is_within(value: Any, low: Any, high: Any, strict_low: bool, strict_high: bool) -> bool:
    above = low is None or (value > low if strict_low else value >= low)
    return above and (high is None or (value < high if strict_high else value <= high))


def _exact(bound: Bound, type_: pa.DataType) -> Fraction | float:
    """Return a bound as an exact number of the column's unit: days, or the unit of a timestamp; or an infinity."""
    if isinstance(bound, datetime):
        start = datetime(1970, 1, 1, tzinfo=None if bound.tzinfo is None else UTC)
        return Fraction((bound - start) // timedelta(microseconds=1) * 1000, _NANOSECONDS[type_.unit])
    if isinstance(bound, date):
        return Fraction((bound - _EPOCH).days)
    return bound if math.isinf(bound) else Fraction(bound)


def _beyond(values: pa.ChunkedArray, bound: Fraction | float, strict: bool, sign: int) -> Mask:
    """Return which integers are less (sign -1) or more (sign 1) than a bound, or equal to it if it is strict.

    With a bound of 2.5, the integers from 3 on are more. With a strict bound of 3, they are too.
    """
    if isinstance(bound, float):  # beyond every integer on one side
        return np.full(len(values), (bound < 0) == (sign > 0))
    if sign > 0:
        limit = math.ceil(bound) if strict else math.floor(bound) + 1  # the least integer that is refused
    else:
        limit = math.floor(bound) if strict else math.ceil(bound) - 1  # the greatest one
    bits = values.type.bit_width
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if not least <= limit <= most:
        return np.full(len(values), (limit < least) == (sign > 0))
    scalar = pa.scalar(limit, values.type)
    return _numpy(pc.greater_equal(values, scalar) if sign > 0 else pc.less_equal(values, scalar))


def _not_in_set(arguments: Mapping[str, Any], column: pa.ChunkedArray) -> Mask:
    return ~_in_set(arguments, column)


def _in_set(arguments: Mapping[str, Any], column: pa.ChunkedArray) -> Mask:
    values = [value for value in arguments["value_set"] if value is not None]
    type_ = column.type
    if pa.types.is_floating(type_):  # adding 0.0 makes 0.0 of -0.0, which equals it
        members = pa.array([float(value) + 0.0 for value in values], pa.float64())
        return _numpy(pc.is_in(pc.add(column.cast(pa.float64()), 0.0), value_set=members))
    if pa.types.is_decimal(type_):
        return _by_value(column, frozenset(values).__contains__)
    if pa.types.is_integer(type_):
        bits = type_.bit_width
        values = [value for value in values if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)]
    return _numpy(pc.is_in(column, value_set=pa.array(values, type_)))


def _matches(arguments: Mapping[str, Any], column: pa.ChunkedArray) -> Mask:
    pattern = re.compile(str(arguments["regex"]))
    return _by_value(column, lambda value: pattern.search(value) is not None)


def _does_not_match(arguments: Mapping[str, Any], column: pa.ChunkedArray) -> Mask:
    return ~_matches(arguments, column)


def _length_outside(arguments: Mapping[str, Any], column: pa.ChunkedArray) -> Mask:
    return _between(arguments, pc.utf8_length(column))


def _other_length(arguments: Mapping[str, Any], column: pa.ChunkedArray) -> Mask:
    return _numpy(pc.not_equal(pc.utf8_length(column).cast(pa.float64()), float(arguments["value"])))


def _by_value(column: pa.ChunkedArray, judge: Callable[[Any], bool]) -> Mask:
    """Return the answers of a function for all rows. It is called once for each distinct value."""
    encoded = column.combine_chunks().dictionary_encode()
    answers = [bool(judge(value)) for value in encoded.dictionary.to_pylist()]
    answers.append(False)  # of rows without a value
    indices = encoded.indices.fill_null(len(answers) - 1)
    return np.array(answers, dtype=bool)[np.asarray(indices)]


_JUDGES: Mapping[str, Callable[[Mapping[str, Any], pa.ChunkedArray], Mask]] = {
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_be_in_set": _not_in_set,
    "expect_column_values_to_not_be_in_set": _in_set,
    "expect_column_values_to_match_regex": _does_not_match,
    "expect_column_values_to_not_match_regex": _matches,
    "expect_column_value_lengths_to_be_between": _length_outside,
    "expect_column_value_lengths_to_equal": _other_length,
}
"""Expectation -> function that returns which rows it refuses. Its answer for rows without a value is ignored."""


def merge_rejected(parts: Sequence[RejectedRows]) -> RejectedRows:
    """Return the sums over all subtasks."""
    merged = RejectedRows()
    for part in parts:
        merged += part
    return merged
