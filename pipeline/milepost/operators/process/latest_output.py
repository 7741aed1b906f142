"""Output of a process function with an output key: only the last row per key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from milepost.language.times import python_rows
from milepost.operators.process.declared import SchemaMismatch
from milepost.operators.rows.columns import Ints, group_rows, with_plain_keys


class LatestOutput:
    """Buffers the output of an epoch, and at its end returns the last row of each output key.

    A row's key columns must equal the key that it was yielded for, so only one subtask has rows of an output key.
    """

    def __init__(self, key: Sequence[str], output_key: Sequence[str], schema: pa.Schema) -> None:
        """Args:
        key: key columns of the operator, which are part of the output key.
        schema: output schema.
        """
        self._key, self._output_key, self._schema = list(key), list(output_key), schema
        self._pieces: list[pa.Table] = []

    def add(self, rows: pa.Table, keys: pa.Table, owners: Ints | None) -> None:
        """Add rows.

        Args:
            keys: distinct keys.
            owners: for each row, the index of the key that it was yielded for. None: any of the keys.
        Raises:
            SchemaMismatch: a row has another key.
        """
        if not rows.num_rows:
            return
        rows = with_plain_keys(rows, self._output_key)
        given = rows.select(self._key)
        try:
            allowed = keys.cast(given.schema)
        except pa.ArrowInvalid as problem:
            raise SchemaMismatch(f"`output` cannot hold the key: {problem}") from None
        wanted = allowed if owners is None else allowed.take(pa.array(owners))
        codes, _ = group_rows(pa.concat_tables([given, wanted]))
        ours, theirs = codes[: rows.num_rows], codes[rows.num_rows :]
        wrong = ~np.isin(ours, theirs) if owners is None else ours != theirs
        if wrong.any():
            (row,) = python_rows(given.take(pa.array([int(np.argmax(wrong))])))
            raise SchemaMismatch(f"a row of key {row} was put out, which is not the key that it was put out for")
        self._pieces.append(rows)

    def take(self) -> pa.Table:
        """Return the last row of each output key, in the order of emission. Then start over."""
        rows = pa.concat_tables([self._schema.empty_table(), *self._pieces])
        self._pieces = []
        codes, count = group_rows(rows.select(self._output_key))
        last = np.zeros(count, dtype=np.int64)
        last[codes] = np.arange(len(codes))
        return rows.take(pa.array(np.sort(last)))
