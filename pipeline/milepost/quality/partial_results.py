"""Partial results: what expectations find in a part of an epoch's rows, so that nobody needs to hold all of them.

Great Expectations stays the judge. Of a part it says how many rows are refused, or what the sum, the least or the
greatest value is, or how many values there are; `merged_verdict.py` has it judge what follows from all parts.

A part is cut anywhere, but for expectations of uniqueness, whose rows are cut by value (`partitioning.py`). Parts are
joined in the order of the rows, and what comes of them does not depend on where they were cut; sums of floats excepted,
whose last digits do.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc

from milepost.codec.fields import StoredAs, int_keys
from milepost.jobspec.job.spec import Expectation, QualitySpec
from milepost.jobspec.values.expectation_combination import Combination, combination_of
from milepost.quality.evidence import rows_at
from milepost.quality.far_dates import FarDate
from milepost.quality.gate import columns_of, refused_positions, shown_columns
from milepost.quality.gx import (
    COUNTS,
    POSITIONS,
    build_expectation,
    build_expectations,
    columns_with_nulls,
    exception_of,
    silence_library,
    validate_rows,
)
from milepost.quality.partitioning import can_partition_by

MAX_VALUES = 10_000
"""So many distinct values of a column are held, where an expectation is about the set of them."""
_NAME = "value"


def encode_rows(rows: pa.Table) -> bytes:
    """Return rows as an Arrow stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(out.getvalue())


def decode_rows(body: bytes) -> pa.Table:
    with pa.ipc.open_stream(body) as reader:
        return reader.read_all()


def _text(rows: pa.Table | None) -> str | None:
    return None if rows is None else base64.b64encode(encode_rows(rows)).decode("ascii")


def _rows(text: str | None) -> pa.Table | None:
    return None if text is None else decode_rows(base64.b64decode(text))


RowsText = Annotated[pa.Table | None, StoredAs(str | None, _text, _rows)]


@dataclass(frozen=True, slots=True)
class ExpectationMetrics:
    """What one expectation found in some rows.

    Attributes:
        counted: whether it counted rows; else `met` is its answer.
        elements, missing, refused: numbers of rows; missing None: it does not tell them.
        total: a sum, or a number of rows or of distinct values. present: how many values are not missing.
        values: that occur, or least and greatest ones, in one column.
        rows: some of those that are refused, as people see them.
        exception: one line, when it raised.
    """

    counted: bool = False
    met: bool = True
    elements: int = 0
    missing: int | None = None
    refused: int = 0
    total: int | float = 0
    present: int = 0
    values: RowsText = None
    rows: tuple[Mapping[str, Any], ...] = ()
    exception: str | None = None

    def with_next(self, other: ExpectationMetrics, shown: int) -> ExpectationMetrics:
        """Return what is found in these rows and those that follow. `shown`: so many refused rows are kept."""
        if self.exception is not None:
            return self
        if other.exception is not None:
            return other
        return ExpectationMetrics(
            counted=self.counted or other.counted,
            met=self.met and other.met,
            elements=self.elements + other.elements,
            missing=_sum(self.missing, other.missing),
            refused=self.refused + other.refused,
            total=self.total + other.total,
            present=self.present + other.present,
            values=_united(self.values, other.values),
            rows=(self.rows + other.rows)[:shown],
        ).bounded()

    def bounded(self) -> ExpectationMetrics:
        """Return it, as one that raised where it has more values than are held."""
        if self.values is None or self.values.num_rows <= MAX_VALUES:
            return self
        return ExpectationMetrics(exception=f"more than {MAX_VALUES} distinct values, too many to compare with a set")


@dataclass(frozen=True, slots=True)
class PartialResult:
    """What a suite found in some rows.

    Attributes:
        rows: how many there are. nullable: columns of which one is null.
        metrics: by place in the suite. sample: some of the rows, for expectations that need all in one place.
    """

    rows: int = 0
    nullable: tuple[str, ...] = ()
    metrics: Annotated[Mapping[int, ExpectationMetrics], int_keys(ExpectationMetrics)] = field(default_factory=dict)
    sample: RowsText = None

    def with_next(self, other: PartialResult, shown: int) -> PartialResult:
        """Return what is found in these rows and those that follow; args as of `ExpectationMetrics.with_next`."""
        found = dict(self.metrics)
        for number, one in other.metrics.items():
            found[number] = found[number].with_next(one, shown) if number in found else one
        samples = [one for one in (self.sample, other.sample) if one is not None]
        nullable = tuple(sorted({*self.nullable, *other.nullable}))
        return PartialResult(self.rows + other.rows, nullable, found, pa.concat_tables(samples) if samples else None)


def combination_for(expectation: Expectation, schema: pa.Schema) -> Combination:
    """Return what parts must say of an expectation on rows with these columns."""
    how = combination_of(expectation.type, expectation.arguments)
    types = [schema.field(name).type for name in columns_of(expectation) if name in schema.names]
    if how is Combination.MEAN and any(map(pa.types.is_temporal, types)):  # which have no sum
        return Combination.ALL
    if how in (Combination.KEYS, Combination.DISTINCT) and not can_partition_by(types):
        return Combination.ALL
    return how


def required_columns(expectation: Expectation, key: Sequence[str], schema: pa.Schema) -> list[str]:
    """Return the columns by which an expectation judges rows, and those that are shown of them."""
    wanted = shown_columns(expectation, key)
    every = not columns_of(expectation) or expectation.arguments.get("row_condition") is not None
    return [name for name in schema.names if every or name in wanted]


