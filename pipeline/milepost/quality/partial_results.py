"""Evaluate expectations on parts of an epoch's rows, so that no process needs all of them.

Great Expectations evaluates each part. It counts refused rows, or returns the sum, the extremes or the number of
values. `merged_verdict.py` then judges the merged results, again with the library.

Parts can be cut anywhere, except that expectations of uniqueness need parts by value (`partitioning.py`). Parts are
merged in row order. The result does not depend on where they were cut, except for the last digits of float sums.

Example: `expect_column_values_to_not_be_null(v)` over the parts [1, null] and [null, 4, 5]. Their metrics are
(elements 2, refused 1) and (elements 3, refused 1), which merge to (elements 5, refused 2).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc

from milepost.codec import StoredAs, int_keys
from milepost.jobspec.job import Expectation, QualitySpec
from milepost.language import Combination, combination_of
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
"""Limit on the distinct values collected for an expectation on the set of values."""
_NAME = "value"


def encode_rows(rows: pa.Table) -> bytes:
    """Encode rows as an Arrow stream."""
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
    """The result of one expectation on some rows.

    Attributes:
        counted: whether it counted rows; otherwise `met` is its answer.
        elements, missing, refused: numbers of rows. missing: None if the expectation does not count them.
        total: a sum, a row count or a number of distinct values.
        present: number of values that are not missing.
        values: distinct values, or the minimum and maximum, as one column.
        rows: some of the refused rows, formatted for display.
        exception: its error in one line; None if it raised none.
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
        """Merge with the result for the rows that follow. shown: limit on the refused rows in the result."""
        if self.exception is not None:
            return self
        if other.exception is not None:
            return other
        return ExpectationMetrics(
            counted=self.counted or other.counted,
            met=self.met and other.met,
            elements=self.elements + other.elements,
            missing=_add(self.missing, other.missing),
            refused=self.refused + other.refused,
            total=self.total + other.total,
            present=self.present + other.present,
            values=_union(self.values, other.values),
            rows=(self.rows + other.rows)[:shown],
        ).bounded()

    def bounded(self) -> ExpectationMetrics:
        """Return the metrics unchanged, or an error if they have more than `MAX_VALUES` values."""
        if self.values is None or self.values.num_rows <= MAX_VALUES:
            return self
        return ExpectationMetrics(exception=f"more than {MAX_VALUES} distinct values, too many to compare with a set")


@dataclass(frozen=True, slots=True)
class PartialResult:
    """The results of a suite on some rows.

    Attributes:
        rows: number of rows.
        nullable: columns with a null in these rows.
        metrics: by position in the suite.
        sample: some of the rows, for expectations that need all rows together.
    """

    rows: int = 0
    nullable: tuple[str, ...] = ()
    metrics: Annotated[Mapping[int, ExpectationMetrics], int_keys(ExpectationMetrics)] = field(default_factory=dict)
    sample: RowsText = None

    def with_next(self, other: PartialResult, shown: int) -> PartialResult:
        """Merge with the results for the rows that follow. shown: see `ExpectationMetrics.with_next`."""
        merged = dict(self.metrics)
        for number, metrics in other.metrics.items():
            merged[number] = merged[number].with_next(metrics, shown) if number in merged else metrics
        samples = [sample for sample in (self.sample, other.sample) if sample is not None]
        nullable = tuple(sorted({*self.nullable, *other.nullable}))
        return PartialResult(self.rows + other.rows, nullable, merged, pa.concat_tables(samples) if samples else None)


def combination_for(expectation: Expectation, schema: pa.Schema) -> Combination:
    """Return how the results of parts are combined for an expectation on rows with this schema."""
    how = combination_of(expectation.type, expectation.arguments)
    types = [schema.field(name).type for name in columns_of(expectation) if name in schema.names]
    if how is Combination.MEAN and any(map(pa.types.is_temporal, types)):  # temporal values have no sum
        return Combination.ALL
    if how in (Combination.KEYS, Combination.DISTINCT) and not can_partition_by(types):
        return Combination.ALL
    return how


def required_columns(expectation: Expectation, key: Sequence[str], schema: pa.Schema) -> list[str]:
    """Return the columns that an expectation needs: those it checks, and those shown for refused rows."""
    shown = shown_columns(expectation, key)
    needs_all = not columns_of(expectation) or expectation.arguments.get("row_condition") is not None
    return [name for name in schema.names if needs_all or name in shown]


