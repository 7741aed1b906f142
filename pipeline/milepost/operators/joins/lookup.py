"""`kind: lookup`: rows with the columns of the row that a static source has of their key.

It has no state: what it gives of a row depends on that row and the static source alone. The source's rows are prepared
once, one per key; which of them a row finds is sought by who keeps them (`spark/task/row_steps/lookup_index.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from milepost.jobspec.job.operators import LookupOperator
from milepost.jobspec.values.times import python_rows
from milepost.operators.contract import Ints, OperatorFailed
from milepost.operators.joins.join_columns import LEFT, RIGHT, JoinedColumns, common_types
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
    """Gives rows what they find in a static source. Picklable.

    Attributes:
        input: name of the node whose rows it gets. dimension: of the static source.
        keys: pairs of a column of each. types: in which they are compared. order_by: columns, and of each whether it
            descends. keeps_all: rows that find nothing come out too.
        kept, found: columns of the input and of the static source that come out.
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
            read: columns of its output that are needed; None: all of them.
        Raises:
            InvalidRequest: its columns do not fit its inputs.
        """
        left, right = plain_schema(left), plain_schema(right)
        for side, schema in enumerate((left, right)):
            check_key(spec.uid, [pair[side] for pair in spec.key], schema)
        columns = JoinedColumns.of(spec.uid, (left, right), [pair[1] for pair in spec.key], spec.renamed)
        needed = [
            one
            for one in zip(columns.fields, columns.sides, columns.names, strict=True)
            if read is None or one[0].name in read
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
        """What the prepared rows depend on beside the static source's own."""
        right = [pair[1] for pair in self.keys]
        return [right, [str(one) for one in self.types], self.order_by, self.found]

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key columns of prepared rows, and of `keys_of`."""
        return tuple(f"{_KEY}{at}" for at in range(len(self.keys)))

    def prepare(self, rows: pa.Table) -> pa.Table:
        """Return one row per key of a static source; a key with a null is left out.

        Returns: the key columns, and what is found.
        Raises: OperatorFailed: a key is there twice, and nothing says which of its rows is found.
        """
        keys = self._keys(rows, RIGHT)
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
        values = [rows.column(name) for name in self.found]
        every = pa.table([*keys.columns, *values], names=[*self.key_names, *self._value_names])
        return every.take(pa.array(chosen))

    def keys_of(self, rows: pa.Table) -> pa.Table:
        """Return the keys that rows of the input look for, as prepared rows have them."""
        return self._keys(rows, LEFT)

    def give(self, rows: pa.Table, prepared: pa.Table, asking: Ints, places: Ints) -> pa.Table:
        """Return rows, in their order, with what is found of each.

        Args:
            asking: rows that find something, ascending. places: the prepared row that each of them finds.
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
