"""Epochs of an operator with two inputs, a table for each, at any parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from milepost.operators.abilities import ChangesRun
from milepost.operators.base.two_inputs import SIDES
from milepost.operators.contract import StatefulOperator
from milepost.protocol.exchange.watermarks import latest
from milepost.protocol.records.object_store import StoreConfig
from milepost.state.keyed.keyed_state import SubtaskState
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.key_groups import key_group, key_group_range, subtask_of_key_group
from milepost.state.layers.key_hash import KeyHash
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.handles import StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.local.store import LocalStore
from milepost_testkit.rows.key_hashes import KEYED

GROUPS = 8


Pieces: TypeAlias = Sequence[tuple[int, pa.Table]]
"""(position of the input, rows), in order."""


class Followed(NamedTuple):
    """The output of several epochs, and per side all rows and the late ones."""

    out: list[pa.Table]
    seen: list[list[pa.Table]]
    late: list[list[pa.Table]]


class TwoInputRun:
    """The checkpoints of an operator with a left and a right table on a store, at any parallelism."""

    def __init__(self, operator: StatefulOperator, folder: Path, hasher: KeyHash = KEYED) -> None:
        self.operator, self.hasher = operator, hasher
        self.store = LocalStore(StoreConfig(f"file://{folder}"))
        self.handles: dict[str, tuple[StateHandle, ...]] = {}
        self.firing_us: int | None = None
        self.epochs = 0
        self.changes: list[pa.Table] = []

    def epoch(
        self,
        pieces: Pieces,
        lateness_us: int | None = None,
        firing_us: int | None = None,
        parallelism: int = 1,
    ) -> tuple[pa.Table, list[list[pa.Table]]]:
        """Run one epoch over (position, rows); return the emitted rows, and the late rows of each side.

        `changes` are those of the epoch, if the operator emits its rows so.
        """
        self.epochs, self.changes = self.epochs + 1, []
        rows = [self.operator.output_schema.empty_table()]
        late: list[list[pa.Table]] = [[], []]
        handles: dict[str, list[StateHandle]] = {name: [] for name in SIDES}
        for subtask in range(parallelism):
            tables = {name: self.restore(name, key_group_range(GROUPS, parallelism, subtask)) for name in SIDES}
            run = self.operator.begin(tables, self.firing_us)
            rows.append(run.advance(lateness_us))
            for position, piece in pieces:
                hashes = self.hasher(piece, self.operator.routing_keys[position])
                owners = subtask_of_key_group(key_group(hashes, GROUPS), GROUPS, parallelism)
                for output in run.rows(position, piece.filter(pa.array(owners == subtask)), lateness_us):
                    rows.append(output.rows)
                    late[position].append(output.late)
            rows.append(run.finish(firing_us))
            if isinstance(run, ChangesRun):
                self.changes += run.changes()
            for name, state in tables.items():
                snapshot = state.freeze(firing_us).encode(f"chk-{self.epochs}/t1/state/")
                for upload in snapshot.uploads:
                    self.store.put(upload.key, upload.body)
                handles[name].append(snapshot.handle)
        self.handles, self.firing_us = {name: tuple(own) for name, own in handles.items()}, firing_us
        return pa.concat_tables(rows), late

    def follow(
        self, history: Iterable[tuple[Pieces, int, int]], time_us: Callable[[float], int], none: Sequence[pa.Table]
    ) -> Followed:
        """Run an epoch for each (pieces, parallelism, minutes until the next one).

        Firing stays at the stamp of an epoch, as where rows of it are left in flight; then it catches up.

        Args:
            time_us: returns the time of a minute. none: an empty table of each side.
        """
        out = [self.operator.output_schema.empty_table()]
        followed = Followed(out, [[one] for one in none], [[one] for one in none])
        stamp, minute = None, 0
        for pieces, parallelism, advance in history:
            firing_us = latest(stamp, time_us(minute))
            rows, refused = self.epoch(pieces, stamp, firing_us, parallelism)
            followed.out.append(rows)
            for position, piece in pieces:
                followed.seen[position].append(piece)
            for position, one in enumerate(none):
                followed.late[position] += [piece.cast(one.schema) for piece in refused[position]]
            stamp, minute = firing_us, minute + advance
        return followed

    def restore(self, name: str, key_groups: range = range(GROUPS)) -> SubtaskState:
        table = self.operator.tables[name]
        keys = KeySpec(table.key, table.routing_key, self.hasher)
        identity = StateIdentity.of(self.operator.uid, keys, table.schema, key_groups, GROUPS, table=name)
        objects = CheckpointObjects(self.store, self.epochs, "test")
        return restore_state(identity, self.handles.get(name, ()), objects, watermark_us=self.firing_us)
