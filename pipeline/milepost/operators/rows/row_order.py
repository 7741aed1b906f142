"""Total order of rows: Spark's order by some columns, then by the whole row.

It does not depend on the order of arrival. Each column is encoded as integers that sort as its values do: null first,
NaN after every number, text by its bytes. In the declared order of a spec -0.0 equals 0.0. In the comparison of whole
rows -0.0 is before 0.0, because such rows differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.contract import Bools, Ints

OrderBy = tuple[tuple[str, bool], ...]
"""(column, whether it descends) pairs. Nulls are first in ascending columns and last in descending ones."""


def tie_break(columns: pa.Schema, key: Collection[str], order_by: Collection[str]) -> tuple[str, ...]:
    """Return the columns that break ties between rows of one key, in the order of comparison.

    Such rows are equal in the key, and in the order's columns except for -0.0 and 0.0.

    >>> columns = pa.schema([("page", pa.string()), ("title", pa.string()), ("views", pa.int64()), ("by", pa.string())])
    >>> tie_break(columns, ["page"], ["views"])
    ('title', 'by')
    """
    return tuple(
        field.name
        for field in columns
        if field.name not in key and (field.name not in order_by or pa.types.is_floating(field.type))
    )


def sorted_rows(rows: pa.Table, groups: Ints, order_by: OrderBy) -> tuple[Ints, Bools]:
    """Sort rows by group, within a group by `order_by`, and then by all columns.

    Returns:
        (row positions in that order, for each whether it differs from the previous row in group or value).

    >>> rows = pa.table({"page": ["b", "a", "a", "c"], "views": [1, 5, 5, None]})
    >>> order, begins = sorted_rows(rows, np.zeros(4, dtype=np.int64), (("views", True),))
    >>> order.tolist(), begins.tolist()
    ([1, 2, 0, 3], [True, False, True, True])
    """
    codes: list[Ints] = [groups, *(_declared(rows.column(name), descends) for name, descends in order_by)]
    order = _lexsort(codes)
    ties = _same_as_before(codes, order)
    if ties.any():
        tied = ties.copy()
        tied[:-1] |= ties[1:]
        places = np.flatnonzero(tied)
        within: list[Ints] = [np.cumsum(~ties)[places].astype(np.int64)]  # one number per set of tied rows
        for column in rows.take(pa.array(order[places])).columns:
            within += _codes(_array(column))
        resolved = _lexsort(within)
        order[places] = order[places][resolved]
        ties[places] = _same_as_before(within, resolved)
    return order, ~ties


def order_numbers(columns: Sequence[pa.ChunkedArray]) -> Ints:
    """Return a number per row that sorts as the columns do, in their order: null first, NaN last, one zero.

    >>> order_numbers(pa.table({"x": [2.0, None, 2.0, -1.0], "y": [3, 1, 3, 5]}).columns).tolist()
    [3, 1, 3, 2]
    """
    codes = [_declared(column, False) for column in columns]
    if len(codes) == 1:
        return codes[0]
    order = _lexsort(codes)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(~_same_as_before(codes, order))
    return numbers


def same_values(one: pa.Table, other: pa.Table) -> Bools:
    """Return for each row whether it equals the other table's row bit by bit. NaNs are equal, -0.0 is not 0.0."""
    same = np.ones(one.num_rows, dtype=np.bool_)
    for name in one.column_names:
        first, second = _array(one.column(name)), _array(other.column(name))
        if pa.types.is_nested(first.type):
            for code in _codes(pa.concat_arrays([first, second])):
                same &= code[: len(same)] == code[len(same) :]
            continue
        if pa.types.is_floating(first.type):
            first, second = float_order(first), float_order(second)
        nulls = pc.and_(first.is_null(), second.is_null())
        same &= np.asarray(pc.or_(pc.fill_null(pc.equal(first, second), False), nulls))
    return same


def last_rows(rows: pa.Table, groups: Ints, order_by: Sequence[str]) -> Ints:
    """Return the position of each group's last row, in ascending order of `order_by` and then of all columns.

    Of rows that are equal in all columns, the one with the highest position is chosen. All columns are compared only
    for rows that tie in `order_by`.

    >>> rows = pa.table({"page": ["b", "a", "c", "a"], "views": [5, 5, 1, None]})
    >>> last_rows(rows, np.array([0, 0, 1, 1]), ("views",)).tolist()
    [0, 2]
    """
    if not len(groups):
        return groups
    count = int(groups.max()) + 1
    places = np.arange(len(groups), dtype=np.int64)
    for name in order_by:
        places = places[_are_greatest(_declared(rows.column(name), False)[places], groups[places], count)]
        if len(places) == count:
            break
    if len(places) > count:
        tied = np.bincount(groups[places], minlength=count)[groups[places]] > 1
        among = places[tied]
        whole = rows.take(pa.array(among))
        greatest = np.arange(len(among))
        for column in whole.columns:
            for code in _codes(_array(column)):
                greatest = greatest[_are_greatest(code[greatest], groups[among[greatest]], count)]
        places = np.concatenate([places[~tied], np.sort(among[greatest])])
    last = np.empty(count, dtype=np.int64)
    last[groups[places]] = places
    return last


