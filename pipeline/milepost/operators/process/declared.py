"""Declared columns of a process class, and checks of its state and output.

A value is checked when the user's code supplies it, so an error names the user's line. It is also converted to the form
that a checkpoint would restore, so results do not depend on where one epoch ends and the next begins.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.language import (
    FLOATS,
    INTEGERS,
    ColumnType,
    arrow_schema,
    check_column_name,
    did_you_mean,
    parse_type,
    to_arrow,
)
from milepost.operators.rows.deletes import DELETED_FIELD, deletes_of
from milepost.protocol.subtask import Notification

NOTIFIED = frozenset(f"notify_{what.value}" for what in Notification)
"""Methods of a process class that observe the outcome of checkpoints."""

_NEARLY_NOTIFIED = re.compile("notify_.*(complet|abort|subsum)")


class SchemaMismatch(Exception):
    """A value does not match the declaration. `args[0]` names the column and both types."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The contract of a process class.

    Attributes:
        state, output: column -> type.
        timers: whether it has `on_timer`.
        batches: whether it has `on_batch` instead of `on_rows`.
        notified: names of its methods that observe checkpoint outcomes.
    """

    state: Mapping[str, ColumnType]
    output: Mapping[str, ColumnType]
    timers: bool
    batches: bool
    notified: frozenset[str]


def declare(uid: str, key: Sequence[str], process_class: type) -> Declaration:
    """Return the declaration of a loaded class, without running its methods. Raises InvalidRequest."""
    methods = {name: callable(getattr(process_class, name, None)) for name in ("on_rows", "on_timer", "on_batch")}
    if methods["on_rows"] == methods["on_batch"]:
        got = "both" if methods["on_rows"] else "neither"
        raise _refused(uid, process_class, f"expected on_rows or on_batch, got {got}")
    if methods["on_batch"] and methods["on_timer"]:
        raise _refused(uid, process_class, "timers of on_batch are not available in this version; use on_rows")
    state = _columns(uid, process_class, "state", getattr(process_class, "state", {}))
    output = _columns(uid, process_class, "output", getattr(process_class, "output", None))
    if not output:
        raise _refused(uid, process_class, "`output` declares no column")
    taken = {name.casefold() for name in key}
    for name in state:
        if name.casefold() in taken:
            raise _refused(uid, process_class, f"`state` declares {name}, which is a key column and always there")
    return Declaration(state, output, methods["on_timer"], methods["on_batch"], _notified(uid, process_class))


def _notified(uid: str, process_class: type) -> frozenset[str]:
    """Return the names of the methods that observe checkpoints.

    Raises InvalidRequest: a method has a similar name, so nothing would call it.
    """
    names = {
        name for name in dir(process_class) if _NEARLY_NOTIFIED.match(name) and callable(getattr(process_class, name))
    }
    for name in sorted(names - NOTIFIED):
        raise _refused(uid, process_class, f"nothing calls {name}; {did_you_mean(name, sorted(NOTIFIED))}")
    return frozenset(names)


def _columns(uid: str, process_class: type, attribute: str, declared: object) -> dict[str, ColumnType]:
    if not isinstance(declared, Mapping):
        got = "nothing" if declared is None else f"a {type(declared).__name__}"
        raise _refused(uid, process_class, f"`{attribute}` must be a mapping of column names to types, got {got}")
    columns: dict[str, ColumnType] = {}
    for name, text in declared.items():
        try:
            if not isinstance(name, str):
                raise ValueError(f"a column name is text, got {name!r}")
            if check_column_name(name).casefold() in {known.casefold() for known in columns}:
                raise ValueError(f"the column {name} occurs twice; names that differ only in case are the same")
            columns[name] = parse_type(text)
        except ValueError as problem:
            raise _refused(uid, process_class, f"`{attribute}`: {problem}") from None
    return columns


def _refused(uid: str, process_class: type, problem: str) -> InvalidRequest:
    return InvalidRequest(f"operator {uid}: class {process_class.__qualname__}: {problem}. Nothing was written.")


_PYTHON: dict[str, tuple[type, ...]] = {
    "bool": (bool, np.bool_),
    "decimal": (Decimal, int, np.integer),
    "string": (str,),
    "binary": (bytes, bytearray, memoryview),
    "date": (date, np.datetime64),
    "timestamp": (datetime,),
    "list": (list, tuple, np.ndarray),
    "struct": (dict,),
    **dict.fromkeys(INTEGERS, (int, np.integer)),
    **dict.fromkeys(FLOATS, (float, int, np.floating, np.integer)),
}
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_UNCHANGED = {"string": str, "float64": float, "bool": bool}
"""Python types whose values a checkpoint restores unchanged."""


class Column:
    """One declared column, and the Python values that it accepts."""

    def __init__(self, what: str, name: str, declared: ColumnType) -> None:
        self.name = name
        self.declared = declared
        self.arrow = to_arrow(declared)
        self._what = what
        self._unchanged = _UNCHANGED.get(declared.kind)

    def stored(self, value: object) -> Any:
        """Return the value in the form that a checkpoint restores. Raises SchemaMismatch."""
        if value is None or type(value) is self._unchanged:
            return value
        if not takes_value(self.declared, value):
            raise SchemaMismatch(f"{self._what} column {self.name} is {self.declared}, got {_type_name(value)}")
        try:
            return pa.scalar(value, type=self.arrow).as_py()
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
            detail = (str(problem).splitlines() or [""])[0][:200]
            raise SchemaMismatch(
                f"{self._what} column {self.name} is {self.declared}, got {_type_name(value)}: {detail}"
            ) from None


def takes_value(declared: ColumnType, value: object) -> bool:
    """Return whether a Python value is of a declared type, so that nothing of it is lost. None is of every type.

    Arrow would store 1.5 as the integer 1, True as 1, 1e300 as an infinite float32, cut nanoseconds off a timestamp of
    pandas, and leave a key out that a struct does not declare.
    """
    if value is None:
        return True
    if not isinstance(value, _PYTHON[declared.kind]):
        return False
    if isinstance(value, bool):
        return declared.kind == "bool"
    if isinstance(value, datetime):
        is_whole = not getattr(value, "nanosecond", 0)
        return declared.kind == "timestamp" and is_whole and (value.tzinfo is not None) == declared.utc
    if declared.kind == "float32":
        number: Any = value
        return not _FLOAT32_MAX < abs(number) < math.inf
    if declared.element is not None and isinstance(value, list | tuple | np.ndarray):
        return all(takes_value(declared.element, item) for item in value)
    if declared.fields and isinstance(value, dict):
        fields = dict(declared.fields)
        return value.keys() <= fields.keys() and all(takes_value(fields[name], item) for name, item in value.items())
    return True


def _type_name(value: object) -> str:
    if isinstance(value, datetime):
        return f"{type(value).__name__} {'with' if value.tzinfo is not None else 'without'} time zone"
    return type(value).__name__


def columns_of(what: str, declared: Mapping[str, ColumnType]) -> dict[str, Column]:
    return {name: Column(what, name, type_) for name, type_ in declared.items()}


class KeyState(MutableMapping[str, Any]):
    """The state of one key. It has every declared column, None if the column was never set.

    `del state[name]` sets None, and `state.clear()` deletes the key. Lists and dicts may be mutated in place.
    """

    __slots__ = ("_columns", "_values")

    def __init__(self, columns: Mapping[str, Column], values: Mapping[str, Any]) -> None:
        self._columns = columns
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        self._known(name)
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._known(name)
        try:
            self._values[name] = self._columns[name].stored(value)
        except SchemaMismatch as problem:
            raise TypeError(str(problem)) from None

    def __delitem__(self, name: str) -> None:
        self[name] = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"KeyState({self._values!r})"

    def clear(self) -> None:
        """Set every column to None."""
        self._values = dict.fromkeys(self._columns)

    def settle(self) -> None:
        """Convert values that were mutated in place to their stored form. Raises SchemaMismatch."""
        for name, column in self._columns.items():
            if column.declared.is_nested:
                self._values[name] = column.stored(self._values[name])

    def values_by_name(self) -> dict[str, Any]:
        return self._values

    def _known(self, name: str) -> None:
        if name not in self._columns:
            raise KeyError(f"`state` declares no column {name}; {did_you_mean(str(name), list(self._columns))}")


class Output:
    """Collects the yielded rows of a process function in order, for one epoch.

    Attributes:
        schema: schema of the rows.
        taken: number of rows collected so far.
    """

    def __init__(self, declared: Mapping[str, ColumnType], *, deletes: bool = False) -> None:
        """Args:
        deletes: whether rows may be deletes. Then they have `DELETED_COLUMN`.
        """
        self._declared = arrow_schema(declared)
        self.schema = pa.schema([*self._declared, DELETED_FIELD]) if deletes else self._declared
        self._columns = columns_of("output", declared)
        self._tables: list[pa.Table] = []
        self._open: dict[str, list[Any]] = {name: [] for name in self.schema.names}
        self._rows = 0
        self.taken = 0

    def add(self, item: object) -> None:
        """Add one yielded dict or table. Raises SchemaMismatch."""
        if isinstance(item, Mapping):
            self._names(item)
            self._row([column.stored(item[name]) for name, column in self._columns.items()], deleted=False)
        elif isinstance(item, pa.Table | pa.RecordBatch):
            self._close()
            self._table(fitted(item, self._declared, "output"), deleted=False)
        else:
            raise SchemaMismatch(f"expected a dict or a pyarrow Table as output, got {type(item).__name__}")

    def delete(self, key: Mapping[str, object]) -> None:
        """Add a delete of one output key, which has all of its columns. Raises SchemaMismatch."""
        row = [column.stored(key[name]) if name in key else None for name, column in self._columns.items()]
        self._row(row, deleted=True)

    def delete_all(self, keys: pa.Table) -> None:
        """Add deletes of output keys, which have columns of the output. Raises SchemaMismatch."""
        wanted = pa.schema([field for field in self._declared if field.name in keys.column_names])
        rows = fitted(keys, wanted, "deleted")
        self._close()
        self._table(deletes_of(rows, wanted.names, self._declared), deleted=True)

    def _row(self, row: list[Any], *, deleted: bool) -> None:
        if len(self._open) > len(row):
            row.append(deleted)
        for values, value in zip(self._open.values(), row, strict=True):
            values.append(value)
        self._rows += 1
        self.taken += 1

    def _table(self, rows: pa.Table, *, deleted: bool) -> None:
        if len(self.schema) > len(self._declared):
            rows = rows.append_column(DELETED_FIELD, pa.repeat(pa.scalar(deleted), rows.num_rows))
        self._tables.append(rows)
        self.taken += rows.num_rows

    def take(self) -> pa.Table:
        """Return the rows since the last call."""
        self._close()
        tables, self._tables = self._tables, []
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def _names(self, item: Mapping[Any, Any]) -> None:
        if item.keys() != self._columns.keys():
            raise _other_columns(item, list(self._columns), "output")

    def _close(self) -> None:
        if self._rows:
            columns = [pa.array(self._open[field.name], type=field.type) for field in self.schema]
            self._tables.append(pa.table(columns, schema=self.schema))
            self._open = {name: [] for name in self._open}
            self._rows = 0


def fitted(table: pa.Table | pa.RecordBatch, schema: pa.Schema, what: str) -> pa.Table:
    """Reorder and cast a table to `schema`. Raises SchemaMismatch: other columns, or a cast would change a value."""
    rows = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    if sorted(rows.column_names) != sorted(schema.names):
        raise _other_columns(rows.column_names, schema.names, what)
    columns = []
    for field in schema:
        column = rows.column(field.name)
        if not _same_family(column.type, field.type):
            raise SchemaMismatch(f"{what} column {field.name} is {field.type}, got {column.type}")
        try:
            columns.append(column.cast(field.type))
        except MemoryError:  # also a pyarrow error, but it concerns the process
            raise
        except pa.ArrowException as problem:
            raise SchemaMismatch(f"{what} column {field.name} is {field.type}, got {column.type}: {problem}") from None
    return pa.table(columns, schema=schema)


def _same_family(given: pa.DataType, wanted: pa.DataType) -> bool:
    if given == wanted or pa.types.is_null(given) or pa.types.is_nested(wanted):
        return True
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    if pa.types.is_floating(wanted) and pa.types.is_integer(given):
        return True
    families = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date, _is_text, _is_binary)
    return any(family(given) and family(wanted) for family in families)


def _is_text(given: pa.DataType) -> bool:
    return bool(pa.types.is_string(given) or pa.types.is_large_string(given) or pa.types.is_string_view(given))


def _is_binary(given: pa.DataType) -> bool:
    return bool(pa.types.is_binary(given) or pa.types.is_large_binary(given) or pa.types.is_binary_view(given))


def _other_columns(given: Iterable[Any], wanted: Sequence[str], what: str) -> SchemaMismatch:
    names = [str(name) for name in given]
    for name in wanted:
        if name not in names:
            return SchemaMismatch(f"{what} column {name} is missing; got {', '.join(names) or 'no column'}")
    for name in names:
        if name not in wanted:
            return SchemaMismatch(f"{what} has no column {name}; {did_you_mean(name, list(wanted))}")
    return SchemaMismatch(f"{what} names a column twice: {', '.join(names)}")
