"""Build a job's first checkpoint from tables with the keyed state of its operators.

The table of an operator has exactly the columns of its state, as `milepost state --stored` shows them. Rows are placed
by the job's key hash and written by the code of the state store, so the result is what an epoch with those rows in its
state would have written. Sources have no position: the first epoch reads what `start` says. Tables of sinks are empty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from milepost.epoch import CheckpointMetadata, OperatorSnapshot, StateTableSnapshot, code_by_name
from milepost.errors import InvalidRequest, NotFound
from milepost.jobmaster.job.checks.landed_source_checks import require_whole_logs
from milepost.jobmaster.job.checks.store_checks import require_stores
from milepost.jobmaster.job.code import LoadedCode, read_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.extend_record import extend_record
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.switch_acts import SwitchAct, switch_decision
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.leadership.incarnations import Incarnations
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.outcomes import JobOutcome
from milepost.jobmaster.rollback.imported_checkpoint import (
    Provenance,
    acknowledged_by_writer,
    import_checkpoint,
    new_import_session,
    write_empty_input,
)
from milepost.jobmaster.rollback.plan import ApprovedRollback
from milepost.jobmaster.rollback.rollback import Rollbacks
from milepost.jobmaster.savepoints.restore import check_tables, startable
from milepost.jobmaster.savepoints.state_table import read_table
from milepost.jobspec.graph import state_signatures
from milepost.operators import ONLY_TABLE, STATEFUL_KINDS, StatefulOperator
from milepost.operators.base import StatefulSpec
from milepost.protocol.records import OperatorUid, PendingCheckpoint, TimelineId
from milepost.quality import GateVerdict
from milepost.spill import SpilledRows, ordered_rows
from milepost.state.keyed import STATE_COPIES, merge_handles, restore_state, row_bytes, slices_within
from milepost.state.layers import KeyHash, KeySpec, key_group_range
from milepost.state.runs import CheckpointObjects, StateHandle, StateIdentity
from milepost.storage import state_prefix

_KINDS = ", ".join(sorted(kind for kind, spec in STATEFUL_KINDS.items() if spec.can_be_bootstrapped))
_GROUP = "__key_group"

_SLICE_BYTES = 64 << 20
"""Memory limit for the part of a subtask's key groups that is written at a time."""


@dataclass(frozen=True, slots=True)
class BootstrappedState:
    """An operator's state that was read from a file."""

    file: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrappedJob(JobOutcome):
    """A job that starts with the state of these operators, by uid."""

    operators: Mapping[str, BootstrappedState]


class Bootstrap:
    """The use case that starts a job from tables."""

    def __init__(
        self, context: JobContext, leadership: Leadership, incarnations: Incarnations, rollbacks: Rollbacks
    ) -> None:
        self._context, self._leadership = context, leadership
        self._incarnations, self._rollbacks = incarnations, rollbacks

    @use_case
    def run(self, files: Mapping[str, str]) -> BootstrappedJob:
        """Make a checkpoint with this state the job's head, and open the job if it has ended.

        Args:
            files: by operator uid, a Parquet or CSV file (`.parquet`, `.csv`): a path or a URL.
        Raises:
            InvalidRequest: the job runs, an operator cannot be bootstrapped, or a table does not fit its state.
            NotFound: no such operator or file. Nothing was changed.
        """
        context, session = self._context, new_import_session()
        state = startable(context, self._incarnations, session, "a table")
        require_whole_logs(context, state, "bootstrap")
        require_stores(context)
        if not files:
            raise InvalidRequest("bootstrap needs at least one UID=FILE. Nothing was changed.")
        code = read_code(context)
        loaded = code.load(context)
        specs = {uid: _spec(context, loaded, uid) for uid in files}
        tables = {uid: read_table(context, loaded, specs[uid], file) for uid, file in files.items()}
        check_tables(context, state, {})
        plan = write_empty_input(context)

        def write(pending: PendingCheckpoint, timeline: TimelineId) -> CheckpointMetadata:
            hasher = KeyHash(context.head().state.key_hash_secret)
            operators = {uid: _snapshot(context, pending, hasher, *table) for uid, table in tables.items()}
            signatures = state_signatures(context.job.spec, loaded.graph)
            digest = hashlib.sha256(repr(sorted(operators.items())).encode()).hexdigest()
            return CheckpointMetadata(
                job=context.spec.name,
                checkpoint_id=pending.checkpoint_id,
                epoch=pending.epoch,
                timeline=timeline,
                token=pending.token,
                base=pending.base,
                code_hash=pending.code_hash,
                code=code_by_name({uid: function.modules() for uid, function in code.functions.items()}),
                spec_hash=pending.spec_hash,
                spec_text=context.job.text,
                signatures={
                    "operators": {uid: signatures["operators"][uid] for uid in operators},
                    "job": signatures["job"],
                },
                max_parallelism=context.spec.checkpointing.max_parallelism,
                hasher=hasher,
                plan=pending.plan,
                sources={},
                operators=operators,
                sinks={},
                tables={},
                acknowledged=acknowledged_by_writer(digest),
                verdict=GateVerdict.of(()),
            )

        made = Provenance(plan, code.hash, context.job.spec_hash)
        of = f"tables: {', '.join(sorted(tables))}"
        decision = switch_decision(SwitchAct.BOOTSTRAP, of, session.decision())
        with import_checkpoint(context, self._leadership, session, made, write) as completed:
            head = 0 if state is None else int(state.timeline().head)
            self._rollbacks.run(session, ApprovedRollback(int(completed.checkpoint_id), head, {}), decision=decision)
        opened = replace(self._incarnations.start(Session.cli()), outcome="started")
        operators = {uid: BootstrappedState(file, tables[uid][1].num_rows) for uid, file in files.items()}
        return extend_record(BootstrappedJob, opened, operators=operators)


