"""Bring a sink's table back to the job's head after an external change.

Such a change is a failover, a restore of an older state, a DELETE by another engine, or a dropped table. The job cannot
know whether the table or the head is right, so a person decides for the head. Order of writes: the decision (manifest),
the table's move, which carries the decision's version, then the confirmation (manifest, see `reconciliation.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from milepost.jobmaster.job.checks.store_checks import require_stores
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.table_contents import contents_at, sink_for
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.leadership.reconciliation import SinkReconciler
from milepost.protocol.manifest.transaction import RealignSinkRequest
from milepost.protocol.records import CheckpointId, Decision, JobStatus, ManifestState
from milepost.sinks import SinkChange
from milepost.tables.records import TableAddress, TableContents, identity_of


@dataclass(frozen=True, slots=True)
class RealignmentPlan:
    """What a realignment would do.

    Attributes:
        head: the job's head, which the table should show; 0 for the empty state.
        position: the table's current position, as text.
        fault: how the table differs from the head; None if it does not, and there is nothing to do.
        rows_now: None if unknown. text: the plan for people.
        address: of the table; None for the one that the spec names.
    """

    job: str
    sink: str
    head: int
    position: str
    fault: str | None
    rows_now: int | None
    rows_then: int
    text: tuple[str, ...]
    address: TableAddress | None = None


@dataclass(frozen=True, slots=True)
class RealignedSink:
    """The outcome for a table: ``realigned`` or ``nothing_to_realign``.

    Attributes:
        next_step: the command that continues the job.
    """

    outcome: str
    job: str
    sink: str
    checkpoint_id: int
    next_step: str


class Realignments:
    """The use cases of one job that realign a table with its head."""

    def __init__(self, context: JobContext, reconciler: SinkReconciler) -> None:
        self._context, self._reconciler = context, reconciler

    def plan(self, sink: str) -> RealignmentPlan:
        """Return what a realignment of this sink would do. Changes nothing.

        Raises: NotFound: no such sink. InvalidRequest: the sink's path differs from the head's. StateCorrupt: a file
            that the head needs is missing.
        """
        state = self._context.head().state
        head = state.timeline().head
        contents = self._contents(state, sink)
        table = sink_for(self._context, sink, contents)
        fault, change = table.fault(contents), table.compare(contents)
        rows_now = None if fault and _was_left_at(change, contents) else change.rows_now
        text = tuple(_text(state.job, sink, int(head), fault, rows_now, change.rows_then))
        return RealignmentPlan(
            state.job,
            sink,
            int(head),
            str(change.position),
            fault,
            rows_now,
            change.rows_then,
            text,
            None if contents is None else contents.address,
        )

    def _contents(self, state: ManifestState, sink: str) -> TableContents | None:
        base = self._context.base_metadata(state, state.timeline().head)
        return contents_at(self._context, base, sink)

    @use_case
    def run(self, session: Session, plan: RealignmentPlan, *, decision: Decision | None = None) -> RealignedSink:
        """Make the table show the job's head, in one commit.

        Args:
            plan: approved by a person. decision: who decided and why, for the history.
        Raises:
            Busy: an epoch is running. CommitConflict: the head has moved since the plan.
            StoreUnavailable, …: the decision is recorded, and the sink has yet to follow; the message says so.
        """
        failed = self._context.head().state.status is JobStatus.FAILED
        next_step = f"milepost {'resume' if failed else 'run'} {plan.job}"
        if plan.fault is None:
            return RealignedSink("nothing_to_realign", plan.job, plan.sink, plan.head, next_step)
        require_stores(self._context)
        self._context.reserve(plan.sink, plan.address)
        decided_by, head = decision or session.decision(), CheckpointId(plan.head)
        self._context.transact(RealignSinkRequest(session.session_id, plan.sink, head, decided_by))
        self._reconciler.finish(session)
        return RealignedSink("realigned", plan.job, plan.sink, plan.head, next_step)


def _was_left_at(change: SinkChange, contents: TableContents | None) -> bool:
    """Return whether the job's last commit to the table has these contents. Rows of foreign commits are not counted."""
    return change.position.is_known and identity_of(change.position.contents) == identity_of(contents)


def _text(job: str, sink: str, head: int, fault: str | None, rows_now: int | None, rows_then: int) -> Iterator[str]:
    if fault is None:
        yield f"sink {sink}: its table is as checkpoint {head} of job {job} says: nothing to realign"
        return
    yield f"sink {sink}: {fault.removeprefix(f'sink {sink}: ')}"
    rows = f"{rows_then} rows" if rows_now is None else f"{rows_now} -> {rows_then} rows"
    yield f"it would show checkpoint {head} of job {job} again: {rows}; what others appended stays"
