"""Plan the object versions of static sources that a trigger pins."""

from __future__ import annotations

from collections.abc import Mapping

from milepost.epoch import DimensionInput, pinned
from milepost.errors import InvalidRequest
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.input_notes import no_match, settling_message
from milepost.language.times import in_ms
from milepost.sources import PathColumns
from milepost.sources.planning import ConsumedSet, SourcePlan, SourceRules, list_objects, plan_source
from milepost.storage import open_store


def plan_dimensions(context: JobContext) -> dict[str, SourcePlan]:
    """Plan every static source, in name order: all objects that its path matches. Reads listings, no data.

    Raises:
        InvalidRequest: a path matches no object, or an object has an unusable name and `on_bad_name` is fail.
        EnvironmentUnusable: a bucket is missing, or access is denied.
    """
    return {name: plan_dimension(context, name) for name in sorted(context.spec.dimensions)}


def plan_dimension(context: JobContext, name: str) -> SourcePlan:
    """Plan one static source. Raises: as `plan_dimensions`."""
    config, pattern = context.source(name)
    store, spec = open_store(config), context.spec.dimensions[name]
    rules = SourceRules(
        on_bad_name=spec.on_bad_name,
        settle_ms=in_ms(spec.settle) if config.is_local else 0,
        partitions=PathColumns(spec.partitions),
    )
    now_ms = store.clock_ms() if rules.settle_ms else 0
    plan = plan_source(name, list_objects(store, pattern), ConsumedSet.empty(), rules, now_ms)
    if not plan.listed:
        raise InvalidRequest(
            f"source {name}: {no_match(context, name, plan)}, so nothing could be looked up. Nothing was planned.",
            hint=f"put the objects there, or correct sources.{name}.path",
            source=name,
        )
    return plan


def dimension_inputs(plans: Mapping[str, SourcePlan]) -> dict[str, DimensionInput]:
    """Return the static input of an epoch with these plans."""
    return {name: pinned(plan.objects) for name, plan in plans.items()}


def settling_static_sources_message(context: JobContext, plans: Mapping[str, SourcePlan]) -> str:
    """Format why no epoch was triggered: objects of static sources may still be written."""
    return f"job {context.spec.name}: no epoch was triggered; {settling_message(context, plans)}"
