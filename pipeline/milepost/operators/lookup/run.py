"""`kind: lookup`: add columns of a static source's row with the same key.

A lookup has no state: its output for a row depends only on that row and the static source. The source's rows are
prepared once, one per key. The index over them is in `spark/task/row_steps/lookup_index.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from milepost.language.times import python_rows
from milepost.operators.contract import Ints, OperatorFailed
from milepost.operators.lookup.spec import LookupOperator
from milepost.operators.pairs.join_columns import LEFT, RIGHT, JoinedColumns, common_types
from milepost.operators.rows.columns import (
    check_key,
    first_of_each,
    group_rows,
    key_columns,
    plain_schema,
    without_nulls,
)
from milepost.operators.rows.row_order import sorted_rows

_KEY, _VALUE = "key_", "value_"
_NAMED_KEYS = 3


@dataclass(frozen=True, slots=True)
class Lookup:
    """Joins rows with a static source. Picklable.

    Attributes:
        input: name of the input node.
        dimension: name of the static source.
        keys: pairs of an input column and a column of the static source.
        types: types in which the pairs are compared.
        order_by: (column, whether it descends) pairs that choose one of several rows with one key.
        keeps_all: emit rows without a match too.
        kept, found: output columns of the input and of the static source.
        output_schema: first `kept`, then `found` under their new names.
    """

    uid: str
    input: str
    dimension: str
    keys: tuple[tuple[str, str], ...]
    types: tuple[pa.DataType, ...]
    order_by: tuple[tuple[str, bool], ...]
    keeps_all: bool
    kept: tuple[str, ...]
    found: tuple[str, ...]
    output_schema: pa.Schema

    @classmethod
    def of(cls, spec: LookupOperator, left: pa.Schema, right: pa.Schema, read: Collection[str] | None = None) -> Lookup:
        """Return the lookup of a spec.

        Args:
            read: output columns that are needed. None: all of them.
        Raises:
            InvalidRequest: the spec's columns do not match its inputs.
        """
        left, right = plain_schema(left), plain_schema(right)
        for side, schema in enumerate((left, right)):
            check_key(spec.uid, [pair[side] for pair in spec.key], schema)
        columns = JoinedColumns.of(spec.uid, (left, right), [pair[1] for pair in spec.key], spec.renamed)
        needed = [
            column
            for column in zip(columns.fields, columns.sides, columns.names, strict=True)
            if read is None or column[0].name in read
        ]
        return cls(
            spec.uid,
            spec.inputs[0],
            spec.dimension,
            spec.key,
            tuple(common_types(spec.uid, spec.key, (left, right))),
            spec.order_by,
            spec.how == "left",
            tuple(name for _, side, name in needed if side == LEFT),
            tuple(name for _, side, name in needed if side == RIGHT),
            pa.schema([field for field, _, _ in needed]),
        )

    @property
    def identity(self) -> list[object]:
        """Everything that determines the prepared rows, except the static source itself."""
        right = [pair[1] for pair in self.keys]
        return [right, [str(type_) for type_ in self.types], self.order_by, self.found]

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the key columns of prepared rows and of `keys_of`."""
        return tuple(f"{_KEY}{at}" for at in range(len(self.keys)))

    def prepare(self, rows: pa.Table) -> pa.Table:
        """Return one row per key of a static source. Keys that contain a null are omitted.

        Returns: the key columns, and the columns of `found`.
        Raises: OperatorFailed: a key has several rows, and there is no `order_by` to choose one.
        """
        keys = self._keys(rows, RIGHT)
        complete = without_nulls(keys)
        if not complete.all():
            rows, keys = rows.filter(pa.array(complete)), keys.filter(pa.array(complete))
        codes, count = group_rows(keys)
        if self.order_by:
            order, _ = sorted_rows(rows, codes, self.order_by)
            chosen = order[np.flatnonzero(np.diff(codes[order], prepend=-1))]
        else:
            self._refuse_several(keys, codes, count)
            chosen = np.arange(count)
        values = [rows.column(name) for name in self.found]
        every = pa.table([*keys.columns, *values], names=[*self.key_names, *self._value_names])
        return every.take(pa.array(chosen))

    def keys_of(self, rows: pa.Table) -> pa.Table:
        """Return the lookup keys of input rows, in the form of prepared rows."""
        return self._keys(rows, LEFT)

    def give(self, rows: pa.Table, prepared: pa.Table, asking: Ints, places: Ints) -> pa.Table:
        """Return rows in their order, joined with their prepared rows.

        Three rows, of which rows 0 and 2 match the prepared rows 5 and 1: asking [0, 2], places [5, 1]. With
        `keeps_all` row 1 is emitted with nulls, else it is dropped.

        Args:
            asking: positions of the rows that have a match, ascending.
            places: position of the prepared row that each of them matches.
        """
        indices = pa.array(places)
        if len(asking) < rows.num_rows:
            if self.keeps_all:
                every = np.full(rows.num_rows, -1, dtype=np.int64)
                every[asking] = places
                indices = pa.array(every, mask=every < 0)
            else:
                rows = rows.take(pa.array(asking))
        found = [prepared.column(name).take(indices) for name in self._value_names]
        kept = [rows.column(name) for name in self.kept]
        return pa.table([*kept, *found], names=self.output_schema.names).cast(self.output_schema)

    @property
    def _value_names(self) -> list[str]:
        return [f"{_VALUE}{at}" for at in range(len(self.found))]

    def _keys(self, rows: pa.Table, side: int) -> pa.Table:
        columns = [rows.column(pair[side]) for pair in self.keys]
        wide = [column.cast(type_) for column, type_ in zip(columns, self.types, strict=True)]
        return key_columns(pa.table(wide, names=self.key_names), self.key_names)

    def _refuse_several(self, keys: pa.Table, codes: Ints, count: int) -> None:
        if count == keys.num_rows:
            return
        several = np.flatnonzero(np.bincount(codes, minlength=count) > 1)
        named = python_rows(keys.take(pa.array(first_of_each(codes, count)[several[:_NAMED_KEYS]])))
        texts = [", ".join(str(value) for value in key.values()) for key in named]
        more = f" and {len(several) - len(texts)} more" if len(several) > len(texts) else ""
        own = ", ".join(pair[1] for pair in self.keys)
        raise OperatorFailed(
            self.uid,
            f"source {self.dimension} has several rows with one {own}: {'; '.join(texts)}{more}; say `order_by`, or "
            "leave one row of each key",
        )
