"""Find all live rows of given routing keys in several layers.

The upper 32 bits of a state hash are the routing key's, so all rows of a routing key are adjacent in each layer:

    hashes   17|03  17|a1  17|f0  42|08       routing key with upper half 17: rows 0 to 2

Each range is searched once. Column comparison then decides which of its rows belong to a key, and which of them a newer
layer's rows in the same range hide. The cost is proportional to the number of rows in the ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from milepost.state.layers.exact_keys import common_keys, same_keys
from milepost.state.layers.key_groups import Hashes, Ints
from milepost.state.layers.layer import Bools, KeySpec, Layer, match, positions_of
from milepost.state.layers.take import Hits, take
from milepost.state.statistics.row_statistics import Times

_LOWER = np.uint64(0x00000000FFFFFFFF)


@dataclass(frozen=True, slots=True)
class RowsOfKeys:
    """Implements `operators.contract.RowsOfKeys`: row locations. Values are read by `take`.

    Attributes:
        owners: number of each row's routing key, ascending. Rows of a key are in the order of their hash.
        layer_of: index of each row's layer in `layers`.
        rows: index of each row in its layer.
    """

    schema: pa.Schema
    owners: Ints
    layers: tuple[Layer, ...]
    layer_of: Ints
    rows: Ints

    def take(self, columns: Sequence[str], positions: Ints | None = None) -> pa.Table:
        """Return columns of all rows, or of the rows at `positions`, in their order."""
        layer_of = self.layer_of if positions is None else self.layer_of[positions]
        rows = self.rows if positions is None else self.rows[positions]
        hits = []
        for number, layer in enumerate(self.layers):
            in_layer = np.flatnonzero(layer_of == number)
            if in_layer.size:
                hits.append(Hits(in_layer, layer, rows[in_layer]))
        fields, is_hit = [self.schema.field(name) for name in columns], np.ones(len(rows), dtype=np.bool_)
        return pa.table([take(field, hits, is_hit) for field in fields], schema=pa.schema(fields))


def rows_of_keys(
    layers: Sequence[Layer], routing_keys: pa.Table, keys: KeySpec, schema: pa.Schema, alive: tuple[Times, int | None]
) -> RowsOfKeys:
    """Find the live rows of routing keys.

    Args:
        layers: newest first.
        routing_keys: distinct.
        schema: of the table.
        alive: the table's time columns, and the firing watermark at which expired rows are dead.
    """
    times, watermark_us = alive
    ranges = _Ranges.of(routing_keys, keys)
    owners, layer_of, rows, hashes = [], [], [], []
    newer: list[tuple[Layer, Ints]] = []
    for number, layer in enumerate(layers):
        own, in_range = ranges.find(layer)
        visible = _not_hidden(newer, layer, in_range, keys)
        visible &= ~layer.deleted[in_range] & times.alive(layer, watermark_us, in_range)
        if in_range.size:
            newer.append((layer, in_range))
        owners.append(own[visible])
        rows.append(in_range[visible])
        hashes.append(layer.hashes[in_range[visible]])
        layer_of.append(np.full(len(rows[-1]), number, dtype=np.int64))
    if not layers:
        none = np.empty(0, dtype=np.int64)
        return RowsOfKeys(schema, none, (), none, none)
    all_owners = np.concatenate(owners)
    order = np.lexsort((np.concatenate(hashes), all_owners))
    return RowsOfKeys(
        schema, all_owners[order], tuple(layers), np.concatenate(layer_of)[order], np.concatenate(rows)[order]
    )


def _not_hidden(newer: Sequence[tuple[Layer, Ints]], layer: Layer, rows: Ints, keys: KeySpec) -> Bools:
    """Return which of a layer's ascending rows no newer layer replaces.

    Args:
        newer: newer layers, each with its rows in the ranges of the routing keys.
    """
    visible = np.ones(len(rows), dtype=np.bool_)
    if not rows.size:
        return visible
    for other, other_rows in newer:
        _, hidden = match(layer, other.hashes[other_rows], other.stored, keys, other_rows)
        visible &= ~np.isin(rows, hidden)
    return visible


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Ranges of hashes that contain the rows of routing keys.

    Attributes:
        begins: distinct upper halves of the keys' hashes, ascending.
        first: index of one key per range.
        crowded: whether the range has more than one key.
        every: indices of all keys in crowded ranges.
    """

    routing_keys: pa.Table
    routing_key: tuple[str, ...]
    begins: Hashes
    first: Ints
    crowded: Bools
    every: Ints

    @classmethod
    def of(cls, routing_keys: pa.Table, keys: KeySpec) -> _Ranges:
        upper = keys.hasher(routing_keys, keys.routing_key) & ~_LOWER
        begins, first, number, counts = np.unique(upper, return_index=True, return_inverse=True, return_counts=True)
        crowded = counts > 1
        return cls(routing_keys, keys.routing_key, begins, first, crowded, np.flatnonzero(crowded[number]))

    def find(self, layer: Layer) -> tuple[Ints, Ints]:
        """Return key index and row index of each row of these keys, tombstones included, by ascending row."""
        starts = np.searchsorted(layer.hashes, self.begins, side="left")
        counts = np.searchsorted(layer.hashes, self.begins | _LOWER, side="right") - starts
        number = np.repeat(np.arange(len(counts)), counts)
        rows = positions_of(starts, counts)
        owners = self.first[number]
        same = same_keys(self.routing_keys, owners, layer.stored, rows, self.routing_key)
        unresolved = np.flatnonzero(~same & self.crowded[number])
        if unresolved.size:
            index, place = common_keys(layer.stored, rows[unresolved], self.routing_keys, self.every, self.routing_key)
            owners[unresolved[index]], same[unresolved[index]] = self.every[place], True
        return (owners, rows) if bool(same.all()) else (owners[same], rows[same])
