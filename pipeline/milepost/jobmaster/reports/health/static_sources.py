"""The health of static sources: what the head looked rows up in, and what their paths name now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.epoch.dimensions import DimensionSnapshot
from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import InvalidRequest
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.next_dimensions import dimension_inputs, plan_dimension
from milepost.jobmaster.reports.checkpoint.static_sources import StaticSourceDetails, newest_ms, static_source_details


@dataclass(frozen=True, slots=True)
class StaticSourceHealth:
    """What is looked up in, and what the next epoch would.

    Attributes:
        held: what the head's epoch looked up in; None: it had no such source. age_ms: of its newest object.
        changed: whether the path names other versions now, which the next epoch reads.
        refused: why the next epoch would be refused, and what to do; None: it would not.
    """

    path: str
    held: StaticSourceDetails | None
    age_ms: int | None
    changed: bool
    refused: str | None


def static_sources(
    context: JobContext, base: CheckpointMetadata | None, now_ms: int
) -> Mapping[str, StaticSourceHealth]:
    """Return the health of each static source of a spec. Lists each once."""
    known = {} if base is None else base.dimensions
    return {name: _health(context, name, known.get(name), now_ms) for name in sorted(context.spec.dimensions)}


def _health(context: JobContext, name: str, held: DimensionSnapshot | None, now_ms: int) -> StaticSourceHealth:
    spec, refused, changed = context.spec.sources[name], None, False
    try:
        found = dimension_inputs({name: plan_dimension(context, name)})[name]
        changed = held is not None and not found.is_in(held, spec)
    except InvalidRequest as error:
        refused = " ".join(error.full_message().split())
    return StaticSourceHealth(
        path=spec.path,
        held=None if held is None else static_source_details(held),
        age_ms=None if held is None else max(0, now_ms - newest_ms(held)),
        changed=changed,
        refused=refused,
    )
