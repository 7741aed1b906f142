"""The rows of routing keys: all live rows that several layers hold of some of them.

The upper half of a state hash is the routing key's, so the rows of one lie together in each layer, whatever the rest of
their key is. Each range is looked up once; which of its rows belong to a key is decided by comparing columns, and which
are hidden by comparing a newer layer's rows of the same range with them: a key with many rows costs as many steps.
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
    """Implements `operators.contract.RowsOfKeys`: where rows lie; their values are taken when they are asked for.

    Attributes:
        owners: of each row the number of its routing key, ascending; rows of a key are in the order of their hash.
    """

    schema: pa.Schema
    owners: Ints
    layers: tuple[Layer, ...]
    layer_of: Ints
    rows: Ints

    def take(self, columns: Sequence[str], positions: Ints | None = None) -> pa.Table:
        """Return some columns of all rows, or of those at some positions, in their order."""
        layer_of = self.layer_of if positions is None else self.layer_of[positions]
        rows = self.rows if positions is None else self.rows[positions]
        hits = []
        for number, layer in enumerate(self.layers):
            asked = np.flatnonzero(layer_of == number)
            if asked.size:
                hits.append(Hits(asked, layer, rows[asked]))
        fields, found = [self.schema.field(name) for name in columns], np.ones(len(rows), dtype=np.bool_)
        return pa.table([take(field, hits, found) for field in fields], schema=pa.schema(fields))


def rows_of_keys(
    layers: Sequence[Layer], wanted: pa.Table, keys: KeySpec, schema: pa.Schema, alive: tuple[Times, int | None]
) -> RowsOfKeys:
    """Find the live rows of routing keys.

    Args:
        layers: newest first. wanted: distinct routing keys. schema: of the table.
        alive: what the table says of times, and the firing watermark by which rows are dead.
    """
    times, watermark_us = alive
    ranges = _Ranges.of(wanted, keys)
    owners, layer_of, rows, hashes = [], [], [], []
    newer: list[tuple[Layer, Ints]] = []
    for number, layer in enumerate(layers):
        own, there = ranges.find(layer)
        visible = _not_hidden(newer, layer, there, keys)
        visible &= ~layer.deleted[there] & times.alive(layer, watermark_us, there)
        if there.size:
            newer.append((layer, there))
        owners.append(own[visible])
        rows.append(there[visible])
        hashes.append(layer.hashes[there[visible]])
        layer_of.append(np.full(len(rows[-1]), number, dtype=np.int64))
    if not layers:
        none = np.empty(0, dtype=np.int64)
        return RowsOfKeys(schema, none, (), none, none)
    found = np.concatenate(owners)
    order = np.lexsort((np.concatenate(hashes), found))
    return RowsOfKeys(schema, found[order], tuple(layers), np.concatenate(layer_of)[order], np.concatenate(rows)[order])


def _not_hidden(newer: Sequence[tuple[Layer, Ints]], layer: Layer, rows: Ints, keys: KeySpec) -> Bools:
    """Return which of some ascending rows of a layer no newer layer has, of which the rows of these keys are known."""
    visible = np.ones(len(rows), dtype=np.bool_)
    if not rows.size:
        return visible
    for other, known in newer:
        _, hidden = match(layer, other.hashes[known], other.stored, keys, known)
        visible &= ~np.isin(rows, hidden)
    return visible


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Ranges of hashes in which the rows of some routing keys lie.

    Attributes:
        begins: upper halves of their hashes, each once, ascending.
        first: of each range a key that lies in it. crowded: whether others do. every: all keys of crowded ranges.
    """

    wanted: pa.Table
    routing_key: tuple[str, ...]
    begins: Hashes
    first: Ints
    crowded: Bools
    every: Ints

    @classmethod
    def of(cls, wanted: pa.Table, keys: KeySpec) -> _Ranges:
        upper = keys.hasher(wanted, keys.routing_key) & ~_LOWER
        begins, first, number, counts = np.unique(upper, return_index=True, return_inverse=True, return_counts=True)
        crowded = counts > 1
        return cls(wanted, keys.routing_key, begins, first, crowded, np.flatnonzero(crowded[number]))

    def find(self, layer: Layer) -> tuple[Ints, Ints]:
        """Return (number of its key, row) of each row of these keys, tombstones included, by ascending row."""
        starts = np.searchsorted(layer.hashes, self.begins, side="left")
        counts = np.searchsorted(layer.hashes, self.begins | _LOWER, side="right") - starts
        number = np.repeat(np.arange(len(counts)), counts)
        rows = positions_of(starts, counts)
        owners = self.first[number]
        same = same_keys(self.wanted, owners, layer.stored, rows, self.routing_key)
        unsure = np.flatnonzero(~same & self.crowded[number])
        if unsure.size:
            index, place = common_keys(layer.stored, rows[unsure], self.wanted, self.every, self.routing_key)
            owners[unsure[index]], same[unsure[index]] = self.every[place], True
        return (owners, rows) if bool(same.all()) else (owners[same], rows[same])