def _are_greatest(code: Ints, groups: Ints, count: int) -> Bools:
    """Return which numbers are the maximum of their group."""
    greatest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(greatest, groups, code)
    return code == greatest[groups]


def _lexsort(codes: Sequence[Ints]) -> Ints:
    return np.lexsort(tuple(reversed(codes)))


def _same_as_before(codes: Sequence[Ints], order: Ints) -> Bools:
    """Return for each position in an order whether all codes equal those of the previous position."""
    same = np.zeros(len(order), dtype=np.bool_)
    same[1:] = True
    for code in codes:
        ordered = code[order]
        same[1:] &= ordered[1:] == ordered[:-1]
    return same


def _declared(column: pa.ChunkedArray, descends: bool) -> Ints:
    array = _array(column)
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.equal(array, pa.scalar(0.0, array.type)), pa.scalar(0.0, array.type), array)
    (code,) = _codes(array)
    return ~code if descends else code  # -code would overflow for the minimum of int64


def _codes(array: pa.Array) -> Iterator[Ints]:
    """Yield integer columns that sort as the array's values do, most significant first. Null is first.

    ["b", null, "a", "b"]   ->   [2, 0, 1, 2]
    """
    data_type = array.type
    if pa.types.is_dictionary(data_type):
        yield from _codes(array.dictionary_decode())
    elif pa.types.is_struct(data_type):
        yield np.asarray(array.is_valid()).astype(np.int64)
        for child in array.flatten():
            yield from _codes(child)
    elif pa.types.is_nested(data_type):
        yield from _codes_of_lists(array)
    elif pa.types.is_null(data_type):
        yield np.zeros(len(array), dtype=np.int64)
    elif _is_whole(data_type) and not array.null_count:
        yield array.view(_VIEWS.get(data_type.bit_width, data_type)).cast(pa.int64()).to_numpy()
    else:
        encoded = (float_order(array) if pa.types.is_floating(data_type) else array).dictionary_encode()
        ranks = np.empty(len(encoded.dictionary) + 1, dtype=np.int64)
        ranks[np.asarray(pc.array_sort_indices(encoded.dictionary))] = np.arange(1, len(encoded.dictionary) + 1)
        ranks[-1] = 0
        yield ranks[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)]


_VIEWS = {32: pa.int32(), 64: pa.int64()}


def _is_whole(data_type: pa.DataType) -> bool:
    """Return whether values are stored as signed integers of at most 64 bits."""
    return bool(
        pa.types.is_signed_integer(data_type) or pa.types.is_timestamp(data_type) or pa.types.is_date(data_type)
    )


def float_order(array: pa.Array) -> pa.Array:
    """Return int64 numbers that sort as the floats do: -0.0 before 0.0, and one NaN after infinity. Null stays null.

    >>> float_order(pa.array([1.0, -0.0, 0.0, -1.0, float("nan")])).to_numpy().argsort().tolist()
    [3, 1, 2, 0, 4]
    """
    wide = array.cast(pa.float64())
    values = np.asarray(pc.fill_null(wide, 0.0))
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return pa.array(_negatives_reversed(bits), mask=np.asarray(array.is_null()))


def floats_of_order(numbers: Ints) -> npt.NDArray[np.float64]:
    """Return the float64 values that `float_order` maps to these numbers.

    >>> floats_of_order(float_order(pa.array([-0.0, 0.5, float("inf")])).to_numpy()).tolist()
    [-0.0, 0.5, inf]
    """
    return _negatives_reversed(numbers).view(np.float64)


def _negatives_reversed(bits: Ints) -> Ints:
    """Reverse the order of the bits of negative floats. The function is its own inverse."""
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)


def _codes_of_lists(array: pa.Array) -> Iterator[Ints]:
    """Yield codes of lists: whether there is a list, then its elements by position. A prefix sorts first."""
    lists = array if not pa.types.is_map(array.type) else array.cast(_entries(array.type))
    there = np.asarray(lists.is_valid())
    yield there.astype(np.int64)
    lists = lists if not pa.types.is_fixed_size_list(lists.type) else lists.cast(pa.list_(lists.type.value_type))
    offsets = np.asarray(lists.offsets).astype(np.int64)
    begins, lengths = offsets[:-1], np.where(there, np.diff(offsets), 0)
    codes = list(_codes(lists.values))
    for place in range(int(lengths.max(initial=0))):
        has = lengths > place
        yield has.astype(np.int64)
        for code in codes:
            elements = np.zeros(len(has), dtype=np.int64)
            elements[has] = code[begins[has] + place]
            yield elements


def _entries(data_type: pa.DataType) -> pa.DataType:
    entry = pa.struct([pa.field("key", data_type.key_type, nullable=False), ("value", data_type.item_type)])
    return pa.list_(entry)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])
