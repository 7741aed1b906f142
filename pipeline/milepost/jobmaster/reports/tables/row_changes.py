"""Compare two tables by key, or as multisets of rows if there is no key.

Both arrive in order and in pieces, and are compared in steps. A step has all rows of both sides with its keys.

    before: k=1 v=10, k=2 v=20      after: k=2 v=25, k=3 v=30
    changes by key:                 removed 1 (old_v=10), changed 2 (old_v=20, new_v=25), added 3 (new_v=30)

    before: a, a, b                 after: a, c
    changes of rows:                removed a, removed b, added c
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language.times import python_values
from milepost.operators import Bools
from milepost.operators.rows import find_rows, key_columns
from milepost.spill import SpilledRows, align_by_key, ordered_rows
from milepost.state.runs import widens

CHANGE = "change"
_ORDER = "__order_"
ADDED, REMOVED, CHANGED = "added", "removed", "changed"


Rows = Iterable[pa.Table]
"""A table in pieces."""

Sides = tuple[pa.Table, pa.Table]
"""The rows before and after."""


class RowChanges:
    """What differs between two tables.

    Attributes:
        rows: sorted by key, or by all columns without a key, nulls last; on a tie added, changed, removed. Columns:
            `change` (added, removed or changed), the key columns, then `old_<name>` and `new_<name>` of each other
            column of the tables; without a key, `change` and the columns.
    """

    def __init__(self, schema: pa.Schema, changes: Rows = (), limit: int | None = None) -> None:
        """Keep at most `limit` changes. All are counted."""
        self._counts = dict.fromkeys((ADDED, REMOVED, CHANGED), 0)
        self.rows = SpilledRows(schema, map(self._counted, changes), limit)

    def count(self, change: str) -> int:
        """Return how many rows were added, removed or changed."""
        return self._counts[change]

    @property
    def table(self) -> pa.Table:
        """The rows as one table in memory."""
        return self.rows.table()

    def _counted(self, changes: pa.Table) -> pa.Table:
        for count in pc.value_counts(changes.column(CHANGE)).to_pylist():
            self._counts[count["values"]] += count["counts"]
        return changes


def compare_by_key(sides: tuple[Rows, Rows], empty: Sides, key: Sequence[str]) -> Iterator[Sides]:
    """Yield the rows of two tables in key order, in steps that have all rows of both tables with their keys.

    Args:
        sides: sorted by key, with key columns of equal types. empty: both sides without rows.
    """
    for step in align_by_key(sides, key):
        old, new = (schema_only if rows is None else rows for rows, schema_only in zip(step, empty, strict=True))
        yield old, new


def compare_by_columns(before: Rows, after: Rows, empty: Sides) -> Iterator[Sides]:
    """Yield the rows of two tables without a key, sorted by their common columns, equal rows in the same step.

    Args:
        before, after: in any order. empty: both sides without rows.
    """
    types = [{field.name: field.type for field in table.schema} for table in align_types(*empty, ())]
    common = {name: type_ for name, type_ in (types[0] | types[1]).items() if types[0].get(name, type_) == type_}
    by = [f"{_ORDER}{at}" for at in range(len(common))]

    def sortable(rows: pa.Table) -> pa.Table:
        for order, (name, type_) in zip(by, common.items(), strict=True):
            rows = rows.append_column(order, _sortable(_column(rows, name, type_).cast(type_)))
        return rows

    sides = tuple(ordered_rows(map(sortable, rows), by) for rows in (before, after))
    empty_sides = sortable(empty[0]), sortable(empty[1])
    for old, new in compare_by_key((sides[0], sides[1]), empty_sides, by):
        yield old.drop_columns(by), new.drop_columns(by)


def changes_by_key(
    before: pa.Table,
    after: pa.Table,
    key: Sequence[str],
    shown: tuple[pa.Table, pa.Table] | None = None,
    shown_key: Sequence[str] | None = None,
) -> pa.Table:
    """Return the changes of two tables whose key columns identify a row; nulls equal nulls, NaN equals NaN.

    A column that only one of them has counts as null in the other. A type that widened is compared in the wider one.

    Args:
        key: columns of both, of types of which one widens to the other.
        shown: the readable form of each side's rows, in the same order and with key columns; None: as they are.
        shown_key: names of the key columns in `shown`; None: the same.
    """
    shown_key = key if shown_key is None else shown_key
    old_shown, new_shown = align_types(*(shown or (before, after)), shown_key)
    before, after = align_types(before, after, key)
    names = [name for name in dict.fromkeys([*before.column_names, *after.column_names]) if name not in key]
    position = find_rows(key_columns(after, key), before)
    removed = np.ones(before.num_rows, dtype=np.bool_)
    removed[position.drop_null().to_numpy()] = False
    in_both = position.is_valid().to_numpy(zero_copy_only=False).astype(np.bool_)
    old, new = before.take(position.drop_null()), after.filter(pa.array(in_both))
    differs = np.zeros(old.num_rows, dtype=np.bool_)
    for name in names:
        differs |= ~_same(_column(old, name), _column(new, name))
    changed = pa.array(differs)
    old_common, new_common = old_shown.take(position.drop_null()), new_shown.filter(pa.array(in_both))
    pieces = [
        (REMOVED, old_shown.filter(pa.array(removed)), None),
        (CHANGED, old_common.filter(changed), new_common.filter(changed)),
        (ADDED, None, new_shown.filter(pa.array(~in_both))),
    ]
    tables = [_piece(*piece, shown_key, old_shown, new_shown) for piece in pieces]
    return sort_rows(pa.concat_tables(tables), [*shown_key, CHANGE])


def changes_of_rows(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the changes of two tables without a key: rows that one side has more often."""
    before, after = align_types(before, after, ())
    fields = {field.name: field for field in [*before.schema, *after.schema]}
    schema = pa.schema([pa.field(CHANGE, pa.string()), *(pa.field(name, fields[name].type) for name in fields)])
    counted = [Counter(map(repr, _plain_rows(table, list(fields)))) for table in (before, after)]
    parts = []
    for change, table, surplus in (
        (REMOVED, before, counted[0] - counted[1]),
        (ADDED, after, counted[1] - counted[0]),
    ):
        chosen = []
        for index, row in enumerate(map(repr, _plain_rows(table, list(fields)))):
            if surplus[row] > 0:
                surplus[row] -= 1
                chosen.append(index)
        rows = table.take(pa.array(chosen, pa.int64()))
        columns = [_column(rows, name, fields[name].type) for name in fields]
        parts.append(pa.table([pa.array([change] * len(chosen), pa.string()), *columns], schema=schema))
    return sort_rows(pa.concat_tables(parts), [*fields, CHANGE])


