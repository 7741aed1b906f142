"""Messages about the input that a job's sources could deliver now, and about the objects that their plans leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milepost.epoch import SkippedAtStart, counted, iso_ms
from milepost.jobmaster.job.context import JobContext
from milepost.language.times import format_duration
from milepost.sources.planning import SourcePlan

SourcePlans = Mapping[str, SourcePlan]
"""Source name -> plan of the input that it could deliver now, in name order."""


def settles_in_ms(plans: SourcePlans) -> int | None:
    """Return the milliseconds until all new objects are settled, or None if they already are."""
    return max((plan.settles_in_ms for plan in plans.values() if plan.settling), default=None)


def settling_message(context: JobContext, plans: SourcePlans) -> str:
    """Format the number of objects per source that may still be written; "" if there are none."""
    return "; ".join(f"source {name}: {settling(context, name, plan)}" for name, plan in plans.items() if plan.settling)


def no_input_message(context: JobContext, plans: SourcePlans) -> str:
    """Format why there is no new input: unsettled objects, unusable names, paths that match nothing."""
    parts = [f"job {context.spec.name}: no new input; no epoch was triggered"]
    for name, plan in plans.items():
        if plan.settling:
            parts.append(f"source {name}: {settling(context, name, plan)}")
        if plan.bad_names:
            parts.append(f"source {name}: {left_out(plan)}")
        if plan.empty and plan.listed:
            parts.append(f"source {name}: {empty_objects_note(plan.empty)}")
        if plan.quarantined:
            parts.append(f"source {name}: {quarantined_note(plan)}")
        if plan.unknown:
            parts.append(f"source {name}: {unknown_objects_note(plan)}")
        if plan.overdue:
            parts.append(f"source {name}: {overdue(context, name, plan)}")
        elif not plan.listed:
            parts.append(f"source {name}: {no_match(context, name, plan)}")
    return "; ".join(parts)


def settling(context: JobContext, name: str, plan: SourcePlan) -> str:
    """Format the number of a source's objects that may still be written."""
    settle = format_duration(context.spec.files[name].settle)
    return f"{counted(plan.settling, 'object')} modified less than {settle} ago may still be written"


def no_match(context: JobContext, name: str, plan: SourcePlan) -> str:
    """State that a source has no readable object, and what its path matches instead."""
    counts = {"hidden": plan.skipped_hidden, "empty": len(plan.empty), "badly named": len(plan.bad_names)}
    others = ", ".join(f"{count} {why}" for why, count in counts.items() if count)
    if name in context.spec.landed:
        return f"nothing was landed from {context.spec.landed[name].location}"
    path = context.spec.files[name].path
    return f"no object matches {path}" + (f" but {others}" if others else _wildcards(path))


def _wildcards(path: str) -> str:
    """Format the likely mistake in a pattern that matches nothing: an unsupported wildcard, or none at all."""
    unsupported = next((sign for sign in "?[" if sign in path), None)
    if unsupported is not None:
        return f" (`*` and `**` are the only wildcards, `{unsupported}` stands for itself)"
    return "" if "*" in path else f" (it has no wildcard; a folder's objects are {path.rstrip('/')}/*)"


def overdue(context: JobContext, name: str, plan: SourcePlan) -> str:
    """Format when the last object of an overdue source landed."""
    spec = context.spec.sources[name]
    assert spec.expect_every is not None
    every = format_duration(spec.expect_every)
    if plan.newest_seen_ms is None:
        return f"{no_match(context, name, plan)}, and one is expected every {every}"
    return (
        f"nothing has landed at {spec.location} since {iso_ms(plan.newest_seen_ms)}, and it is expected every {every}"
    )


def left_out(plan: SourcePlan) -> str:
    """Format how many objects a plan leaves out for their names, and the first of them."""
    first = plan.bad_names[0]
    return f"{counted(len(plan.bad_names), 'object')} left out for their names, such as {first.name} ({first.reason})"


def skipped_at_start_note(skipped: SkippedAtStart) -> str:
    """Format how many objects `start: latest` skips, and the newest of them."""
    count = counted(skipped.objects, "object")
    return f"`start: latest` skips {count}, the newest is {skipped.newest}, modified {iso_ms(skipped.newest_ms)}"


def empty_objects_note(keys: Sequence[str]) -> str:
    """Format how many objects of a source are empty, and the first of them."""
    return f"{counted(len(keys), 'empty object')}, such as {keys[0]}: nothing is read from there"


def unknown_objects_note(plan: SourcePlan) -> str:
    """Format how many objects a plan leaves out because they may have been read, and the first of them."""
    count, first = counted(len(plan.unknown), "object"), plan.unknown[0]
    return f"{count} left out: older than what was forgotten and not remembered, such as {first.key}"


def quarantined_note(plan: SourcePlan) -> str:
    """Format how many unread objects are quarantined, and the first of them."""
    count, first = counted(len(plan.quarantined), "quarantined object"), plan.quarantined[0]
    return f"{count} not read, such as {first.key}"
