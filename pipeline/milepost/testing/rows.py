"""Rows of a case file as values of a column's type, and how two sets of rows differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest
from milepost.language.times import python_rows

_SHOWN = 20


def typed_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, what: str) -> pa.Table:
    """Return rows as YAML has them in the types of a schema; a key that a row lacks is null.

    Raises: InvalidRequest: a key that is no column, or a value that its type cannot be.
    """
    known = set(schema.names)
    for row in rows:
        if unknown := sorted(row.keys() - known):
            raise InvalidRequest(f"{what}: there is no column {unknown[0]}; the columns are {', '.join(schema.names)}")
    columns = [_column([row.get(field.name) for row in rows], field, what) for field in schema]
    return pa.table(columns, schema=pa.schema([pa.field(field.name, field.type) for field in schema]))


def _column(values: list[Any], field: pa.Field, what: str) -> pa.Array:
    try:
        if pa.types.is_nested(field.type):
            return pa.array(values, field.type)
        texts = pa.array([None if value is None else _text(value) for value in values], pa.string())
        return pc.cast(texts, field.type) if field.type != pa.string() else texts
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        said = str(error).splitlines()[0]
        raise InvalidRequest(f"{what}: column {field.name} is {field.type}: {said}") from None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def difference(expected: pa.Table, found: pa.Table) -> list[str]:
    """Return how two multisets of rows differ, a line each: `- ` is missing, `+ ` should not be there; [] if nothing.

    Args:
        found: has at least the columns of `expected`; the others are not looked at.
    """
    names = expected.column_names
    wanted, there = _counted(expected), _counted(found.select(names))
    lines = [f"- {_shown(row, names)}{_times(n)}" for row, n in sorted((wanted - there).items(), key=repr)]
    lines += [f"+ {_shown(row, names)}{_times(n)}" for row, n in sorted((there - wanted).items(), key=repr)]
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"… and {len(lines) - _SHOWN} more"]


def _counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_comparable(value) for value in row.values()) for row in python_rows(table))


def _comparable(value: Any) -> Any:
    """Return a value by which equal ones are found: NaN is one value, -0.0 and 0.0 are two."""
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else repr(value))
    if isinstance(value, dict):
        return tuple((key, _comparable(item)) for key, item in value.items())
    return tuple(map(_comparable, value)) if isinstance(value, list) else value


def _shown(row: tuple[Any, ...], names: Iterable[str]) -> str:
    return "{" + ", ".join(f"{name}: {_plain(value)}" for name, value in zip(names, row, strict=True)) + "}"


def _plain(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "float":
        return str(value[1])
    return "null" if value is None else str(value)


def _times(count: int) -> str:
    return f"  ({count} times)" if count > 1 else ""


def as_yaml(value: Any) -> Any:
    """Return a value of a row as a case file writes it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [as_yaml(item) for item in value]
    if isinstance(value, dict):
        return {key: as_yaml(item) for key, item in value.items()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
