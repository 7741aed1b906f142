"""Runs one stateful operator over epochs as its subtasks would: exchange by key group, restore, pieces, snapshot."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from milepost.codec.records import from_json, to_json
from milepost.operators.contract import ONLY_TABLE, OperatorOutput, StatefulOperator
from milepost.protocol.exchange.watermarks import operator_watermark
from milepost.protocol.records.object_store import ObjectStore
from milepost.state.buffers.buffers import are_partials, as_partials
from milepost.state.cache.cache import StateCache
from milepost.state.keyed.keyed_state import SubtaskState
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.key_groups import key_group, key_group_range, subtask_of_key_group
from milepost.state.layers.key_hash import KeyHash
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.handles import StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost_testkit.rows.key_hashes import KEYED


class OperatorRun:
    """One operator's checkpoints on a store. State handles pass through JSON between epochs, as in `_metadata`."""

    def __init__(
        self, operator: StatefulOperator, store: ObjectStore, max_parallelism: int = 16, hasher: KeyHash = KEYED
    ) -> None:
        self.operator = operator
        self.store = store
        self.max_parallelism = max_parallelism
        self.hasher = hasher
        self.tables: dict[str, tuple[StateHandle, ...]] = dict.fromkeys(operator.tables, ())
        self.firing_us: int | None = None
        self.epochs = 0

    @property
    def handles(self) -> tuple[StateHandle, ...]:
        """Those of an operator's one table, or of its first."""
        return self.tables[ONLY_TABLE]

    @handles.setter
    def handles(self, handles: tuple[StateHandle, ...]) -> None:
        self.tables[ONLY_TABLE] = handles

    def epoch(
        self,
        rows: pa.Table,
        lateness_us: int | None = None,
        firing_us: int | None = None,
        parallelism: int = 1,
        cache: Path | None = None,
        cuts: Sequence[int] = (),
        folded: Sequence[bool] = (),
    ) -> OperatorOutput:
        """Run one epoch and move to its checkpoint; each subtask gets its rows cut at `cuts`, ascending positions.

        Args:
            folded: of each piece whether the sender folds it.
        """
        hashes = self.hasher(rows, self.operator.routing_keys[0])
        owners = subtask_of_key_group(key_group(hashes, self.max_parallelism), self.max_parallelism, parallelism)
        subtasks = []
        for subtask in range(parallelism):
            own = rows.filter(pa.array(np.asarray(owners == subtask, dtype=np.bool_)))
            pieces = zip(cut(own, cuts), itertools.chain(folded, itertools.repeat(False)), strict=False)
            subtasks.append([(self._sent(piece, fold), lateness_us) for piece, fold in pieces])
        return self.pieces(subtasks, firing_us, cache)

    def _sent(self, piece: pa.Table, fold: bool) -> pa.Table:
        combiner = self.operator.combiner
        return as_partials(combiner.combine(piece)) if fold and combiner is not None else piece

    def pieces(
        self,
        subtasks: Sequence[Sequence[tuple[pa.Table, int | None]]],
        firing_us: int | None,
        cache: Path | None = None,
    ) -> OperatorOutput:
        """Run one epoch and move to its checkpoint; each subtask gets pieces of rows with their lateness stamps."""
        self.epochs += 1
        outputs: list[OperatorOutput] = []
        handles: dict[str, list[StateHandle]] = {name: [] for name in self.tables}
        for subtask, given in enumerate(subtasks):
            tables = self.restored(subtask, len(subtasks), cache)
            outputs.append(run_in_pieces(self.operator, tables, self.firing_us, given, firing_us))
            for name, state in tables.items():
                frozen = state.freeze(firing_us)
                snapshot = frozen.encode(f"chk-{self.epochs}/t1/state/")
                for upload in snapshot.uploads:
                    self.store.put(upload.key, upload.body)
                frozen.stage_cache(snapshot)
                handle = from_json(StateHandle, json.loads(json.dumps(to_json(snapshot.handle))), "state handle")
                handles[name].append(handle)
        self.tables, self.firing_us = {name: tuple(of_table) for name, of_table in handles.items()}, firing_us
        return OperatorOutput(_concat([o.rows for o in outputs]), _concat([o.late for o in outputs]))

    def restore(self, subtask: int, parallelism: int, cache: Path | None = None) -> SubtaskState:
        """One subtask's state at the last checkpoint, of the operator's one table or its first."""
        return self.restored(subtask, parallelism, cache)[ONLY_TABLE]

    def restored(self, subtask: int, parallelism: int, cache: Path | None = None) -> dict[str, SubtaskState]:
        """One subtask's state at the last checkpoint, by table."""
        own = key_group_range(self.max_parallelism, parallelism, subtask)
        return {name: self._restore(name, own, cache) for name in self.tables}

    def state(self, table: str = ONLY_TABLE) -> pa.Table:
        """The whole live state at the last checkpoint."""
        return self._restore(table, range(self.max_parallelism), None).rows()

    def _restore(self, name: str, key_groups: range, cache: Path | None) -> SubtaskState:
        table = self.operator.tables[name]
        keys = KeySpec(table.key, table.routing_key, self.hasher)
        return restore_state(
            StateIdentity.of(self.operator.uid, keys, table.schema, key_groups, self.max_parallelism, table=name),
            self.tables[name],
            CheckpointObjects(self.store, self.epochs, "test"),
            watermark_us=self.firing_us,
            cache=None if cache is None else StateCache(cache),
        )


def cut(rows: pa.Table, cuts: Sequence[int]) -> list[pa.Table]:
    """The rows in order, cut at the positions that are within them."""
    bounds = [0, *(position for position in cuts if position < rows.num_rows), rows.num_rows]
    return [rows.slice(start, end - start) for start, end in itertools.pairwise(bounds)]


def run_in_pieces(
    operator: StatefulOperator,
    tables: Mapping[str, SubtaskState],
    previous_firing_us: int | None,
    pieces: Sequence[tuple[pa.Table, int | None]],
    firing_us: int | None,
) -> OperatorOutput:
    """One subtask's epoch as its driver runs it: before each piece, all fires that the rows to come must find done."""
    run = operator.begin(tables, previous_firing_us)
    emitted, late = [], []
    for index, (rows, lateness_us) in enumerate(pieces):
        emitted.append(run.advance(operator_watermark(stamp for _, stamp in pieces[index:])))
        if are_partials(rows):
            assert operator.combiner is not None
            operator.combiner.ingest(run, rows)
            continue
        for output in run.rows(0, rows, lateness_us):
            emitted.append(output.rows)
            late.append(output.late)
    emitted.append(run.finish(firing_us))
    return OperatorOutput(_concat(emitted), _concat(late))


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows; what took up folded rows alone has no late ones, and does not know their schema."""
    known = [table for table in tables if table.num_columns]
    return pa.concat_tables(known) if known else pa.table({})
