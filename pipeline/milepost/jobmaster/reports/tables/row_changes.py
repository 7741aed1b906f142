"""Row changes list what two tables differ in, by key, or as multisets of rows where there is none.

Both come in order, piece by piece, and are compared step by step: a step has of both all rows of its keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.jobspec.values.times.any_year import python_values
from milepost.operators.contract import Bools
from milepost.operators.rows.columns import find_rows, key_columns
from milepost.spill.ordered_rows import align_by_key, ordered_rows
from milepost.spill.spilled_rows import SpilledRows
from milepost.state.runs.evolution import widens

CHANGE = "change"
_ORDER = "__order_"
ADDED, REMOVED, CHANGED = "added", "removed", "changed"


Rows = Iterable[pa.Table]
"""Some at a time."""

Aligned = tuple[pa.Table, pa.Table]
"""The former and the latter."""


class RowChanges:
    """What differs between two tables.

    Attributes:
        rows: ordered by key, or by its columns where there is none, nulls last; on a tie added, changed, removed.
            Column `change` (added, removed or changed), the key columns, then `old_<name>` and `new_<name>` of each
            other column that the former and the latter table has; without a key `change` and the columns.
    """

    def __init__(self, schema: pa.Schema, changes: Rows = (), limit: int | None = None) -> None:
        """Keep changes, at most so many of them; all are counted."""
        self._counts = dict.fromkeys((ADDED, REMOVED, CHANGED), 0)
        self.rows = SpilledRows(schema, map(self._counted, changes), limit)

    def count(self, change: str) -> int:
        """Return how many rows were added, removed or changed."""
        return self._counts[change]

    @property
    def table(self) -> pa.Table:
        """The rows, all in memory."""
        return self.rows.table()

    def _counted(self, changes: pa.Table) -> pa.Table:
        for one in pc.value_counts(changes.column(CHANGE)).to_pylist():
            self._counts[one["values"]] += one["counts"]
        return changes


def compare_by_key(sides: tuple[Rows, Rows], none: Aligned, key: Sequence[str]) -> Iterator[Aligned]:
    """Yield the rows of two tables in the order of their key, of which each step has both tables' rows of its keys.

    Args:
        sides: in that order, their key columns of the same types. none: no rows of either.
    """
    for step in align_by_key(sides, key):
        old, new = (empty if rows is None else rows for rows, empty in zip(step, none, strict=True))
        yield old, new


def compare_by_columns(before: Rows, after: Rows, none: Aligned) -> Iterator[Aligned]:
    """Yield the rows of two tables without a key in the order of their columns, alike ones of both in one step.

    Args:
        before, after: in any order. none: no rows of either.
    """
    types = [{field.name: field.type for field in table.schema} for table in aligned(*none, ())]
    same = {name: type_ for name, type_ in (types[0] | types[1]).items() if types[0].get(name, type_) == type_}
    by = [f"{_ORDER}{at}" for at in range(len(same))]

    def sortable(rows: pa.Table) -> pa.Table:
        for order, (name, type_) in zip(by, same.items(), strict=True):
            rows = rows.append_column(order, _sortable(_column(rows, name, type_).cast(type_)))
        return rows

    sides = tuple(ordered_rows(map(sortable, rows), by) for rows in (before, after))
    empty = sortable(none[0]), sortable(none[1])
    for old, new in compare_by_key((sides[0], sides[1]), empty, by):
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
        key: columns of both, of types that one of them can have.
        shown: what the rows of each are shown as, in their order, the key columns among them; None: as they are.
        shown_key: what those are called there; None: the same.
    """
    shown_key = key if shown_key is None else shown_key
    old_shown, new_shown = aligned(*(shown or (before, after)), shown_key)
    before, after = aligned(before, after, key)
    names = [name for name in dict.fromkeys([*before.column_names, *after.column_names]) if name not in key]
    position = find_rows(key_columns(after, key), before)
    removed = np.ones(before.num_rows, dtype=np.bool_)
    removed[position.drop_null().to_numpy()] = False
    known = position.is_valid().to_numpy(zero_copy_only=False).astype(np.bool_)
    old, new = before.take(position.drop_null()), after.filter(pa.array(known))
    differs = np.zeros(old.num_rows, dtype=np.bool_)
    for name in names:
        differs |= ~_same(_column(old, name), _column(new, name))
    chosen = pa.array(differs)
    old_known, new_known = old_shown.take(position.drop_null()), new_shown.filter(pa.array(known))
    pieces = [
        (REMOVED, old_shown.filter(pa.array(removed)), None),
        (CHANGED, old_known.filter(chosen), new_known.filter(chosen)),
        (ADDED, None, new_shown.filter(pa.array(~known))),
    ]
    tables = [_piece(*piece, shown_key, old_shown, new_shown) for piece in pieces]
    return ordered(pa.concat_tables(tables), [*shown_key, CHANGE])


def changes_of_rows(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the changes of two tables without a key: rows of each that the other has less often."""
    before, after = aligned(before, after, ())
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
    return ordered(pa.concat_tables(parts), [*fields, CHANGE])


def ordered(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the rows in the order of these columns: state lies in the order of its keys' hashes."""
    named = {str(number): _sortable(table.column(name)) for number, name in enumerate(names)}
    return table.take(pc.sort_indices(pa.table(named), [(name, "ascending") for name in named]))


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    return pa.array(map(repr, python_values(column)), pa.string()) if pa.types.is_nested(column.type) else column


def _plain_rows(table: pa.Table, names: Sequence[str]) -> list[tuple[object, ...]]:
    columns = [python_values(table.column(name)) if name in table.column_names else [] for name in names]
    filled = [column or [None] * table.num_rows for column in columns]
    return list(zip(*filled, strict=True))


def aligned(before: pa.Table, after: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The tables with the wider of the two types in each key column, and in others where one widens to the other."""
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
    """Return whether values are equal, row by row; values of types that do not compare are only when both are null."""
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
