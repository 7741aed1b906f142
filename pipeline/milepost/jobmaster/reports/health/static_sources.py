"""Report static sources: the versions that the head used, and what their paths match now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata, DimensionSnapshot
from milepost.errors import InvalidRequest
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.next_dimensions import dimension_inputs, plan_dimension
from milepost.jobmaster.reports.checkpoint.static_sources import StaticSourceDetails, newest_ms, static_source_details


@dataclass(frozen=True, slots=True)
class StaticSourceHealth:
    """A static source as of the head, and whether the next epoch would read something else.

    Attributes:
        held: the content that the head's epoch used; None: it had no such source. age_ms: of its newest object.
        changed: whether the path matches other versions now, which the next epoch would read.
        refused: why the next epoch would be refused, with the next step; None: it would not.
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
    recorded = {} if base is None else base.dimensions
    return {name: _health(context, name, recorded.get(name), now_ms) for name in sorted(context.spec.dimensions)}


def _health(context: JobContext, name: str, held: DimensionSnapshot | None, now_ms: int) -> StaticSourceHealth:
    spec, refused, changed = context.spec.dimensions[name], None, False
    try:
        planned = dimension_inputs({name: plan_dimension(context, name)})[name]
        changed = held is not None and not planned.is_in(held, spec)
    except InvalidRequest as error:
        refused = " ".join(error.full_message().split())
    return StaticSourceHealth(
        path=spec.path,
        held=None if held is None else static_source_details(held),
        age_ms=None if held is None else max(0, now_ms - newest_ms(held)),
        changed=changed,
        refused=refused,
    )
