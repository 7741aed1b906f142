"""Check that the paths of a job's sources match objects that an epoch can read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from milepost.epoch import SourceSnapshot, counted
from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.input_notes import empty_objects_note, left_out, no_match
from milepost.jobmaster.job.input.next_input import plan_stream
from milepost.jobmaster.reports.health.sources import skipped_at_start
from milepost.jobspec.load import LoadedJob
from milepost.sources.planning import SourcePlan
from milepost.storage.log import Head


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """Result of checking a source's path.

    Attributes:
        ok: whether an epoch can be planned. suspicious: whether a person should look, because there is no object to
            read, or some are left out.
    """

    name: str
    ok: bool
    suspicious: bool
    detail: str


def source_checks(job: LoadedJob) -> Iterator[SourceCheck]:
    """Yield one check per source, in name order, including sources that cannot be listed or planned."""
    context = JobContext(job)
    read_head = cache(context.log.head)
    for name, source in sorted(context.spec.sources.items()):
        if source.is_landed:
            yield SourceCheck(name, True, False, f"landed from {source.location}")
            continue
        try:
            head = read_head()
            plan = plan_stream(context, None, name, () if head is None else head.state.quarantined)
            skipped = skipped_at_start(_snapshot(context, head, name), plan) if source.starts_at_latest else None
        except CheckpointError as error:
            yield SourceCheck(name, False, True, error.full_message())
            continue
        notes = [f"its path matches {counted(plan.listed, 'object')}" if plan.listed else no_match(context, name, plan)]
        notes += [left_out(plan)] if plan.bad_names else []
        notes += [empty_objects_note(plan.empty)] if plan.empty and plan.listed else []
        notes += [skipped] if skipped is not None else []
        notes += [_quarantined_note(plan)] if plan.quarantined else []
        suspicious = not plan.listed or bool(plan.bad_names or plan.empty or plan.quarantined or skipped)
        yield SourceCheck(name, True, suspicious, "; ".join(notes))


def _quarantined_note(plan: SourcePlan) -> str:
    """Format how many objects are quarantined, read before or not: the plan is that of a first epoch."""
    return f"{counted(len(plan.quarantined), 'object')} quarantined, such as {plan.quarantined[0].key}"


def _snapshot(context: JobContext, head: Head | None, source: str) -> SourceSnapshot | None:
    """Return a source at the head of the job; None: no checkpoint has it."""
    base = None if head is None else context.base_metadata(head.state, head.state.timeline().head)
    return None if base is None else base.sources.get(source)
