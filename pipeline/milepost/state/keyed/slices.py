"""Slices divide a subtask's key groups, so that state larger than memory is worked on part by part.

A slice is a contiguous range of key groups. Each is restored, changed, frozen and encoded by itself, as a subtask of a
higher parallelism would be, and writes its own run; what the subtask acknowledges is one handle over all of them.
Slices come from halving, so that a state that grows keeps most of them, and with them its entries in the node's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from milepost.state.buffers.buffers import Buffer, encode_rows
from milepost.state.buffers.spill import Spilled, SpillFile
from milepost.state.keyed.snapshot import StateSnapshot
from milepost.state.layers.key_groups import Ints
from milepost.state.layers.key_hash import KeyHash
from milepost.state.runs.handles import RunHandle, StateHandle

STATE_COPIES = 4
"""Memory of restored state, as so many times its rows' own bytes: they are mapped or decoded, and a base is a merge."""

INPUT_COPIES = 3
"""Memory of input rows: as they came, concatenated, and the columns in use."""

CHANGED_COPIES = 6
"""Memory of a changed key: found, folded, kept, given out, and encoded."""

_PER_ROW_BYTES = 120
"""Hashes, orders and numbers of one input row."""

_HASH_BYTES = 11
"""The hash, its drift, and whether the row is a tombstone."""
_VARIABLE_BYTES = 48


def row_bytes(schema: pa.Schema) -> int:
    """Memory of one state row; of text and nested values a guess."""
    return _HASH_BYTES + sum(_width(field.type) for field in schema)


def _width(data_type: pa.DataType) -> int:
    try:
        return max(1, int(data_type.bit_width) // 8)
    except ValueError:
        return _VARIABLE_BYTES


def state_cost(handles: Sequence[StateHandle], own: range, schema: pa.Schema) -> Ints:
    """Memory, per key group of `own`, that the recorded state takes while it is worked on."""
    rows = np.zeros(len(own), dtype=np.int64)
    for handle in handles:
        for run in handle.runs:
            start, stop = max(run.valid.start, own.start), min(run.valid.stop, own.stop)
            if start < stop:
                offsets = run.offsets[start - run.key_groups.start : stop - run.key_groups.start + 1]
                counted: Ints = np.asarray(offsets, dtype=np.int64)
                rows[start - own.start : stop - own.start] += counted[1:] - counted[:-1]
    return rows * (row_bytes(schema) * STATE_COPIES)


def input_cost(rows: int, size: int, schemas: Iterable[pa.Schema]) -> int:
    """Memory that so many input rows of `size` bytes take while they are worked on.

    Args:
        schemas: of the tables that each of them may change.
    """
    changed = sum(row_bytes(schema) for schema in schemas)
    return size * INPUT_COPIES + rows * (_PER_ROW_BYTES + changed * CHANGED_COPIES)


def slices_within(own: range, cost: Ints, budget_bytes: int) -> list[range]:
    """Halve a range of key groups until each part is within the budget, or is a single group.

    Args:
        cost: bytes per key group of `own`.
    """
    if len(own) <= 1 or int(cost.sum()) <= budget_bytes:
        return [own]
    half = len(own) // 2
    left, right = range(own.start, own.start + half), range(own.start + half, own.stop)
    return [*slices_within(left, cost[:half], budget_bytes), *slices_within(right, cost[half:], budget_bytes)]


def divided(
    buffer: Buffer,
    slices: Sequence[range],
    routing_key: Sequence[str],
    hasher: KeyHash,
    max_parallelism: int,
    spill: SpillFile,
) -> list[Buffer | None]:
    """Return the rows of a buffer slice by slice, in their order, on the disk; None where a slice has none of them."""
    rows = buffer.rows()
    starts = np.asarray([part.start for part in slices], dtype=np.int64)
    owner = np.searchsorted(starts, hasher.key_groups(rows, routing_key, max_parallelism), side="right") - 1
    order = np.argsort(owner, kind="stable")
    borders = np.searchsorted(owner[order], np.arange(len(slices) + 1))
    found: list[Buffer | None] = []
    for index in range(len(slices)):
        chosen = order[borders[index] : borders[index + 1]]
        if not chosen.size:
            found.append(None)
            continue
        payload = spill.append(encode_rows(rows.take(pa.array(chosen))))
        found.append(Buffer(buffer.operator, buffer.producer, buffer.lateness_us, buffer.oldest_us, payload))
    return found


def joined_handle(slices: Sequence[StateHandle], before: Sequence[StateHandle]) -> StateHandle:
    """Return one handle of a subtask from those of its slices, which follow each other.

    Args:
        before: what the slices were restored from: runs that more than one of them kept come in that order.
    """
    first, last = slices[0], slices[-1]
    known = list(dict.fromkeys(run.key for handle in _ascending(before) for run in handle.runs))
    kept: dict[str, list[RunHandle]] = {key: [] for key in known}
    for one in slices:
        for run in one.runs:
            parts = kept.setdefault(run.key, [])
            if parts and parts[-1].valid.stop == run.valid.start:
                parts[-1] = replace(run, valid=range(parts[-1].valid.start, run.valid.stop))
            else:
                parts.append(run)
    return StateHandle(
        uid=first.uid,
        key_groups=range(first.key_groups.start, last.key_groups.stop),
        max_parallelism=first.max_parallelism,
        runs=tuple(run for parts in kept.values() for run in parts),
        timers=tuple(timer for one in slices for timer in one.timers),
        live_rows=sum(one.live_rows for one in slices),
    )


def _ascending(handles: Sequence[StateHandle]) -> list[StateHandle]:
    return sorted(handles, key=lambda handle: handle.key_groups.start)


@dataclass(frozen=True, slots=True)
class EncodedSlices:
    """The frozen slices of a subtask, encoded and on the node's disk: upload them when you like."""

    handle: StateHandle
    uploads: tuple[tuple[str, Spilled], ...]

    def upload(self, put: Callable[[str, bytes], object]) -> StateHandle:
        """Store every run, one body in memory at a time; return the handle to acknowledge. Raises what `put` raises."""
        for key, body in self.uploads:
            put(key, body.read())
        return self.handle


class SliceEncoder:
    """Takes the snapshots of slices, in their order.

    Args:
        before: what they were restored from.
    """

    def __init__(self, before: Sequence[StateHandle], spill: SpillFile) -> None:
        self._before, self._spill = before, spill
        self._handles: list[StateHandle] = []
        self._uploads: list[tuple[str, Spilled]] = []

    def add(self, snapshot: StateSnapshot) -> None:
        """Keep a slice's handle, and its runs on the disk. Raises EnvironmentUnusable."""
        self._handles.append(snapshot.handle)
        self._uploads += [(upload.key, self._spill.append(upload.body)) for upload in snapshot.uploads]

    def result(self) -> EncodedSlices:
        return EncodedSlices(joined_handle(self._handles, self._before), tuple(self._uploads))
