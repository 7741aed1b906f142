"""Divide a subtask's key groups into slices, so that state larger than memory is processed in parts.

A slice is a contiguous range of key groups. Like a subtask of a higher parallelism, each slice is restored, changed,
frozen and encoded separately, and writes its own run. The subtask acknowledges one handle over all slices. Ranges are
halved, so growing state keeps most of its slices, and with them its entries in the node's cache:

    key groups 0..7, cost 1 each, budget 4      [0..3] [4..7]
    group 5 grows to cost 3                     [0..3] [4..5] [6..7]
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
"""Memory of restored state, as a multiple of its rows' bytes: mapped or decoded layers, and the merge of a base."""

INPUT_COPIES = 3
"""Copies of input rows in memory: as received, concatenated, and the columns in use."""

CHANGED_COPIES = 6
"""Copies of a changed row in memory: looked up, folded, stored, emitted and encoded."""

_PER_ROW_BYTES = 120
"""Hash, sort order and key number of one input row."""

_HASH_BYTES = 11
"""Hash, drift and tombstone flag of one state row."""
_VARIABLE_BYTES = 48


def row_bytes(schema: pa.Schema) -> int:
    """Return the memory of one state row in bytes; text and nested values are estimated."""
    return _HASH_BYTES + sum(_width(field.type) for field in schema)


def _width(data_type: pa.DataType) -> int:
    try:
        return max(1, int(data_type.bit_width) // 8)
    except ValueError:
        return _VARIABLE_BYTES


def state_cost(handles: Sequence[StateHandle], own: range, schema: pa.Schema) -> Ints:
    """Return the memory in bytes, per key group of `own`, needed to process the recorded state."""
    rows = np.zeros(len(own), dtype=np.int64)
    for handle in handles:
        for run in handle.runs:
            start, stop = max(run.valid.start, own.start), min(run.valid.stop, own.stop)
            if start < stop:
                offsets = run.offsets[start - run.key_groups.start : stop - run.key_groups.start + 1]
                rows_before: Ints = np.asarray(offsets, dtype=np.int64)
                rows[start - own.start : stop - own.start] += rows_before[1:] - rows_before[:-1]
    return rows * (row_bytes(schema) * STATE_COPIES)


def input_cost(rows: int, size: int, schemas: Iterable[pa.Schema]) -> int:
    """Return the memory in bytes needed to process input rows.

    Args:
        rows: number of rows.
        size: their total bytes.
        schemas: of the tables that each row may change.
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


def split_buffer(
    buffer: Buffer,
    slices: Sequence[range],
    routing_key: Sequence[str],
    hasher: KeyHash,
    max_parallelism: int,
    spill: SpillFile,
) -> list[Buffer | None]:
    """Split a buffer by slice and spill the parts, in row order; None for a slice without rows."""
    rows = buffer.rows()
    starts = np.asarray([part.start for part in slices], dtype=np.int64)
    owner = np.searchsorted(starts, hasher.key_groups(rows, routing_key, max_parallelism), side="right") - 1
    order = np.argsort(owner, kind="stable")
    borders = np.searchsorted(owner[order], np.arange(len(slices) + 1))
    buffers: list[Buffer | None] = []
    for index in range(len(slices)):
        chosen = order[borders[index] : borders[index + 1]]
        if not chosen.size:
            buffers.append(None)
            continue
        payload = spill.append(encode_rows(rows.take(pa.array(chosen))))
        buffers.append(Buffer(buffer.operator, buffer.producer, buffer.lateness_us, buffer.oldest_us, payload))
    return buffers


def merge_handles(slices: Sequence[StateHandle], before: Sequence[StateHandle]) -> StateHandle:
    """Merge the handles of a subtask's slices into one.

    A run that adjacent slices both retain becomes one run again: valid 0..3 and 4..7 become 0..7.

    Args:
        slices: in ascending order, without gaps.
        before: handles that the slices were restored from. They determine the order of the retained runs.
    """
    first, last = slices[0], slices[-1]
    keys_before = dict.fromkeys(run.key for handle in _ascending(before) for run in handle.runs)
    parts_by_key: dict[str, list[RunHandle]] = {key: [] for key in keys_before}
    for handle in slices:
        for run in handle.runs:
            parts = parts_by_key.setdefault(run.key, [])
            if parts and parts[-1].valid.stop == run.valid.start:
                parts[-1] = replace(run, valid=range(parts[-1].valid.start, run.valid.stop))
            else:
                parts.append(run)
    return StateHandle(
        uid=first.uid,
        key_groups=range(first.key_groups.start, last.key_groups.stop),
        max_parallelism=first.max_parallelism,
        runs=tuple(run for parts in parts_by_key.values() for run in parts),
        timers=tuple(timer for handle in slices for timer in handle.timers),
        live_rows=sum(handle.live_rows for handle in slices),
    )


def _ascending(handles: Sequence[StateHandle]) -> list[StateHandle]:
    return sorted(handles, key=lambda handle: handle.key_groups.start)


@dataclass(frozen=True, slots=True)
class EncodedSlices:
    """The frozen slices of a subtask, encoded on the node's disk, to be uploaded at any time."""

    handle: StateHandle
    uploads: tuple[tuple[str, Spilled], ...]

    def upload(self, put: Callable[[str, bytes], object]) -> StateHandle:
        """Store every run, one body in memory at a time; return the handle to acknowledge. Raises what `put` raises."""
        for key, body in self.uploads:
            put(key, body.read())
        return self.handle


class SliceEncoder:
    """Collects the snapshots of slices, in ascending order.

    Args:
        before: handles that the slices were restored from.
        spill: stores the encoded runs.
    """

    def __init__(self, before: Sequence[StateHandle], spill: SpillFile) -> None:
        self._before, self._spill = before, spill
        self._handles: list[StateHandle] = []
        self._uploads: list[tuple[str, Spilled]] = []

    def add(self, snapshot: StateSnapshot) -> None:
        """Store a slice's handle, and its runs on the disk. Raises EnvironmentUnusable."""
        self._handles.append(snapshot.handle)
        self._uploads += [(upload.key, self._spill.append(upload.body)) for upload in snapshot.uploads]

    def result(self) -> EncodedSlices:
        return EncodedSlices(merge_handles(self._handles, self._before), tuple(self._uploads))
