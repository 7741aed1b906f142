"""Collect the rows of a task's sinks, and stage them after the barrier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from milepost.codec import to_json
from milepost.errors import CheckpointError
from milepost.operators.base import REJECTED
from milepost.protocol.exchange import Decline, SubtaskIdentity
from milepost.sinks import StagingSink
from milepost.spark.wire.task_output import Rows
from milepost.spark.worker.task_memory import Memory, explain_out_of_memory
from milepost.state.buffers import Spilled, decode_rows, encode_rows
from milepost.tables.records import RowsPiece, StagedRows, StagingContext

if TYPE_CHECKING:
    from milepost.quality import RejectedRows, RowRules


@dataclass(frozen=True, slots=True)
class _BufferedRows:
    """Rows that are buffered in memory or spilled to disk."""

    rows: pa.Table | Spilled
    distinct: bool
    part: int

    def piece(self) -> RowsPiece:
        rows = decode_rows(self.rows.read()) if isinstance(self.rows, Spilled) else self.rows
        return RowsPiece(rows, self.distinct, self.part)


class Staging:
    """Stage the rows that the nodes of one task feed to its sinks.

    Args:
        targets: node -> names of the sinks that it feeds.
        sinks: name -> opened sink.
        executor: returns a pool that stages a given number of sinks in parallel.
        before: sink -> number of subtasks of lower levels that stage rows for it. Subtask 1 of this level, with 4
            before it, names its files by 5.
        row_rules: sink -> its rules on single rows. The sinks of `<sink>.rejected` get the rows that they quarantine.
    """

    def __init__(
        self,
        identity: SubtaskIdentity,
        targets: Mapping[str, tuple[str, ...]],
        sinks: Mapping[str, StagingSink],
        memory: Memory,
        executor: Callable[[int], Executor],
        before: Mapping[str, int] | None = None,
        row_rules: Mapping[str, RowRules] | None = None,
    ) -> None:
        self._identity, self._targets, self._sinks, self._memory = identity, targets, sinks, memory
        self._executor, self._before, self._row_rules = executor, before or {}, row_rules or {}
        self._rejected: dict[str, RejectedRows] = {}
        self._buffered: dict[str, list[_BufferedRows]] = {}
        self._held_bytes = 0
        self._staged: dict[str, StagedRows] = {}

    def take(self, item: Rows) -> Decline | None:
        """Split rows by the rules of their sinks, and buffer them. Return a decline if the disk is full."""
        names = self._targets.get(item.node, ())
        if not names or not item.rows.num_rows:
            return None
        unsplit, decline = [], None
        for name in names:
            if name not in self._row_rules:
                unsplit.append(name)
                continue
            split = self._row_rules[name].split(item.rows, item.object)
            counted = self._rejected.get(name)
            self._rejected[name] = split.counts if counted is None else counted + split.counts
            if split.accepted is item.rows:
                unsplit.append(name)
                continue
            decline = decline or self._buffer((name,), replace(item, rows=split.accepted))
            if split.quarantined is not None:
                rejected = self._targets.get(name + REJECTED, ())
                decline = decline or self._buffer(rejected, replace(item, rows=split.quarantined))
        return decline or self._buffer(unsplit, item)

    def _buffer(self, names: Sequence[str], item: Rows) -> Decline | None:
        if not names or not item.rows.num_rows:
            return None
        rows: pa.Table | Spilled = item.rows
        self._held_bytes += item.rows.nbytes
        if self._held_bytes > self._memory.budget.held_bytes:
            try:
                with explain_out_of_memory(self._description(names[0]), self._memory.budget):
                    rows = self._memory.spill.append(encode_rows(item.rows))
            except CheckpointError as error:
                return self._decline(names[0], error)
        for name in names:
            self._buffered.setdefault(name, []).append(_BufferedRows(rows, item.distinct, item.part))
        return None

    def write(self) -> Decline | None:
        """Stage the rows of every sink durably. Return a decline if a store fails."""
        names = sorted(self._sinks)
        if not names:
            return None
        # If rows were spilled, there is memory for only one sink at a time.
        parallelism = len(names) if self._held_bytes <= self._memory.budget.held_bytes else 1
        with self._executor(parallelism) as pool:
            results = list(pool.map(self._stage, names))
        self._staged = {
            name: result for name, result in zip(names, results, strict=True) if isinstance(result, StagedRows)
        }
        return next((result for result in results if isinstance(result, Decline)), None)

    def _stage(self, name: str) -> StagedRows | Decline:
        try:
            subtask, held_bytes = self._before.get(name, 0) + self._identity.subtask, self._memory.budget.held_bytes
            location = StagingContext(self._identity.checkpoint_id, self._identity.token, subtask, held_bytes)
            with explain_out_of_memory(self._description(name), self._memory.budget):
                return self._sinks[name].stage_pieces(self._pieces(self._buffered.get(name, [])), location)
        except CheckpointError as error:
            return self._decline(name, error)

    def ack(self) -> dict[str, Any]:
        staged: dict[str, Any] = to_json(self._staged)
        return staged

    def rejected_ack(self) -> dict[str, Any]:
        """Return what the rules of the sinks refused; {} if they have judged no rows."""
        return {"rejected": to_json(self._rejected)} if self._rejected else {}

    @staticmethod
    def _pieces(buffered: list[_BufferedRows]) -> Iterator[RowsPiece]:
        for rows in buffered:
            yield rows.piece()

    @staticmethod
    def _description(name: str) -> str:
        return f"staging the rows of sink {name}"

    def _decline(self, name: str, error: CheckpointError) -> Decline:
        return self._identity.decline_for_stored(error, f"sink {name}")