class Tally:
    """Evaluates expectations on rows that arrive in pieces. The constructor imports the library.

    Args:
        numbers: positions in the suite of the expectations to evaluate.
        key: columns of the sink's key.
    """

    def __init__(self, suite: QualitySpec, key: Sequence[str], schema: pa.Schema, numbers: Collection[int]) -> None:
        self._suite, self._key = suite, key
        self._hows = {number: combination_for(suite.expectations[number], schema) for number in numbers}
        with silence_library():
            expectations = build_expectations(suite)
            self._own = {number: expectations[number] for number in numbers}
            of_pieces = (self._of_piece(number, how) for number, how in self._hows.items())
            self._of_pieces = {
                expectation.meta["number"]: expectation for expectation in of_pieces if expectation is not None
            }

    def part(self, rows: pa.Table) -> PartialResult:
        """Evaluate the expectations on one piece, which must not be empty."""
        with silence_library():
            answers = validate_rows(list(self._of_pieces.values()), rows, COUNTS)
            metrics = {number: self._metrics(number, answers.get(number), rows) for number in self._hows}
            refused = self._refused_rows([number for number, result in metrics.items() if result.refused], rows)
        metrics |= {number: replace(metrics[number], rows=shown) for number, shown in refused.items()}
        return PartialResult(rows.num_rows, tuple(columns_with_nulls(rows)), metrics)

    def _of_piece(self, number: int, how: Combination) -> Any:
        """Return the library's expectation to evaluate on each piece, or None.

        It differs from the expectation itself where a piece must report a number: for a mean, each piece reports its
        sum, so that the mean of [1, 2] and [6] is (3 + 6) / 3 = 3.
        """
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
            return _measure_directly(how, rows, column)
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
            return ExpectationMetrics(values=_extreme_table(value, rows.schema.field(column).type))
        present = _count_present(rows, column) if how in (Combination.MEAN, Combination.DISTINCT) else 0
        return ExpectationMetrics(total=math.nan if value is None else _number(value), present=present)

    def _refused_rows(self, numbers: list[int], rows: pa.Table) -> dict[int, tuple[Mapping[str, Any], ...]]:
        """Return some of the rows that critical expectations refuse."""
        suite = self._suite
        critical = [number for number in numbers if suite.expectations[number].severity == "critical" and suite.rows]
        answers = validate_rows([self._of_pieces[number] for number in critical], rows, POSITIONS)
        return {
            number: rows_at(
                rows, refused_positions(answer)[: suite.rows], shown_columns(suite.expectations[number], self._key)
            )
            for number, answer in answers.items()
        }


def _measure_directly(how: Combination, rows: pa.Table, column: str) -> ExpectationMetrics:
    """Compute metrics that the library does not return: the distinct values, and how many rows have a value."""
    if column not in rows.column_names:
        return ExpectationMetrics(exception=f'Error: The column "{column}" in BatchData does not exist.')
    if how is Combination.PRESENT:
        return ExpectationMetrics(present=_count_present(rows, column), total=rows.num_rows)
    try:
        values = pc.unique(rows.column(column)).drop_null()
    except pa.ArrowException as error:
        return ExpectationMetrics(
            exception=f"values of type {rows.schema.field(column).type} cannot be distinguished: {error}"[:200]
        )
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    return ExpectationMetrics(values=pa.table({_NAME: values})).bounded()


def _count_present(rows: pa.Table, column: str) -> int:
    values = rows.column(column)
    return rows.num_rows - int(pc.sum(pc.is_null(values, nan_is_null=True), min_count=0).as_py())


def _extreme_table(value: Any, type_: pa.DataType) -> pa.Table | None:
    """Return a minimum or maximum as a table, or None if the part has no value."""
    import pandas as pd

    if value is None or value is pd.NaT:
        return None
    if isinstance(value, FarDate):
        return pa.table({_NAME: pa.array([value.days], pa.int32()).cast(pa.date32()).cast(type_)})
    return pa.table({_NAME: pa.array([value.item() if hasattr(value, "item") else value], type_)})


def _number(value: Any) -> int | float:
    number = value.item() if hasattr(value, "item") else value
    return number if isinstance(number, int) else float(number)


def _add(left: int | None, right: int | None) -> int | None:
    return None if left is None and right is None else (left or 0) + (right or 0)


def _union(left: pa.Table | None, right: pa.Table | None) -> pa.Table | None:
    """Return the distinct values of both tables."""
    if left is None or right is None:
        return left if right is None else right
    return pa.table({_NAME: pc.unique(pa.concat_tables([left, right]).column(_NAME))})