def sort_rows(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the rows sorted by these columns."""
    named = {str(number): _sortable(table.column(name)) for number, name in enumerate(names)}
    return table.take(pc.sort_indices(pa.table(named), [(name, "ascending") for name in named]))


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    return pa.array(map(repr, python_values(column)), pa.string()) if pa.types.is_nested(column.type) else column


def _plain_rows(table: pa.Table, names: Sequence[str]) -> list[tuple[object, ...]]:
    columns = [python_values(table.column(name)) if name in table.column_names else [] for name in names]
    filled = [column or [None] * table.num_rows for column in columns]
    return list(zip(*filled, strict=True))


def align_types(before: pa.Table, after: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Cast columns of both tables to the wider of their two types. Key columns always, others only if one type widens.

    Example: int32 and int64 become int64. int64 and string stay as they are, unless it is a key column.
    """
    for name in set(before.column_names) & set(after.column_names):
        old, new = before.schema.field(name).type, after.schema.field(name).type
        if old != new and widens(old, new):
            before = _cast(before, name, new)
        elif old != new and (widens(new, old) or name in key):
            after = _cast(after, name, old)
    return before, after


def _cast(table: pa.Table, name: str, type_: pa.DataType) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, table.column(name).cast(type_))


def _column(table: pa.Table, name: str, type_: pa.DataType | None = None) -> pa.ChunkedArray:
    if name in table.column_names:
        return table.column(name)
    return pa.chunked_array([pa.nulls(table.num_rows, type_ or pa.null())])


def _piece(
    change: str,
    old: pa.Table | None,
    new: pa.Table | None,
    key: Sequence[str],
    before: pa.Table,
    after: pa.Table,
) -> pa.Table:
    shown = new if new is not None else old
    assert shown is not None
    columns = {CHANGE: pa.array([change] * shown.num_rows, pa.string())}
    columns |= {name: shown.column(name) for name in key}
    for name in dict.fromkeys([*before.column_names, *after.column_names]):
        if name in key:
            continue
        for prefix, table, side in (("old", before, old), ("new", after, new)):
            if name in table.column_names:
                nulls = pa.nulls(shown.num_rows, table.schema.field(name).type)
                columns[f"{prefix}_{name}"] = nulls if side is None else side.column(name)
    return pa.table(columns)


def _same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Bools:
    """Compare row by row. NaN equals NaN. Values of types that do not compare are equal only if both are null."""
    both_null = pc.and_(left.is_null(), right.is_null())
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return _bools(both_null)
    if pa.types.is_nested(left.type) or pa.types.is_nested(right.type):
        pairs = zip(python_values(left), python_values(right), strict=True)
        return np.array([repr(old) == repr(new) for old, new in pairs], dtype=np.bool_)
    if left.type != right.type:
        return _bools(both_null)
    equal = pc.or_(both_null, pc.fill_null(pc.equal(left, right), False))
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
    return _bools(equal)


def _bools(values: pa.ChunkedArray) -> Bools:
    return values.to_numpy().astype(np.bool_)
