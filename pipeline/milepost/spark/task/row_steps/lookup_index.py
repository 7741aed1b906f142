"""Index a static source's rows by key hash, one row per key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.operators.lookup import Lookup
from milepost.state.layers import Drifts, KeyHash, KeySpec, Layer, drifts_of, match

_HASH, _DRIFT = "hash", "drift"


def prepare(lookup: Lookup, rows: pa.Table, hasher: KeyHash) -> pa.Table:
    """Return the columns that a lookup needs of a static source, sorted by key hash, with the hash as a column.

    Raises:
        OperatorFailed: a key occurs twice, so the match is ambiguous.
    """
    chosen = lookup.prepare(rows)
    hashes = hasher(chosen, lookup.key_names)
    order = np.argsort(hashes, kind="stable")
    table = chosen.take(pa.array(order)).append_column(_HASH, pa.array(hashes[order]))
    drifts = drifts_of(hashes[order]) if len(order) else None
    return (table if drifts is None else table.append_column(_DRIFT, pa.array(drifts))).combine_chunks()


@dataclass(frozen=True, slots=True)
class LookupIndex:
    """The rows of `prepare`, possibly mapped from a file."""

    lookup: Lookup
    layer: Layer
    keys: KeySpec

    @classmethod
    def of(cls, lookup: Lookup, table: pa.Table, hasher: KeyHash) -> LookupIndex:
        """Return the index of prepared rows, without copying them."""
        drifts: Drifts | None = _numbers(table, _DRIFT) if _DRIFT in table.column_names else None
        layer = Layer(_numbers(table, _HASH), table, np.zeros(table.num_rows, dtype=np.bool_), drifts)
        return cls(lookup, layer, KeySpec(lookup.key_names, lookup.key_names, hasher))

    def find(self, rows: pa.Table) -> pa.Table:
        """Return the rows in order, each with its match. Keys with the same hash are compared by value."""
        keys = self.lookup.keys_of(rows)
        row_indices, stored_indices = match(self.layer, self.keys.hashes(keys), keys, self.keys)
        return self.lookup.give(rows, self.layer.stored, row_indices, stored_indices)


def _numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    column = table.column(name)
    return (column.chunk(0) if column.num_chunks else pa.array([], column.type)).to_numpy()
