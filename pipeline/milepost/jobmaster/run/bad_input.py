"""Decline an epoch with more bad records in its sources than the spec allows."""

from __future__ import annotations

from milepost.codec import from_json
from milepost.errors import SubtaskDeclined
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.payloads import payloads_of
from milepost.jobspec.job import BadRecordRules
from milepost.protocol.exchange import VerifiedAnswers
from milepost.protocol.records import CheckpointFailureReason, PendingCheckpoint
from milepost.sources import BadInput, bad_ratio_too_high, counts_by_trigger, merge_bad_input, too_many_bad_records


def bad_input(verified: VerifiedAnswers, source: str) -> tuple[BadInput, ...]:
    """Return the bad records that each subtask of a source counted; () if the spec lets any bad record fail."""
    acks = payloads_of(verified, "sources", source)
    return tuple(from_json(BadInput, ack["bad"], source) for ack in acks if "bad" in ack)


def check_bad_input(context: JobContext, pending: PendingCheckpoint, verified: VerifiedAnswers) -> None:
    """Raise SubtaskDeclined when more records of a source cannot be read than its spec allows.

    The limits apply to the records of each trigger separately. A backfill that reads the input of several epochs in
    one therefore decides as those epochs did: with `max_bad_records: 5`, two triggers with 4 and 3 bad records pass.
    """
    for name, spec in sorted(context.spec.streams.items()):
        rules = spec.bad_record_rules
        exceeded = None if rules is None else _limit_exceeded(name, rules, bad_input(verified, name))
        if exceeded is not None:
            raise SubtaskDeclined(
                f"checkpoint {pending.checkpoint_id}: {exceeded}. Nothing of this epoch is visible.",
                hint=f"Correct the objects, or correct sources.{name} in the spec, or raise the limit. Then run again.",
                reason=CheckpointFailureReason.BAD_RECORD.value,
                detail=exceeded,
            )


def _limit_exceeded(name: str, rules: BadRecordRules, parts: tuple[BadInput, ...]) -> str | None:
    for read in counts_by_trigger(parts):
        if rules.max_bad_records is not None and read.bad > rules.max_bad_records:
            return too_many_bad_records(name, read.bad, rules.max_bad_records, merge_bad_input(parts, None))
        records = read.rows + read.bad
        if rules.max_bad_ratio is None or records < rules.min_rows:
            continue
        if read.bad > rules.max_bad_ratio * records:
            return bad_ratio_too_high(name, read, rules.max_bad_ratio, merge_bad_input(parts, None))
    return None