def _spec(context: JobContext, loaded: LoadedCode, uid: str) -> StatefulSpec:
    """Return the operator's spec. Raises NotFound, InvalidRequest: it cannot be bootstrapped."""
    nodes = {node.uid: node for node in loaded.graph.stateful}
    if uid not in nodes:
        uids = ", ".join(sorted(nodes)) or "none"
        raise NotFound(f"job {context.spec.name} has no stateful operator {uid}; it has: {uids}. Nothing was changed.")
    spec = context.spec.operator(uid)
    assert isinstance(spec, StatefulSpec)
    if not spec.can_be_bootstrapped:
        raise InvalidRequest(
            f"operator {uid}: `kind: {nodes[uid].kind}` cannot be bootstrapped from a table in this version; these can:"
            f" {_KINDS}. Nothing was changed."
        )
    return spec


def _snapshot(
    context: JobContext, pending: PendingCheckpoint, hasher: KeyHash, operator: StatefulOperator, rows: SpilledRows
) -> OperatorSnapshot:
    """Write the rows as the state of each subtask, below the pending checkpoint's token."""
    spec, table = context.spec, operator.tables[ONLY_TABLE]
    groups, parallelism = spec.checkpointing.max_parallelism, spec.spark.parallelism
    owned = [key_group_range(groups, parallelism, subtask) for subtask in range(parallelism)]
    per_group = np.full(groups, rows.num_rows * row_bytes(table.schema) * STATE_COPIES // groups, dtype=np.int64)
    slices = [slices_within(own, per_group[own.start : own.stop], _SLICE_BYTES) for own in owned]

    def placed(piece: pa.Table) -> pa.Table:
        return piece.append_column(_GROUP, pa.array(hasher.key_groups(piece, table.routing_key, groups)))

    in_order = ordered_rows(map(placed, rows), [_GROUP])
    parts = _by_slice(in_order, [part for parts in slices for part in parts], table.schema)
    handles = []
    for of_subtask in slices:
        written = [_write(context, pending, hasher, operator, next(parts), part) for part in of_subtask]
        handles.append(merge_handles(written, ()))
    return OperatorSnapshot(
        tables={ONLY_TABLE: StateTableSnapshot(table.key, table.routing_key, table.schema, tuple(handles))},
        firing=(None,) * parallelism,
        channels=(None,) * parallelism,
        processed_bytes=(0,) * parallelism,
        rows_in=0,
        rows_out=0,
        late_rows=0,
        dropped_rows=0,
    )


def _by_slice(pieces: Iterable[pa.Table], slices: Sequence[range], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of each slice of the key groups, in the order of the key groups."""
    waiting, following = list[pa.Table](), iter(pieces)
    for part in slices:
        own = []
        while True:
            piece = waiting.pop() if waiting else next(following, None)
            if piece is None:
                break
            inside = int(np.searchsorted(piece.column(_GROUP).to_numpy(), part.stop))
            own.append(piece.slice(0, inside).drop_columns([_GROUP]))
            if inside < piece.num_rows:
                waiting.append(piece.slice(inside))
                break
        yield pa.concat_tables(own) if own else schema.empty_table()


def _write(
    context: JobContext,
    pending: PendingCheckpoint,
    hasher: KeyHash,
    operator: StatefulOperator,
    rows: pa.Table,
    own: range,
) -> StateHandle:
    spec, table = context.spec, operator.tables[ONLY_TABLE]
    keys = KeySpec(table.key, table.routing_key, hasher)
    identity = StateIdentity.of(operator.uid, keys, table.schema, own, spec.checkpointing.max_parallelism)
    state = restore_state(identity, (), CheckpointObjects(context.store, 0, spec.name), watermark_us=None)
    state.upsert(rows)
    directory = state_prefix(pending.checkpoint_id, pending.token, OperatorUid(operator.uid))
    snapshot = state.freeze(None).encode(directory)
    for upload in snapshot.uploads:
        context.store.put(upload.key, upload.body)
    return snapshot.handle
