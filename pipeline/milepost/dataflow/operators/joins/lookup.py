"""`kind: lookup`: rows with the columns of the row that a static source has of their key.

It has no state: what it gives of a row depends on that row and the static source alone. The source's rows are prepared
once: one per key, in the order of the keys' hashes, so that a row is found by a binary search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.dataflow.operators.contract import Bools, Ints, OperatorFailed
from milepost.dataflow.operators.joins.join_columns import JoinedColumns, common_types
from milepost.dataflow.operators.rows.columns import (
    check_key,
    first_of_each,
    group_rows,
    key_columns,
    plain_schema,
    without_nulls,
)
from milepost.dataflow.operators.rows.row_order import sorted_rows
from milepost.spec.job.lookup_spec import LookupOperator

Hasher: TypeAlias = Callable[[pa.Table, Sequence[str]], npt.NDArray[np.uint64]]
"""Hashes the rows of a table by some columns, as `KeyHash` does."""

HASH_COLUMN = "hash"
_KEY, _VALUE = "key_", "value_"
_NAMED_KEYS = 3


@dataclass(frozen=True, slots=True)
class Lookup:
    """Finds rows of a static source. Picklable.

    Attributes:
        input: name of the node whose rows it gets. dimension: of the static source.
        keys: pairs of a column of each. types: in which they are compared. order_by: columns, and of each whether it
            descends. keeps_all: rows that find nothing come out too.
        output_schema: the input's columns, then `found` of the static source under their new names.
    """

    uid: str
    input: str
    dimension: str
    keys: tuple[tuple[str, str], ...]
    types: tuple[pa.DataType, ...]
    order_by: tuple[tuple[str, bool], ...]
    keeps_all: bool
    found: tuple[str, ...]
    output_schema: pa.Schema

    @classmethod
    def of(cls, spec: LookupOperator, left: pa.Schema, right: pa.Schema) -> Lookup:
        """Return the lookup of a spec. Raises InvalidRequest: its columns do not fit its inputs."""
        left, right = plain_schema(left), plain_schema(right)
        for side, schema in enumerate((left, right)):
            check_key(spec.uid, [pair[side] for pair in spec.key], schema)
        columns = JoinedColumns.of(spec.uid, (left, right), [pair[1] for pair in spec.key], spec.renamed)
        return cls(
            spec.uid,
            spec.inputs[0],
            spec.dimension,
            spec.key,
            tuple(common_types(spec.uid, spec.key, (left, right))),
            spec.order_by,
            spec.how == "left",
            tuple(columns.of_side(1)),
            pa.schema(list(columns.fields)),
        )

    @property
    def identity(self) -> list[object]:
        """What the prepared rows depend on beside the static source's own."""
        right = [pair[1] for pair in self.keys]
        return [right, [str(one) for one in self.types], self.order_by, self.found]

    def prepare(self, rows: pa.Table, hasher: Hasher) -> pa.Table:
        """Return one row per key of a static source, by the hash of its key; a key with a null is left out.

        Returns: `HASH_COLUMN`, the key columns, and what is found.
        Raises: OperatorFailed: a key is there twice, and nothing says which of its rows is found.
        """
        keys = self._keys(rows, 1)
        there = without_nulls(keys)
        if not there.all():
            rows, keys = rows.filter(pa.array(there)), keys.filter(pa.array(there))
        codes, count = group_rows(keys)
        if self.order_by:
            order, _ = sorted_rows(rows, codes, self.order_by)
            chosen = order[np.flatnonzero(np.diff(codes[order], prepend=-1))]
        else:
            self._refuse_several(keys, codes, count)
            chosen = np.arange(count)
        rows, keys = rows.take(pa.array(chosen)), keys.take(pa.array(chosen))
        hashes = hasher(keys, keys.column_names)
        order = np.argsort(hashes, kind="stable")
        table = pa.table({HASH_COLUMN: hashes} | {name: keys.column(name) for name in keys.column_names})
        for at, name in enumerate(self.found):
            table = table.append_column(f"{_VALUE}{at}", rows.column(name))
        return table.take(pa.array(order)).combine_chunks()

    def find(self, rows: pa.Table, prepared: PreparedRows, hasher: Hasher) -> pa.Table:
        """Return rows, in their order, with what is found of each."""
        keys = self._keys(rows, 0)
        places = prepared.find(keys, hasher(keys, keys.column_names))
        nothing = places < 0
        if nothing.any():
            if not self.keeps_all:
                rows, places = rows.filter(pa.array(~nothing)), places[~nothing]
            indices = pa.array(places, mask=places < 0)
        else:
            indices = pa.array(places)
        found = [prepared.rows.column(f"{_VALUE}{at}").take(indices) for at in range(len(self.found))]
        return pa.table([*rows.columns, *found], names=self.output_schema.names).cast(self.output_schema)

    def _keys(self, rows: pa.Table, side: int) -> pa.Table:
        columns = [rows.column(pair[side]) for pair in self.keys]
        wide = [column.cast(type_) for column, type_ in zip(columns, self.types, strict=True)]
        named = pa.table(wide, names=[f"{_KEY}{at}" for at in range(len(wide))])
        return key_columns(named, named.column_names)

    def _refuse_several(self, keys: pa.Table, codes: Ints, count: int) -> None:
        if count == keys.num_rows:
            return
        several = np.flatnonzero(np.bincount(codes, minlength=count) > 1)
        named = keys.take(pa.array(first_of_each(codes, count)[several[:_NAMED_KEYS]])).to_pylist()
        texts = [", ".join(str(value) for value in key.values()) for key in named]
        more = f" and {len(several) - len(texts)} more" if len(several) > len(texts) else ""
        own = ", ".join(pair[1] for pair in self.keys)
        raise OperatorFailed(
            self.uid,
            f"source {self.dimension} has several rows with one {own}: {'; '.join(texts)}{more}; say `order_by`, or "
            "leave one row of each key",
        )


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """What `Lookup.prepare` made, and the hashes by which rows are found.

    Attributes:
        hashes: in ascending order.
    """

    rows: pa.Table
    hashes: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, rows: pa.Table) -> PreparedRows:
        """Return prepared rows, which may be memory-mapped."""
        column = rows.column(HASH_COLUMN)
        return cls(rows, (column.chunk(0) if column.num_chunks else pa.array([], column.type)).to_numpy())

    def find(self, keys: pa.Table, hashes: npt.NDArray[np.uint64]) -> Ints:
        """Return where each key's row is; -1: nowhere. Keys that share a hash are told apart by their values."""
        found = np.full(len(hashes), -1, dtype=np.int64)
        order = np.argsort(hashes)  # a search for each in turn jumps about in memory: three times as slow
        places = np.empty(len(hashes), dtype=np.int64)
        places[order] = np.searchsorted(self.hashes, hashes[order])
        left = np.arange(len(hashes))
        while left.size:
            there = places < len(self.hashes)
            left, places = left[there], places[there]
            alike = self.hashes[places] == hashes[left]
            left, places = left[alike], places[alike]
            equal = self._same(keys, left, places)
            found[left[equal]] = places[equal]
            left, places = left[~equal], places[~equal] + 1
        return found

    def _same(self, keys: pa.Table, left: Ints, places: Ints) -> Bools:
        equal = np.ones(len(left), dtype=np.bool_)
        for name in keys.column_names:
            one, other = keys.column(name), self.rows.column(name).take(pa.array(places))
            if len(left) < len(one):
                one = one.take(pa.array(left))
            same = pc.fill_null(pc.equal(one, other), False)
            if pa.types.is_floating(one.type):
                same = pc.or_(same, pc.and_(pc.is_nan(one), pc.is_nan(other)))
            equal &= same.to_numpy().astype(np.bool_)
        return equal
