"""Join a task's rows with static sources, after the operator stage or after SQL.

The stage follows whatever produces the rows. Rows keep their order and their stamps, and nothing is buffered. An
epoch's rows are matched with that epoch's copies of the static sources.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from milepost.epoch import DimensionSnapshot
from milepost.errors import CheckpointError, EnvironmentUnusable, StateCorrupt
from milepost.operators import OperatorFailed
from milepost.operators.lookup import Lookup
from milepost.protocol.exchange import Decline, SubtaskIdentity
from milepost.protocol.records import (
    CheckpointFailureReason,
    CheckpointId,
    FencingToken,
    ObjectStore,
    StoreConfig,
    checkpoint_of_key,
)
from milepost.sources import cast_to_declared, decode_dimension
from milepost.spark.task.attempt import Attempt
from milepost.spark.task.row_steps.lookup_index import LookupIndex, prepare
from milepost.spark.wire.task_output import Declined, Rows, TaskOutput
from milepost.spark.worker.task_memory import explain_out_of_memory
from milepost.state.cache import MappedTables
from milepost.state.layers import KeyHash
from milepost.storage import read_handle

_FORMAT = "milepost.lookup/2"
"""Format of a node's cached files. Files of another format are created again."""


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """One lookup, with the copy of its static source.

    Attributes:
        schema: schema that the static source declares.
        base: checkpoint that the epoch continues.
    """

    lookup: Lookup
    dimension: DimensionSnapshot
    schema: pa.Schema
    hasher: KeyHash
    cache_directory: str | os.PathLike[str]
    base: int

    def open(self, store: ObjectStore) -> LookupIndex:
        """Return the index from this node's cache. The first task on the node fetches and prepares the rows.

        Raises:
            OperatorFailed: a key occurs twice.
            StateCorrupt: the copy is missing or damaged.
        """
        copy = self.dimension.copy
        parts = [_FORMAT, copy.sha256, self.hasher.digest, str(self.schema), self.lookup.identity]
        identity = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]
        tables = MappedTables(self.cache_directory, self.lookup.uid, self.base)

        def make() -> pa.Table:
            rows = cast_to_declared(self.lookup.dimension, read_copy(store, self.dimension), self.schema)
            return prepare(self.lookup, rows, self.hasher)

        table = tables.mapped(identity, checkpoint_of_key(copy.key) or 0, make)
        return LookupIndex.of(self.lookup, table, self.hasher)


def read_copy(store: ObjectStore, dimension: DimensionSnapshot) -> pa.Table:
    """Return the rows of a copy. Raises StateCorrupt if it is missing or damaged."""
    body = read_handle(store, dimension.copy)
    try:
        return decode_dimension(body)
    except MemoryError:  # pyarrow's memory error is also an ArrowException
        raise
    except pa.ArrowException as error:
        key = dimension.copy.key
        raise StateCorrupt(f"{key} is no copy of a static source ({error}). Nothing was changed.", key=key) from error


@dataclass(frozen=True, slots=True)
class LookupStage:
    """The lookups at one depth of a level, in topological order. Picklable."""

    checkpoint_id: CheckpointId
    token: FencingToken
    level: int
    job_store: StoreConfig
    plans: tuple[LookupPlan, ...]

    def run(self, attempt: Attempt, items: Iterable[TaskOutput]) -> Iterable[TaskOutput]:
        """Return the items. Rows that a lookup reads are followed by the rows that it emits."""
        return self._run(attempt, iter(items)) if self.plans else items

    def _run(self, attempt: Attempt, items: Iterator[TaskOutput]) -> Iterator[TaskOutput]:
        identity = SubtaskIdentity(self.checkpoint_id, self.token, self.level, attempt.subtask)
        uids = " and ".join(plan.lookup.uid for plan in self.plans)
        who = f"operator {uids} (level {self.level}, subtask {attempt.subtask})"
        decline: Decline | None = None
        try:
            with explain_out_of_memory(who, attempt.memory.budget):
                store = attempt.open_store(self.job_store)
                opened = {plan.lookup.uid: plan.open(store) for plan in self.plans}
                for item in items:
                    yield item
                    if isinstance(item, Rows):
                        yield from self._lookup_rows(item, opened)
        except OperatorFailed as failed:
            decline = identity.decline(CheckpointFailureReason.OPERATOR_ERROR, str(failed))
        except EnvironmentUnusable as error:
            decline = identity.decline_for(error, who, CheckpointFailureReason.ENVIRONMENT_UNUSABLE)
        except CheckpointError as error:
            decline = identity.decline_for_stored(error, "lookup")
        if decline is not None:
            for _ in items:  # always drain the input
                pass
            yield Declined(decline)

    def _lookup_rows(self, item: Rows, opened: Mapping[str, LookupIndex]) -> Iterator[Rows]:
        """Yield the rows that the lookups emit for an item, and those of lookups that read these rows."""
        for plan in self.plans:
            if plan.lookup.input == item.node and item.rows.num_rows:
                made = Rows(
                    plan.lookup.uid, opened[plan.lookup.uid].find(item.rows), item.lateness_us, object=item.object
                )
                yield made
                yield from self._lookup_rows(made, opened)
