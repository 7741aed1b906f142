"""Process an operator's epoch: apply rows, fire and freeze, in slices that fit memory.

An epoch that may be cut ends at a deadline. So it processes each buffer as it is taken, for all key groups together.

Any other epoch waits for its last buffer. If rows and state fit the budget, it then works in one slice, and the frozen
state is encoded while the output is staged. Otherwise it works slice by slice, for example on key groups 0 to 127 of
128 with twice the budget::

    slice 0 to 63      restore, apply its rows, fire, freeze, encode, free
    slice 64 to 127    restore, apply its rows, fire, freeze, encode, free
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np
import pyarrow as pa

from milepost.errors import ProtocolViolation
from milepost.operators import (
    ChangesRun,
    OperatorRun,
    OutputKind,
    PublishesChanges,
    RetractingRun,
    RetractInputRun,
    UniqueKeysRun,
)
from milepost.operators.base import user_columns
from milepost.operators.rows import as_insertions, count_rows
from milepost.protocol.exchange import firing_watermark, latest, operator_watermark
from milepost.spark.task.input_gate import Chunk
from milepost.spark.wire.level_plan import LevelPlan, OperatorPlan
from milepost.spark.wire.task_output import Rows, TaskOutput
from milepost.spark.worker.task_memory import Memory
from milepost.state.buffers import Buffer, are_partials
from milepost.state.keyed import EncodedSlices, FrozenState, SliceEncoder, SubtaskState, slices_within, split_buffer

FrozenTables = Mapping[str, FrozenState | EncodedSlices]
"""Table -> frozen state of an operator at the barrier, either not yet encoded, or encoded slice by slice."""


@dataclass(frozen=True, slots=True)
class OpenSlice:
    """A slice in memory: its restored tables by name, and the run of the operator on them."""

    tables: Mapping[str, SubtaskState]
    run: OperatorRun


class Processing:
    """One epoch of one operator's subtask.

    Attributes:
        fired_us: firing watermark reached so far.
        slices: number of slices that it worked in; None: not sliced.

    Args:
        key_groups: key groups that the subtask owns.
        plan: plan of its level.
        open_slice: restores the state of some key groups, at the given firing watermark.
        watermark_us: watermark of the inputs at the end of the epoch.
        is_upstream_settled: whether no operator upstream leaves rows in flight.
    """

    def __init__(
        self,
        item: OperatorPlan,
        key_groups: range,
        plan: LevelPlan,
        open_slice: Callable[[range, int | None], OpenSlice],
        memory: Memory,
        watermark_us: int | None,
        is_upstream_settled: bool,
    ) -> None:
        self.fired_us = self._previous_us = item.previous_firing_us(key_groups)
        self.rows_in = self.rows_out = self.late_rows = self.dropped_rows = 0
        self.slices: int | None = None
        self._item, self._own, self._plan = item, key_groups, plan
        self._open, self._memory = open_slice, memory
        self._watermark_us, self._is_upstream_settled = watermark_us, is_upstream_settled
        self._open_slice: OpenSlice | None = (
            open_slice(key_groups, self._previous_us) if plan.alignment.may_leave_rows else None
        )
        self._deferred: list[Chunk] = []
        self._tables: Mapping[str, SubtaskState] | None = None
        self._encoded: Mapping[str, EncodedSlices] | None = None
        operator = item.operator
        self._uid = operator.uid
        self._updates = operator.output_kind is OutputKind.UPDATES
        self._slices_have_distinct_keys = set(operator.routing_keys[0]) <= set(operator.output_key)

    def take(self, chunk: Chunk) -> Iterator[TaskOutput]:
        """Process buffers of one stamp, or defer them to the end of the input. Raises OperatorFailed."""
        if self._open_slice is None:
            self._deferred.append(chunk)
        else:
            yield from self._apply_buffers(self._open_slice, chunk.buffers, chunk.buffers[0].lateness_us, 0)

    def finish(self, in_flight: Iterable[int | None]) -> Iterator[TaskOutput]:
        """Process the deferred buffers, and emit the rows before the barrier. Raises OperatorFailed, CheckpointError.

        Args:
            in_flight: stamps of the rows that stay in flight. Nothing fires beyond them.
        """
        stamps = tuple(in_flight)
        if self._open_slice is not None:
            yield from self._fire_at_barrier(self._open_slice, stamps, 0)
            self._tables = self._open_slice.tables
            return
        slices = self._slices()
        if len(slices) == 1:
            opened = self._open(self._own, self._previous_us)
            for chunk in self._deferred:
                yield from self._apply_buffers(opened, chunk.buffers, chunk.buffers[0].lateness_us, 0)
            self._deferred = []
            yield from self._fire_at_barrier(opened, stamps, 0)
            self._tables = opened.tables
            return
        yield from self._slice_by_slice(slices, stamps)

    def freeze(self) -> FrozenTables:
        """Return the state at the barrier, by table. Raises ProtocolViolation before `finish`."""
        if self._encoded is not None:
            return self._encoded
        if self._tables is None:
            raise ProtocolViolation(f"operator {self._uid}: frozen before its input was finished")
        return {name: state.freeze(self.fired_us) for name, state in self._tables.items()}

    def _slice_by_slice(self, slices: list[range], in_flight: Sequence[int | None]) -> Iterator[TaskOutput]:
        self.slices = len(slices)
        stamps = [chunk.buffers[0].lateness_us for chunk in self._deferred]
        parts = self._split_by_slice(slices)
        encoders = {name: SliceEncoder(table.handles, self._memory.spill) for name, table in self._item.tables.items()}
        for index, own in enumerate(slices):
            self.fired_us = self._previous_us
            opened = self._open(own, self._previous_us)
            part = index + 1 if self._slices_have_distinct_keys else 0
            for stamp_us, chunk in zip(stamps, parts, strict=True):
                yield from self._apply_buffers(opened, chunk[index], stamp_us, part)
            yield from self._fire_at_barrier(opened, in_flight, part)
            frozen = {name: state.freeze(self.fired_us) for name, state in opened.tables.items()}
            del opened
            for name in list(frozen):
                one = frozen.pop(name)
                snapshot = one.encode(self._item.directory)
                one.stage_cache(snapshot)
                encoders[name].add(snapshot)
                del one, snapshot
        self._encoded = {name: encoder.result() for name, encoder in encoders.items()}

    def _slices(self) -> list[range]:
        """Return the key groups of each slice. They depend only on the epoch's rows and the recorded state (I12)."""
        budget_bytes, cost = self._memory.budget.bytes, self._item.state_cost(self._own)
        buffers = [buffer for chunk in self._deferred for buffer in chunk.buffers]
        extents = [buffer.extent() for buffer in buffers]
        size, count = sum(extent.bytes for extent in extents), sum(extent.rows for extent in extents)
        if int(cost.sum()) + self._item.input_cost(count, size) <= budget_bytes:
            return [self._own]
        plan, routing_keys = self._plan, self._item.routing_keys
        rows = np.zeros(plan.max_parallelism, dtype=np.int64)
        for buffer in buffers:
            groups = plan.hasher.key_groups(buffer.rows(), routing_keys[buffer.producer], plan.max_parallelism)
            rows += np.bincount(groups, minlength=plan.max_parallelism)
        per_row = self._item.input_cost(count, size) // max(1, count)
        return slices_within(self._own, cost + rows[self._own.start : self._own.stop] * per_row, budget_bytes)

    def _split_by_slice(self, slices: list[range]) -> list[list[list[Buffer]]]:
        """Return the deferred buffers by chunk, then by slice."""
        plan, routing_keys, chunks = self._plan, self._item.routing_keys, []
        for chunk in self._deferred:
            by_slice: list[list[Buffer]] = [[] for _ in slices]
            for buffer in chunk.buffers:
                routing_key = routing_keys[buffer.producer]
                parts = split_buffer(buffer, slices, routing_key, plan.hasher, plan.max_parallelism, self._memory.spill)
                for mine, part in zip(by_slice, parts, strict=True):
                    if part is not None:
                        mine.append(part)
            chunks.append(by_slice)
        self._deferred = []
        return chunks

    def _apply_buffers(
        self, opened: OpenSlice, buffers: Iterable[Buffer], stamp_us: int | None, part: int
    ) -> Iterator[TaskOutput]:
        # All later buffers have this stamp or a higher one. The watermark accounts for senders with rows in flight.
        due_us = operator_watermark([stamp_us, self._watermark_us])
        yield from self._emit(opened.run.advance(due_us), self.fired_us, part)
        self.fired_us = latest(self.fired_us, due_us)
        for edge, of_input in groupby(buffers, key=attrgetter("producer")):
            position = self._item.position(edge)
            for received in self._tables_within_budget(of_input):
                yield from self._apply_tables(opened, position, received, stamp_us, part)

    def _apply_tables(
        self, opened: OpenSlice, position: int, received: Sequence[pa.Table], stamp_us: int | None, part: int
    ) -> Iterator[TaskOutput]:
        partials = [rows for rows in received if are_partials(rows)]
        if partials:
            combiner = self._item.operator.combiner
            assert combiner is not None, f"operator {self._uid} got partial results, which it never makes"
            self.rows_in += combiner.ingest(opened.run, pa.concat_tables(partials))
        plain = [rows for rows in received if not are_partials(rows)]
        if not plain:
            return
        own = self._item.inputs[position]
        rows = pa.concat_tables(piece.select(own.schema.names).cast(own.schema) for piece in plain)
        self.rows_in += count_rows(rows)
        for output in opened.run.rows(position, rows, stamp_us):
            self.late_rows += output.late.num_rows
            self.dropped_rows += output.late.num_rows if own.drops_late else 0
            yield from self._emit(output.rows, stamp_us, part)
            if output.late.num_rows:
                yield Rows(own.late, output.late.select(user_columns(output.late.column_names)))

    def _fire_at_barrier(self, opened: OpenSlice, in_flight: Sequence[int | None], part: int) -> Iterator[TaskOutput]:
        before_us = self.fired_us
        self.fired_us = firing_watermark(before_us, self._watermark_us, in_flight)
        yield from self._emit(opened.run.finish(self.fired_us), before_us, part, distinct=self._updates)
        if isinstance(opened.run, ChangesRun):
            yield from self._emit_changes(opened.run.changes(), before_us, part)
        elif self._item.retract is not None:
            assert isinstance(opened.run, RetractingRun), f"operator {self._uid} cannot tell what it replaces"
            yield Rows(self._item.retract, opened.run.retractions(), before_us)
        if not in_flight:
            self._check_settled(opened.run)
        yield from self._emit_whole(opened, before_us, part)

    def _emit_changes(self, changes: Iterator[pa.Table], stamp_us: int | None, part: int) -> Iterator[TaskOutput]:
        """Emit final rows, or rows with weights for the operators that read them."""
        for rows in changes:
            if self._item.retract is None:
                yield from self._emit(rows, stamp_us, part)
            else:
                self.rows_out += count_rows(rows)
                yield Rows(self._item.retract, rows, stamp_us)

    def _emit_whole(self, opened: OpenSlice, stamp_us: int | None, part: int) -> Iterator[TaskOutput]:
        """Emit all current rows, for sinks and operators that start in this epoch."""
        whole = self._item.whole
        if whole is None:
            return
        if isinstance(whole.operator, PublishesChanges):
            assert whole.fill is not None, "rows without a key have no sinks"
            for rows in whole.operator.whole(opened.tables):
                yield Rows(whole.fill, rows, stamp_us)
            return
        rows = whole.operator.results(opened.tables[whole.operator.published_table].rows())
        yield Rows(whole.node, rows, stamp_us, distinct=True, part=part)
        if whole.fill is not None:
            yield Rows(whole.fill, as_insertions(rows), stamp_us)

    def _check_settled(self, run: OperatorRun) -> None:
        """Check the state with no rows in flight before the operator. Raises OperatorFailed."""
        had_rows_in_flight = any(channel is not None and channel.buffers for channel in self._item.channels)
        if isinstance(run, RetractInputRun):
            run.check_settled(all_keys=had_rows_in_flight)
        if isinstance(run, UniqueKeysRun) and self._is_upstream_settled:
            run.check_unique(all_keys=had_rows_in_flight or not self._item.settled_before)

    def _tables_within_budget(self, buffers: Iterable[Buffer]) -> Iterator[list[pa.Table]]:
        """Yield the tables of the buffers in groups that fit the budget, nearly always in one group."""
        tables: list[pa.Table] = []
        cost = 0
        for buffer in buffers:
            rows = buffer.rows()
            more = self._item.input_cost(rows.num_rows, rows.nbytes)
            if tables and cost + more > self._memory.budget.bytes:
                yield tables
                tables, cost = [], 0
            tables.append(rows)
            cost += more
        if tables:
            yield tables

    def _emit(self, rows: pa.Table, stamp_us: int | None, part: int, *, distinct: bool = False) -> Iterator[TaskOutput]:
        if rows.num_rows:
            self.rows_out += rows.num_rows
            yield Rows(self._uid, rows, stamp_us, distinct, part)
