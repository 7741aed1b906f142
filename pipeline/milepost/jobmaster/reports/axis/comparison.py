"""Compare the figures of two epochs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from milepost.epoch import iso_ms
from milepost.errors import NotFound, StoreUnavailable
from milepost.jobmaster.figures.epoch_rows import EpochRow
from milepost.jobmaster.figures.stored_rows import NodeFigures, StoredRows
from milepost.jobmaster.figures.timings import PHASE_GROUPS
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.axis.columns import Outcome, outcome_of

_FIGURES = ("duration_ms", "rows_in", "rows_out", "late_rows", "dropped_rows", "bad_records", "lag_ms")


@dataclass(frozen=True, slots=True)
class ComparedEpoch:
    """One of the epochs."""

    checkpoint_id: int
    timeline: str
    began: str | None
    outcome: Outcome
    code_hash: str | None
    spec_hash: str | None


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of both epochs; None: unknown. node: "" for a figure of the epoch; else the node that it is of."""

    name: str
    before: int | None
    after: int | None
    node: str = ""


@dataclass(frozen=True, slots=True)
class EpochComparison:
    """Two epochs side by side. phases: milliseconds by group. nodes: rows, state and bytes of each node."""

    before: ComparedEpoch
    after: ComparedEpoch
    figures: tuple[ComparedFigure, ...]
    phases: tuple[ComparedFigure, ...]
    nodes: tuple[ComparedFigure, ...]


def compare_epochs(context: JobContext, before: int | None, after: int | None) -> EpochComparison:
    """Return the figures of two epochs. Raises NotFound: there are no figures of one of them.

    Args:
        before, after: checkpoints; None: the parent of the head, and the head.
    """
    head = context.head().state.head()
    before = before or (int(head.parent) if head is not None else 0)
    after = after or (int(head.checkpoint_id) if head is not None else 0)
    stored = StoredRows(context.store)
    found: dict[int, EpochRow] = {}
    for rows in stored.epochs_by_phase():
        for row in rows:
            if row.checkpoint_id in (before, after):
                found.setdefault(row.checkpoint_id, row)
        if {before, after} <= found.keys():
            break
    for checkpoint_id in (before, after):
        if checkpoint_id not in found:
            raise NotFound(f"job {context.spec.name} has no figures of checkpoint {checkpoint_id}.")
    try:
        nodes = stored.nodes(found.values())
    except (NotFound, StoreUnavailable):  # an epoch merges these rows
        nodes = {}
    one, other = found[before], found[after]
    groups = [dict(zip(PHASE_GROUPS, row.groups, strict=False)) for row in (one, other)]
    return EpochComparison(
        _epoch(one),
        _epoch(other),
        tuple(ComparedFigure(name, getattr(one, name), getattr(other, name)) for name in _FIGURES),
        tuple(ComparedFigure(name, groups[0].get(name), groups[1].get(name)) for name in PHASE_GROUPS),
        tuple(_nodes(*(nodes.get((row.checkpoint_id, row.timeline), NodeFigures()) for row in (one, other)))),
    )


def _epoch(row: EpochRow) -> ComparedEpoch:
    began = None if row.trigger_time is None else iso_ms(row.trigger_time)
    return ComparedEpoch(row.checkpoint_id, row.timeline, began, outcome_of(row), row.code_hash, row.spec_hash)


_NODE_FIGURES = {
    "sources": ("rows", "objects", "bad_records"),
    "operators": ("rows_in", "rows_out", "late_rows", "dropped_rows", "busy_ms", "state_bytes"),
    "sinks": ("rows", "bytes", "table_rows"),
}


def _nodes(before: NodeFigures, after: NodeFigures) -> Iterator[ComparedFigure]:
    for kind, names in _NODE_FIGURES.items():
        one, other = getattr(before, kind), getattr(after, kind)
        for node in dict.fromkeys([*one, *other]):
            for name in names:
                values = one.get(node, {}).get(name), other.get(node, {}).get(name)
                if any(values):
                    yield ComparedFigure(name, *values, node)
