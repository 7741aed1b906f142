"""List the sources and row-wise operators that now produce other rows from the same input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milepost.epoch import CheckpointMetadata, DimensionSnapshot, read_as
from milepost.jobmaster.compatibility.recorded_spec import recorded_spec
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.graph import COMPATIBLE, reads_statement
from milepost.jobspec.job import JobSpec, SourceSpec
from milepost.operators.base import RowWiseSpec
from milepost.operators.lookup import LookupOperator

CHANGED = "changed"
"""Outcome of a source, SQL or lookup that now produces other rows, or other event times, from the same input."""

OLD_ROWS = "rows read before stay as they are, unless a backfill reads them again"


def changed_definitions(context: JobContext, base: CheckpointMetadata) -> Iterator[dict[str, str]]:
    """Yield a row for each source and row-wise operator that now produces other rows: compatible, but easily missed."""
    if base.spec_hash == context.job.spec_hash:
        return
    before = recorded_spec(base)
    if before is None:
        return
    current = context.job.spec
    recorded = {
        operator.uid: _definition(operator) for operator in before.operators if isinstance(operator, RowWiseSpec)
    }
    changes: list[tuple[str, str, str, str]] = [
        (operator.kind, operator.uid, operator.uid, operator.definition_text)
        for operator in current.operators
        if isinstance(operator, RowWiseSpec)
        and not reads_statement(current, operator.uid)  # what depends on it has a verdict of its own
        and recorded.get(operator.uid, _definition(operator)) != _definition(operator)
    ]
    for name, source in current.sources.items():
        if name not in before.sources:
            continue
        if before.sources[name].layout.options != source.layout.options:
            changes.append(("source", name, f"source {name}", "how it reads its objects"))
        elif _is_reordered(before.sources[name], base.dimensions.get(name), source):
            changes.append(
                ("source", name, f"source {name}", f"the order of its columns{_tied_lookups(current, name)}")
            )
    for name, columns in retyped_sources(context, base).items():
        changes.append(("source", name, f"source {name}", f"the type of {', '.join(columns)}"))
    for kind, name, uid, what in changes:
        detail = f"{what} changed after checkpoint {base.checkpoint_id}: {OLD_ROWS}"
        yield {"kind": kind, "name": name, "uid": uid, "verdict": COMPATIBLE, "detail": detail, "outcome": CHANGED}


def retyped_sources(context: JobContext, base: CheckpointMetadata) -> dict[str, list[str]]:
    """Return source -> its columns that have another type than at a checkpoint."""
    before = None if base.spec_hash == context.job.spec_hash else recorded_spec(base)
    if before is None:
        return {}
    retyped = {
        name: [column for column, type_ in source.columns.items() if former.columns.get(column, type_) != type_]
        for name, source in context.job.spec.sources.items()
        if (former := before.sources.get(name)) is not None
    }
    return {name: columns for name, columns in retyped.items() if columns}


def _definition(operator: RowWiseSpec) -> dict[str, Any]:
    """Return the part of a spec that determines an operator's output for a given input."""
    return operator.model_dump(mode="json", exclude={"uid", "inputs"})


def _is_reordered(before: SourceSpec, held: DimensionSnapshot | None, now: SourceSpec) -> bool:
    """Return whether a source has its columns in another order than at a checkpoint.

    Args:
        held: the recorded content of a static source. It states how that was read, whatever the spec said.
    """
    orders = [source.column_names for source in (before, now)]
    former, current = [[name for name in order if all(name in other for other in orders)] for order in orders]
    same = _rows_read(before) == _rows_read(now)
    return former != current or (same and held is not None and held.read_as != read_as(now))


def _rows_read(source: SourceSpec) -> tuple[object, ...]:
    return source.layout.format, source.columns, source.layout.partitions


def _tied_lookups(spec: JobSpec, source: str) -> str:
    """Return, as a clause, the lookups that break ties by the order of a static source's columns."""
    lookups = [operator for operator in spec.operators if isinstance(operator, LookupOperator)]
    tied = [lookup.uid for lookup in lookups if lookup.dimension == source and lookup.order_by]
    return f", which breaks ties of {' and '.join(tied)}," if tied else ""
