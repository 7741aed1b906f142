"""One operator's keyed state over checkpoints and parallelisms, on a real store, and which runs each one refers to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from milepost.protocol.records.ids import CheckpointId, FencingToken, OperatorUid
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.retention.retention import unreferenced
from milepost.state.keyed.keyed_state import SubtaskState
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.key_groups import key_group_range
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.handles import StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.layout import state_prefix
from milepost.storage.local.store import LocalStore
from milepost_testkit.rows.key_hashes import KEYED

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
KEYS = KeySpec(("k",), ("k",), KEYED)
GROUPS = 8
PLAN = "inputs/" + "a" * 64 + ".json"


def table(keys: Sequence[int], value: int) -> pa.Table:
    return pa.table({"k": list(keys), "v": [value] * len(keys)}, schema=SCHEMA)


@dataclass
class StateLineage:
    """One operator's state over checkpoints, on a real store.

    Attributes:
        handles: of the newest checkpoint, one per subtask. checkpoints: the keys each one refers to, by id.
    """

    store: LocalStore
    handles: tuple[StateHandle, ...] = ()
    checkpoints: dict[int, set[str]] = field(default_factory=dict)

    @classmethod
    def on(cls, folder: Path) -> StateLineage:
        return cls(LocalStore(StoreConfig(f"file://{folder}")))

    def restore(self, subtask: int = 0, parallelism: int = 1, max_parallelism: int = GROUPS) -> SubtaskState:
        own = key_group_range(max_parallelism, parallelism, subtask)
        identity = StateIdentity.of("latest", KEYS, SCHEMA, own, max_parallelism)
        return restore_state(identity, self.handles, CheckpointObjects(self.store, 7, "flights"), watermark_us=None)

    def checkpoint(self, states: Sequence[SubtaskState]) -> tuple[StateHandle, ...]:
        """Snapshot every subtask as the next checkpoint."""
        checkpoint_id = len(self.checkpoints) + 1
        handles = []
        for state in states:
            directory = state_prefix(CheckpointId(checkpoint_id), FencingToken(checkpoint_id), OperatorUid("latest"))
            snapshot = state.freeze(None).encode(directory)
            for upload in snapshot.uploads:
                self.store.put(upload.key, upload.body)
            handles.append(snapshot.handle)
        self.handles = tuple(handles)
        self.checkpoints[checkpoint_id] = {run.key for handle in handles for run in handle.runs}
        return self.handles

    def epoch(self, keys: Sequence[int]) -> tuple[StateHandle, ...]:
        """One subtask changes these keys."""
        state = self.restore()
        state.upsert(table(keys, len(self.checkpoints)))
        return self.checkpoint([state])

    def garbage(self, *kept: int) -> set[str]:
        """The runs that go when only these checkpoints stay; single keys, because something of each directory stays."""
        dropped = [self.checkpoints[one] | {PLAN} for one in self.checkpoints if one not in kept]
        listed = unreferenced([self.checkpoints[one] | {PLAN} for one in kept], dropped)
        every = {run for runs in self.checkpoints.values() for run in runs}
        return {run for run in every for prefix in listed if run.startswith(prefix)}
