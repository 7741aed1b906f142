"""Find a row of a table by some of its values, and compare it with the rows that a replay emitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.jobmaster.tracing.selection import KnownValues, comparable_values, selected
from milepost.jobspec.graph import SinkInput
from milepost.language import did_you_mean
from milepost.language.times import parse_timestamp, python_rows
from milepost.operators.base import DELETED_COLUMN

_NAMED = 5
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class OutputRow:
    """A row of a table.

    Attributes:
        row: one row, with the columns from operators. copies: how often the table has it.
        shown: the row with all columns of its table: a rejected row also has its rule and object.
    """

    row: pa.Table
    copies: int
    shown: pa.Table

    def copies_among(self, rows: Sequence[pa.Table]) -> int:
        """Return the number of rows that are equal to this one."""
        (expected,) = exact_rows(self.row)
        return sum(exact_rows(self.columns_of(table)).count(expected) for table in rows if table.num_rows)

    def columns_of(self, rows: pa.Table) -> pa.Table:
        """Return the columns of this row from other rows; null for columns that their version of the spec lacks."""
        for field in self.row.schema:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows.select(self.row.column_names)

    def is_made_by(self, sink: SinkInput, emitted: Mapping[str, Sequence[pa.Table]]) -> bool:
        """Return whether a replay emitted this row for the sink, exactly as often as the table has it.

        Rows that the table had where the replay began do not count: the replay did not make them.
        """
        (expected,) = exact_rows(self.row)
        tables = [table for table in emitted.get(sink.output, ()) if table.num_rows]
        if sink.mode != "upsert":
            return self.copies_among(tables) == self.copies
        newest: Any = None  # the last row of the key counts; a delete removes it
        for table in tables:
            of_key = selected(table, [KnownValues.of(self.row.select(list(sink.key)))])
            if of_key.num_rows:
                newest = of_key.slice(of_key.num_rows - 1)
        if newest is None or (DELETED_COLUMN in newest.column_names and newest.column(DELETED_COLUMN)[0].as_py()):
            return False
        return exact_rows(self.columns_of(newest)) == [expected]


def find_row(
    sink: str, read: Callable[[], Iterable[pa.Table]], known: KnownValues, names: Sequence[str]
) -> OutputRow | None:
    """Return the row of a table with known values; None: it has none.

    Args:
        read: returns the rows of the table. names: the columns from operators.
    Raises:
        InvalidRequest: several different rows match.
    """
    found = [rows for piece in read() if (rows := selected(piece, [known])).num_rows]
    if not found:
        return None
    rows = pa.concat_tables(found)
    exact = exact_rows(rows.select(names))
    if any(row != exact[0] for row in exact):
        differ = [name for at, name in enumerate(names) if len({repr(row[at]) for row in exact}) > 1]
        raise InvalidRequest(
            f"sink {sink}: {len(exact)} rows of its table match, and they differ. Nothing was read again.",
            hint=f"name one of them: they differ in {', '.join(differ[:_NAMED])}",
            sink=sink,
        )
    shown = rows.slice(0, 1)
    for at, name in enumerate(rows.column_names):
        if name not in names:  # equal rows of several objects are one row
            values = [value for value in dict.fromkeys(rows.column(name).to_pylist()) if value is not None]
            shown = shown.set_column(at, name, pa.array(["; ".join(values) or None], pa.string()))
    row = OutputRow(rows.slice(0, 1).select(names), len(exact), shown)
    if known.columns.keys() <= set(names):
        return row
    same = KnownValues.of(row.row)
    return replace(row, copies=row.copies_among([selected(piece.select(names), [same]) for piece in read()]))


def known_values(sink: str, schema: pa.Schema, values: Mapping[str, str]) -> KnownValues:
    """Return values from their texts. Raises InvalidRequest: no such column, or not a value of its type."""
    return KnownValues({name: comparable_values(_value(sink, schema, name, text)) for name, text in values.items()})


def _value(sink: str, schema: pa.Schema, name: str, text: str) -> pa.ChunkedArray:
    """Return a value of a column: `null` is null, and `'null'` is text."""
    if name not in schema.names:
        raise InvalidRequest(f"sink {sink}: its table has no column {name}; {did_you_mean(name, schema.names)}")
    type_ = schema.field(name).type
    try:
        value: Any = None if text == "null" else _parsed(text, type_)
        return pa.chunked_array([pa.array([value], type_)])
    except (pa.ArrowException, ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError):
        raise InvalidRequest(
            f"sink {sink}: the value given for column {name} is not of its type, {type_}. Nothing was read.",
            hint=f"milepost read prints its values; {name}=null is null",
        ) from None


def _parsed(text: str, type_: pa.DataType) -> Any:
    if pa.types.is_timestamp(type_):
        time = parse_timestamp(text)
        return time if type_.tz is not None else time.replace(tzinfo=None)
    if pa.types.is_decimal(type_):
        return Decimal(text)
    if pa.types.is_boolean(type_):
        return _BOOLEANS[text.lower()]
    if pa.types.is_nested(type_) or pa.types.is_binary(type_):
        raise TypeError(f"values of {type_} cannot be written as text")
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
    return pa.array([text]).cast(type_)[0].as_py()


def exact_rows(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows as tuples that are equal only if every value is the same: -0.0 is not 0.0, NaN is NaN."""
    return [tuple(map(_exact, row.values())) for row in python_rows(rows)]


def _exact(value: Any) -> Any:
    if isinstance(value, float):
        return "float", "nan" if math.isnan(value) else repr(value)
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, dict):
        return tuple((name, _exact(item)) for name, item in value.items())
    return tuple(map(_exact, value)) if isinstance(value, list) else value