class Tally:
    """Counts what expectations find in rows that come piece by piece. The library is loaded by the first one.

    Args:
        numbers: places of the expectations that it asks. key: columns of the sink's key.
    """

    def __init__(self, suite: QualitySpec, key: Sequence[str], schema: pa.Schema, numbers: Collection[int]) -> None:
        self._suite, self._key = suite, key
        self._hows = {number: combination_for(suite.expectations[number], schema) for number in numbers}
        with silence_library():
            every = build_expectations(suite)
            self._own = {number: every[number] for number in numbers}
            asked = (self._asked(number, how) for number, how in self._hows.items())
            self._asks = {one.meta["number"]: one for one in asked if one is not None}

    def part(self, rows: pa.Table) -> PartialResult:
        """Return what the expectations find in one piece, which has rows."""
        with silence_library():
            answered = validate_rows(list(self._asks.values()), rows, COUNTS)
            found = {number: self._metrics(number, answered.get(number), rows) for number in self._hows}
            seen = self._refused([number for number, one in found.items() if one.refused], rows)
        found |= {number: replace(found[number], rows=shown) for number, shown in seen.items()}
        return PartialResult(rows.num_rows, tuple(columns_with_nulls(rows)), found)

    def _asked(self, number: int, how: Combination) -> Any:
        """Return what the library is asked of each piece; None: nothing."""
        expectation = self._suite.expectations[number]
        column = {"column": expectation.arguments.get("column"), "min_value": 0}
        if how is Combination.MEAN:
            return build_expectation("expect_column_sum_to_be_between", column, number)
        if how is Combination.DISTINCT:
            return build_expectation("expect_column_unique_value_count_to_be_between", column, number)
        by_library = (Combination.ROWS, Combination.KEYS, Combination.COUNT, Combination.ENDS, Combination.SUM)
        return self._own[number] if how in by_library else None

    def _metrics(self, number: int, answer: Any, rows: pa.Table) -> ExpectationMetrics:
        how, column = self._hows[number], str(self._suite.expectations[number].arguments.get("column"))
        if how in (Combination.VALUES, Combination.PRESENT):
            return _own_look(how, rows, column)
        if how is Combination.COLUMNS:
            return ExpectationMetrics()
        exception = exception_of(answer)
        if exception is not None:
            return ExpectationMetrics(exception=exception)
        result = answer.result
        if how in (Combination.ROWS, Combination.KEYS):
            if result.get("element_count") is None:
                return ExpectationMetrics(met=bool(answer.success))
            missing = result.get("missing_count")
            return ExpectationMetrics(
                counted=True,
                elements=int(result["element_count"]),
                missing=None if missing is None else int(missing),
                refused=int(result["unexpected_count"] or 0),
            )
        value = result.get("observed_value")
        if how is Combination.ENDS:
            return ExpectationMetrics(values=_end(value, rows.schema.field(column).type))
        present = _present(rows, column) if how in (Combination.MEAN, Combination.DISTINCT) else 0
        return ExpectationMetrics(total=math.nan if value is None else _number(value), present=present)

    def _refused(self, numbers: list[int], rows: pa.Table) -> dict[int, tuple[Mapping[str, Any], ...]]:
        """Return some of the rows that critical expectations refuse."""
        suite = self._suite
        wanted = [one for one in numbers if suite.expectations[one].severity == "critical" and suite.rows]
        found = validate_rows([self._asks[number] for number in wanted], rows, POSITIONS)
        return {
            number: rows_at(
                rows, refused_positions(answer)[: suite.rows], shown_columns(suite.expectations[number], self._key)
            )
            for number, answer in found.items()
        }


def _own_look(how: Combination, rows: pa.Table, column: str) -> ExpectationMetrics:
    """Return what the library has no words for: values that occur, and how many rows have one."""
    if column not in rows.column_names:
        return ExpectationMetrics(exception=f'Error: The column "{column}" in BatchData does not exist.')
    if how is Combination.PRESENT:
        return ExpectationMetrics(present=_present(rows, column), total=rows.num_rows)
    try:
        values = pc.unique(rows.column(column)).drop_null()
    except pa.ArrowException as error:
        return ExpectationMetrics(
            exception=f"values of type {rows.schema.field(column).type} cannot be told apart: {error}"[:200]
        )
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    return ExpectationMetrics(values=pa.table({_NAME: values})).bounded()


def _present(rows: pa.Table, column: str) -> int:
    values = rows.column(column)
    return rows.num_rows - int(pc.sum(pc.is_null(values, nan_is_null=True), min_count=0).as_py())


def _end(value: Any, type_: pa.DataType) -> pa.Table | None:
    """Return a least or greatest value as a table; None: the part has none."""
    import pandas as pd

    if value is None or value is pd.NaT:
        return None
    if isinstance(value, FarDate):
        return pa.table({_NAME: pa.array([value.days], pa.int32()).cast(pa.date32()).cast(type_)})
    return pa.table({_NAME: pa.array([value.item() if hasattr(value, "item") else value], type_)})


def _number(value: Any) -> int | float:
    number = value.item() if hasattr(value, "item") else value
    return number if isinstance(number, int) else float(number)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _united(one: pa.Table | None, other: pa.Table | None) -> pa.Table | None:
    """Return values of both, each once."""
    if one is None or other is None:
        return one if other is None else other
    return pa.table({_NAME: pc.unique(pa.concat_tables([one, other]).column(_NAME))})
