"""Migrate a sink's table: copy it to another location or format, and switch the sink to the copy.

The contents of a table belong to a checkpoint. So a migration makes one more checkpoint, without an epoch, that
continues the head and differs only in the contents of this table. Order of writes:
1. The freeze of the live timeline (manifest).
2. A fork at the head, and a pending checkpoint on it (manifest).
3. Both tables are registered, and the new one is reserved.
4. The head's rows are staged below the new table, then its contents records and `_metadata`.
5. Complete on the fork (manifest).
6. Fast-forward (manifest): the one transition that switches the sink's table.
7. Each sink follows. The version of that transition is the number of the new table's first mark (I14).

After a crash before step 6 the old table is still current. The next attempt disposes of the fork with what it staged,
and starts again. After step 6 the next session makes the sinks follow. A rollback to an earlier checkpoint finds the
old table in that checkpoint's contents.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from milepost.codec import encode
from milepost.epoch import CheckpointMetadata, OperatorSnapshot, SinkSnapshot
from milepost.errors import CheckpointError, PlanOutdated
from milepost.jobmaster.job.checks.store_checks import require_stores
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.reconciliation import SinkReconciler
from milepost.jobmaster.migration.plan import MIGRATING, MigrationPlan, check_ready, is_migration, plan_migration
from milepost.jobmaster.rollback.imported_checkpoint import (
    Provenance,
    abort_import,
    acknowledged_by_writer,
    import_checkpoint,
    imported_metadata,
    write_empty_input,
)
from milepost.jobmaster.run.checkpoint_metadata import shown_checkpoint, write_contents
from milepost.protocol.manifest.transaction import FastForwardRequest, FreezeRequest, ThawRequest
from milepost.protocol.records import (
    CompletedCheckpoint,
    Decision,
    PendingCheckpoint,
    SessionId,
    TimelineId,
)
from milepost.protocol.retention import open_forks
from milepost.quality import GateVerdict
from milepost.sinks import CopyPlan, stage_copy
from milepost.sinks.buckets import OwnedKeys
from milepost.tables.records import RegisteredTable, TableAddress, TableContents, TableRegistry

_LOG = logging.getLogger(__name__)

_FREEZER = SessionId("migrate-table")
"""The session that freezes the live timeline: the same for every attempt, so that the next takes over a dead one's."""


@dataclass(frozen=True, slots=True)
class MigratedTable:
    """The outcome for a table: ``migrated`` or ``nothing_to_migrate``.

    Attributes:
        checkpoint_id: the head, the first checkpoint with the new table. previous, target: old and new address.
        spec_lines: what to write in the sink's part of the spec. next_step: how to continue the job.
    """

    outcome: str
    job: str
    sink: str
    checkpoint_id: int
    previous: TableAddress
    target: TableAddress
    spec_lines: tuple[str, ...]
    next_step: str


