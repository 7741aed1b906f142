"""Describe what a changed spec means for its sources: renamed, restarted, removed, or in the place of another log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.compatibility.non_restored_state import renamed_operators
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.log_names import log_owner
from milepost.jobspec.graph import BEGINS_EMPTY, COMPATIBLE, NEW_UID, NON_RESTORED, REMOVED, RENAMED_FROM, UNCHANGED
from milepost.protocol.records import LANDED_PREFIX

NEW_NAME = "needs another name"

_POSITION_KEPT = "its position is retained, so that nothing is read twice if the source returns under this name"
_START = "start"

Row = dict[str, str]


def describe_sources(
    rows: Sequence[Row], context: JobContext, base: CheckpointMetadata, signatures: Mapping[str, Any]
) -> None:
    """Complete the rows of sources: their verdicts and details.

    Args:
        base: with the names of the spec. signatures: those of the spec.
    """
    recorded, current = base.signatures.get("sources", {}), signatures["sources"]
    renamed, names = renamed_operators(recorded, current, list(current)), context.log_names()
    for row in rows:
        if row["kind"] != "source":
            continue
        name = row["name"]
        if row["detail"].endswith(REMOVED):
            _describe_removed(row, context, renamed.get(name))
        elif name in context.spec.landed:
            _describe_landed(row, context, base, names)
        if row["detail"] == BEGINS_EMPTY and name in base.sources:
            row["detail"] = f"the spec of checkpoint {base.checkpoint_id} did not have it: it continues at its position"


def changed_sources(refused: Sequence[Row]) -> Iterator[str]:
    """Yield the recovery steps for refused sources."""
    renamed = [
        row for row in refused if row["kind"] == "source" and row["verdict"] == NON_RESTORED and "renamed_to" in row
    ]
    if renamed:
        lines = "; ".join(f"write `renamed_from: {row['name']}` at source {row['renamed_to']}" for row in renamed)
        yield f"if the source was only renamed, {lines}: it continues its log"
    for row in refused:
        if row["verdict"] == NEW_NAME:
            yield f"give source {row['name']} another name{row.get('new_name', '')}"


def _describe_removed(row: Row, context: JobContext, renamed_to: str | None) -> None:
    if renamed_to is None:
        row["detail"] += f"; {_POSITION_KEPT}"
        return
    again = f"source {renamed_to} reads the same, and would read everything again from its `start`"
    if renamed_to in context.spec.landed:
        row["renamed_to"] = renamed_to
        again += f", unless it says `renamed_from: {row['name']}`"
    row["detail"] += f"; {again}"


def _describe_landed(row: Row, context: JobContext, base: CheckpointMetadata, names: Mapping[str, str]) -> None:
    name = row["name"]
    owner, former = log_owner(name, names), context.job.spec.landed[name].renamed_from
    if owner is not None and names.get(name) == name:
        detail = f"{LANDED_PREFIX}{name}/ is the log of source {owner}, which was renamed"
        row |= {"verdict": NEW_NAME, "detail": detail}
    elif row["detail"] == BEGINS_EMPTY and former is not None:
        detail = f"checkpoint {base.checkpoint_id} has read nothing of {former}, its former name"
        row |= {"verdict": NON_RESTORED, "detail": f"{detail}: it begins at its `start`"}
    elif row["verdict"] == COMPATIBLE and row["detail"] == UNCHANGED:
        origin = base.signatures["sources"][name].get(RENAMED_FROM)
        row["detail"] = UNCHANGED if origin is None else f"renamed from {origin}: it continues its log"
    elif row["verdict"] == NEW_UID:
        row["verdict"] = NEW_NAME
        if row["detail"].startswith(f"{_START} was "):
            row["detail"] += "; a log keeps the start at which it began"
            row["new_name"] = (
                ": it then begins a log of its own at the new start, and what both logs have is read twice"
            )
        else:
            row["new_name"] = ": it then begins a log of its own, because a position applies to what was landed"
