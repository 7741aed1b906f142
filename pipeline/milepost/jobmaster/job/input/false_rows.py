"""Refuse to continue from a checkpoint that has read landed rows that were voided later (L8)."""

from __future__ import annotations

from milepost.epoch import CheckpointMetadata, counted
from milepost.errors import InputVoided
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.landed import StoredRecord, VoidSpan, false_span
from milepost.protocol.records import CheckpointId
from milepost.protocol.retention import timeline_ancestry
from milepost.storage.log import SourceLog


def require_true_rows(
    context: JobContext, base: CheckpointMetadata | None, log: SourceLog, newest: StoredRecord | None
) -> None:
    """Check that a checkpoint has read no false rows, or that they were accepted. Raises InputVoided.

    Args:
        base: None is the empty state. newest: record of the log; None: nothing was landed.
    """
    source, position = log.source, None if base is None else base.log_position(log.stored_as)
    span = None if newest is None else false_span(position, newest.record)
    if base is None or position is None or span is None:
        return
    job, target = context.spec.name, rollback_target(context, log, span.first)
    accept = f"milepost land {job} --source {source} --accept-void"
    raise InputVoided(
        f"source {source}: checkpoint {base.checkpoint_id} has read {false_rows(position.total_rows, span)} that "
        f"proved false: {named_records(span.first, span.end - 1)} void since record {span.end}. No epoch "
        "was triggered; tables and state are unchanged.",
        hint=f"no checkpoint from before them is retained. To begin again from the log: milepost rollback {job} --to 0"
        f". To continue and keep what these rows changed: {accept}"
        if target is None
        else f"go back to before them: milepost rollback {job} --to {target}",
        source=source,
        checkpoint_id=base.checkpoint_id,
        void_from=span.first,
        rollback_to=target,
    )


def rollback_target(context: JobContext, log: SourceLog, void_from: int) -> CheckpointId | None:
    """Return the newest retained ancestor of the live head that has read no record from `void_from` on, if any."""
    state = context.recent_state()
    for checkpoint in reversed(timeline_ancestry(state, state.timeline())):
        position = context.metadata(checkpoint).log_position(log.stored_as)
        if position is None or position.next <= void_from:
            return checkpoint.checkpoint_id
    return None


def named_records(first: int, last: int) -> str:
    """Return records as the subject of a sentence: records 3 to 5 of its log are."""
    return f"record {first} of its log is" if first == last else f"records {first} to {last} of its log are"


def false_rows(total_rows: int, span: VoidSpan) -> str:
    """Return, as text, how many rows of void records are before a position. total_rows: of the position."""
    return counted(total_rows - span.total_rows, "row")
