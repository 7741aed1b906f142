"""Refuse a spec or code that cannot continue a checkpoint, and format the pre-flight report."""

from __future__ import annotations

from collections.abc import Callable

from milepost.epoch import CheckpointMetadata
from milepost.errors import InvalidRequest
from milepost.jobmaster.compatibility.advice import advice
from milepost.jobmaster.compatibility.edits import without_refilled
from milepost.jobmaster.compatibility.preflight import REFILLED, REFUSED, preflight
from milepost.jobmaster.compatibility.rows_in_flight import refusals
from milepost.jobmaster.compatibility.tables import begins_from_state, check_locations
from milepost.jobmaster.job.code import JobCode, LoadedCode
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.graph import FROM_NOW_ON, NON_RESTORED, UNCHANGED
from milepost.protocol.records import CheckpointFailureReason

OnReport = Callable[[list[dict[str, str]]], None]
"""Receives the report of a spec or code that differs from the head's, before anything is planned."""


def check_compatible(
    context: JobContext,
    base: CheckpointMetadata | None,
    code: JobCode,
    loaded: LoadedCode,
    *,
    allow_non_restored_state: bool = False,
    from_now_on: bool = False,
    on_report: OnReport | None = None,
    can_rebuild: bool = True,
    retry_command: str | None = None,
) -> bool:
    """Refuse a spec or functions that cannot continue the state of a checkpoint.

    Returns: whether the next epoch discards, refills or publishes state, which it does even without input.
    Raises: InvalidRequest.
    Args:
        allow_non_restored_state: whether state that no operator restores, and positions of removed sources, may be
            discarded.
        from_now_on: whether SQL statements may lack rows that were read before.
        on_report: receives the report, refused or not, if spec or code differ from the checkpoint's.
        can_rebuild, retry_command: as in `advice`.
    """
    if base is None:
        return False
    check_locations(context, base)
    report = preflight(
        context, base, loaded, allow_non_restored_state=allow_non_restored_state, from_now_on=from_now_on
    )
    if on_report is not None and (base.spec_hash, base.code_hash) != (context.job.spec_hash, code.hash):
        on_report(report)
    refused_operators = refusals(context.job.spec, base, loaded.graph, loaded)  # these errors have their own hints
    refused = [row for row in report if row["outcome"] == REFUSED and row["name"] not in refused_operators]
    if refused:
        raise InvalidRequest(
            f"job {context.spec.name}: the spec does not fit checkpoint {base.checkpoint_id}: "
            f"{'; '.join(mismatches(refused))}. "
            "Nothing was written.",
            hint=advice(context.spec, loaded.graph, refused, can_rebuild=can_rebuild, retry_command=retry_command),
            preflight=report,
            reason=CheckpointFailureReason.SPEC_REFUSED.value,
        )
    continued = without_refilled(context.job.spec, loaded.graph, base)
    changed = (row["verdict"] in (NON_RESTORED, FROM_NOW_ON) or row["outcome"] == REFILLED for row in report)
    return begins_from_state(continued, loaded.graph) or any(changed)


def report_lines(report: list[dict[str, str]]) -> list[str]:
    """Format the report, one line per changed row and one line that lists the unchanged ones."""
    lines = ["spec or code differ from the head's; what is continued:"]
    for row in report:
        if row["detail"] != UNCHANGED:
            need = f", {row['verdict']}" if row["outcome"] == REFUSED else ""
            lines.append(f"  {row['uid']}: {row['outcome']}{need}: {row['detail']}")
    same = [row["uid"] for row in report if row["detail"] == UNCHANGED and row["kind"] != "job"]
    return [*lines, f"  restored unchanged: {', '.join(same)}"] if same else lines


def mismatches(report: list[dict[str, str]]) -> list[str]:
    """Format the rows that the next epoch refuses, one text per row."""
    return [f"{row['uid']}: {row['verdict']} ({row['detail']})" for row in report if row["outcome"] == REFUSED]
