"""Bad input beyond its limits declines an epoch, before anything of it is judged or prepared."""

from __future__ import annotations

from milepost.codec.records import from_json
from milepost.errors import SubtaskDeclined
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.acknowledged import acknowledged
from milepost.jobspec.job.source_spec import SourceSpec
from milepost.protocol.exchange.acknowledgements import VerifiedAnswers
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.sources.bad_input import BadInput, beyond_ratio, beyond_records, read_together, together


def bad_input(verified: VerifiedAnswers, source: str) -> tuple[BadInput, ...]:
    """Return what the subtasks of a source counted, in their order; () where bad records fail the epoch."""
    acks = acknowledged(verified, "sources", source)
    return tuple(from_json(BadInput, ack["bad"], source) for ack in acks if "bad" in ack)


def check_bad_input(context: JobContext, pending: PendingCheckpoint, verified: VerifiedAnswers) -> None:
    """Raise SubtaskDeclined when more records of a source cannot be read than its spec allows.

    Judged are the records of each trigger by themselves: a backfill that reads several epochs' input at once comes to
    the same as they did.
    """
    for name, spec in sorted(context.spec.streams.items()):
        beyond = _beyond(name, spec, bad_input(verified, name))
        if beyond is not None:
            raise SubtaskDeclined(
                f"checkpoint {pending.checkpoint_id}: {beyond}. Nothing of this epoch is visible.",
                hint=f"Correct the objects, or what sources.{name} says of them, or raise the limit, and run again.",
                reason=CheckpointFailureReason.BAD_RECORD.value,
                detail=beyond,
            )


def _beyond(name: str, spec: SourceSpec, parts: tuple[BadInput, ...]) -> str | None:
    for read in read_together(parts):
        if spec.max_bad_records is not None and read.bad > spec.max_bad_records:
            return beyond_records(name, read.bad, spec.max_bad_records, together(parts, None))
        records = read.rows + read.bad
        if spec.max_bad_ratio is None or records < spec.min_rows:
            continue
        if read.bad > spec.max_bad_ratio * records:
            return beyond_ratio(name, read, spec.max_bad_ratio, together(parts, None))
    return None
