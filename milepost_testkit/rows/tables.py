"""Whether two tables hold the same rows: exactly, save for the last bits of floats."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

RELATIVE_TOLERANCE = 1e-12
_SHOWN = 5


def assert_same_rows(actual: pa.Table, expected: pa.Table, what: str = "table") -> None:
    """Fail unless both hold the same multiset of rows, whatever their order and that of the columns.

    Integers, text and times must be equal, floats within 1e-12 relative. Times may be timestamps or int64
    microseconds. The message shows the first rows that only one side has.
    """
    assert sorted(actual.column_names) == sorted(expected.column_names), (
        f"{what}: columns {sorted(actual.column_names)}, expected {sorted(expected.column_names)}"
    )
    names = expected.column_names
    ours, theirs = _plain(actual.select(names)), _plain(expected)
    for name in names:
        found, wanted = ours[name].type, theirs[name].type
        assert pa.types.is_floating(found) == pa.types.is_floating(wanted), (
            f"{what}: column {name} is {found}, expected {wanted}"
        )
    floats = [name for name in names if pa.types.is_floating(theirs[name].type)]
    exact = [name for name in names if name not in floats]
    ours, theirs = _sorted(ours, exact + floats), _sorted(theirs, exact + floats)
    if ours.num_rows == theirs.num_rows and _equal(ours, theirs, exact, floats):
        return
    raise AssertionError(_differences(ours, theirs, exact + floats, what))


def fingerprint(table: pa.Table) -> str:
    """Return how many rows a table has, and a hash over all of them: the same whatever their order and its columns'."""
    names = sorted(table.column_names)
    rows = _sorted(_plain(table.select(names)), names).to_pylist()
    return f"{len(rows)} rows, {hashlib.sha256(repr([names, rows]).encode()).hexdigest()[:16]}"


def _plain(table: pa.Table) -> pa.Table:
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        type_ = column.type
        if pa.types.is_timestamp(type_):
            column = column.cast(pa.timestamp("us", type_.tz)).cast(pa.int64())
        elif pa.types.is_integer(type_):
            column = column.cast(pa.int64())
        elif pa.types.is_floating(type_):
            column = column.cast(pa.float64())
        elif pa.types.is_dictionary(type_) or pa.types.is_large_string(type_):
            column = column.cast(pa.string())
        columns[name] = column
    return pa.table(columns)


def _sorted(table: pa.Table, names: list[str]) -> pa.Table:
    return table.select(names).sort_by([(name, "ascending") for name in names]).combine_chunks()


def _equal(ours: pa.Table, theirs: pa.Table, exact: list[str], floats: list[str]) -> bool:
    if not ours.select(exact).equals(theirs.select(exact)):
        return False
    for name in floats:
        a, b = ours[name], theirs[name]
        if not a.is_null().equals(b.is_null()):
            return False
        bound = pc.multiply(pc.max_element_wise(pc.abs(a), pc.abs(b)), RELATIVE_TOLERANCE)
        # An infinite bound would allow anything, so infinities must be equal.
        near = pc.and_(pc.is_finite(bound), pc.less_equal(pc.abs(pc.subtract(a, b)), bound))
        close = pc.or_(pc.or_(near, pc.equal(a, b)), pc.and_(pc.is_nan(a), pc.is_nan(b)))
        if not pc.all(close, min_count=0).as_py():
            return False
    return True


def _differences(ours: pa.Table, theirs: pa.Table, names: list[str], what: str) -> str:
    left, right = ours.to_pylist(), theirs.to_pylist()
    only_ours: list[dict[str, Any]] = []
    only_theirs: list[dict[str, Any]] = []
    i = j = 0
    while (i < len(left) or j < len(right)) and len(only_ours) + len(only_theirs) < 2 * _SHOWN:
        if i < len(left) and j < len(right) and _same(left[i], right[j]):
            i, j = i + 1, j + 1
        elif j == len(right) or (i < len(left) and _order(left[i], names) <= _order(right[j], names)):
            only_ours.append(left[i])
            i += 1
        else:
            only_theirs.append(right[j])
            j += 1
    lines = [f"{what}: {len(left):,} rows, expected {len(right):,}"]
    lines += [f"  not expected: {row}" for row in only_ours[:_SHOWN]]
    lines += [f"  missing:      {row}" for row in only_theirs[:_SHOWN]]
    return "\n".join(lines)


def _same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return all(
        x == y
        or (isinstance(x, float) and isinstance(y, float) and math.isclose(x, y, rel_tol=RELATIVE_TOLERANCE))
        or (isinstance(x, float) and isinstance(y, float) and math.isnan(x) and math.isnan(y))
        for x, y in ((a[name], b[name]) for name in a)
    )


def _order(row: dict[str, Any], names: list[str]) -> list[tuple[bool, Any]]:
    return [(row[name] is None, 0 if row[name] is None else row[name]) for name in names]