class Migrations:
    """The use cases of one job that migrate a sink's table."""

    def __init__(self, context: JobContext, leadership: Leadership, reconciler: SinkReconciler) -> None:
        self._context, self._leadership, self._reconciler = context, leadership, reconciler

    def plan(self, sink: str, target: TableAddress) -> MigrationPlan:
        """Return what a migration of this sink's table would do. Changes nothing. Raises as `plan`."""
        return plan_migration(self._context, sink, target)

    @use_case
    def run(self, plan: MigrationPlan, *, decision: Decision | None = None) -> MigratedTable:
        """Copy the head's rows to the new table, and switch the sink to it.

        Args:
            plan: approved by a person. decision: who decided and why, for the history.
        Raises:
            PlanOutdated, CommitConflict: the head has moved since the plan. Busy, JobNotRunnable: an epoch or a switch
                is in progress. StateCorrupt: a file of the old table is missing. The old table stays current.
            StoreUnavailable, …: the switch is recorded and a sink has yet to follow, or its outcome is unknown. The
                message says so.
        """
        context = self._context
        session = _session()
        if plan.done:
            self._reconciler.finish(session)
            return _result(plan, "nothing_to_migrate", plan.head)
        require_stores(context)
        state = context.head().state
        head = state.head()
        if head is None or head.checkpoint_id != plan.head:
            raise PlanOutdated(
                f"job {state.job}: its head is checkpoint {state.timeline().head}, and was checkpoint {plan.head} when "
                "the migration was planned. Nothing was changed.",
                hint="review a new plan",
            )
        check_ready(context, state)
        for fork in open_forks(state):
            if is_migration(context, fork):  # of an attempt that died, or that this migration replaces
                abort_import(context, session, fork.timeline_id)
        with self._frozen(plan.hold_ms), self._imported(session, head, plan) as completed:
            request = FastForwardRequest(
                session.session_id,
                completed.timeline,
                expected_main_head=head.checkpoint_id,
                expected_fork_head=completed.checkpoint_id,
                sinks=tuple(sorted(sink.name for sink in context.spec.sinks)),
                decided_by=decision or session.decision(),
            )
            context.transact(request)
        self._reconciler.finish(session)
        return _result(plan, "migrated", int(completed.checkpoint_id))

    @contextmanager
    def _frozen(self, hold_ms: int) -> Iterator[None]:
        """Block triggers while the block runs. After the fast-forward there is no freeze."""
        self._context.transact(FreezeRequest(_FREEZER, hold_ms))
        try:
            yield
        finally:
            try:
                self._context.transact(ThawRequest(_FREEZER))
            except CheckpointError as error:  # the freeze expires by itself
                _LOG.warning("the live timeline was not thawed now: %s", error.message)

    @contextmanager
    def _imported(
        self, session: Session, head: CompletedCheckpoint, plan: MigrationPlan
    ) -> Iterator[CompletedCheckpoint]:
        context = self._context
        base = context.metadata(head)

        def write(pending: PendingCheckpoint, timeline: TimelineId) -> CheckpointMetadata:
            started = time.monotonic()
            contents = self._write_table(base, plan, pending)
            following = frozenset(sink.name for sink in context.spec.sinks)
            metadata = _continued(base, pending, timeline, plan, contents, following)
            return replace(metadata, timings={"copy_ms": round((time.monotonic() - started) * 1000)})

        made = Provenance(write_empty_input(context), head.code_hash, head.spec_hash, base=head.checkpoint_id)
        with import_checkpoint(context, self._leadership, session, made, write) as completed:
            yield completed

    def _write_table(self, base: CheckpointMetadata, plan: MigrationPlan, pending: PendingCheckpoint) -> TableContents:
        """Stage the head's rows below the new table. Returns its contents with them."""
        context, name = self._context, plan.sink
        before = base.tables[name]
        location = context.sink_location(name, plan.target)
        registry = TableRegistry(context.store, name)
        registry.add(RegisteredTable(before.address, before.location))
        registry.add(RegisteredTable(plan.target, location))
        context.reserve(name, plan.target)
        old, new = context.sink(name, before.address), context.sink(name, plan.target)
        owner = pending.checkpoint_id, pending.token
        staged = stage_copy(old, before, new, self._copy_plan(base, plan), owner)
        new.check_staged(staged)
        prepared = new.prepare(staged, None, waits=True)
        return write_contents(context.table_records, name, (plan.target, location), owner, None, prepared)

    def _copy_plan(self, base: CheckpointMetadata, plan: MigrationPlan) -> CopyPlan:
        spec = self._context.sink_spec(plan.sink, plan.target)
        groups = base.max_parallelism
        owned = OwnedKeys(range(groups), groups, base.hasher.key_groups)
        return CopyPlan(spec, self._context.graph.sink_inputs[plan.sink], owned)


def _session() -> Session:
    session = Session.cli()
    return Session(SessionId(f"{MIGRATING}{uuid4()}"), session.holder, session.run, session.person)


def _continued(
    base: CheckpointMetadata,
    pending: PendingCheckpoint,
    timeline: TimelineId,
    plan: MigrationPlan,
    contents: TableContents,
    following: Collection[str],
) -> CheckpointMetadata:
    """Return the metadata of a checkpoint that continues the base, with one table at another address.

    Args:
        following: the sinks that follow the switch. Sinks that are no longer in the spec do not.
    """
    signatures = dict(base.signatures)
    sinks = dict(signatures.get("sinks", {}))
    if plan.sink in sinks:
        sinks[plan.sink] = {**sinks[plan.sink], "format": plan.target.format, "path": plan.target.path}
    return replace(
        imported_metadata(base, pending, timeline),
        signatures={**signatures, "sinks": sinks},
        sources={name: item.at_rest() for name, item in base.sources.items()},
        operators={uid: _quiet_operator(item) for uid, item in base.operators.items()},
        sinks={name: SinkSnapshot(0, shown_checkpoint(base, name)) for name in sorted(base.sinks) if name in following},
        tables={**base.tables, plan.sink: contents},
        acknowledged=acknowledged_by_writer(hashlib.sha256(encode(contents)).hexdigest()),
        verdict=GateVerdict.of(()),
        held_back=None,
    )


def _quiet_operator(item: OperatorSnapshot) -> OperatorSnapshot:
    """Return an operator's state and rows in flight, with zero counts because no epoch ran."""
    idle = (0,) * len(item.processed_bytes)
    return replace(item, processed_bytes=idle, rows_in=0, rows_out=0, late_rows=0, dropped_rows=0)


def _result(plan: MigrationPlan, outcome: str, checkpoint_id: int) -> MigratedTable:
    lines = "; ".join(plan.spec_lines)
    next_step = f"write in sink {plan.sink} of the spec: {lines}; then milepost run {plan.job}"
    return MigratedTable(
        outcome, plan.job, plan.sink, checkpoint_id, plan.previous, plan.target, plan.spec_lines, next_step
    )
