"""State the edits of SQL statements in the rows of a pre-flight report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.compatibility.edits.verdicts import QueryEdits
from milepost.jobspec.graph import (
    BEGINS_EMPTY,
    COMPATIBLE,
    NEW_TABLE_OR_BACKFILL,
    NEW_UID,
    REMOVED,
    JobGraph,
    statement_of,
)
from milepost.jobspec.job import JobSpec


class Edit(Enum):
    """The verdict of an edit for one operator, sink or statement."""

    UNCHANGED = "unchanged"
    NEW = "new"
    REFILL = "refill"
    BACKFILL = "backfill"


def describe_edit(row: dict[str, str], edits: QueryEdits, spec: JobSpec, graph: JobGraph) -> Edit | None:
    """Return what an edit does to the operator or sink of a pre-flight row, and complete the row."""
    name, is_sink = row["name"], row["kind"] == "sink"
    if row["kind"] not in ("operator", "sink"):
        return None
    if name in (edits.replaced if is_sink else edits.refilled):
        uid = graph.sink_inputs[name].uid if is_sink else name
        what = "replaces its rows" if is_sink else "rebuilds it"
        origins = " and ".join(_origins(uid, graph, edits)) or "new rows"
        row |= {"verdict": COMPATIBLE, "detail": f"its query changed: the next epoch {what}, from {origins}"}
        return Edit.REFILL
    if name in (edits.stuck_sinks if is_sink else edits.stuck):
        verdict = NEW_TABLE_OR_BACKFILL if is_sink else NEW_UID
        why = "rows read before are gone"
        if is_sink and graph.sink_inputs[name].mode == "changelog":
            why = "a changelog has no deletes of the rows that its new query does not show"
        row |= {"verdict": verdict, "detail": f"its input is rebuilt, but it cannot be: {why}"}
        return Edit.BACKFILL
    if name in (edits.lacking_sinks if is_sink else edits.lacking):
        row["verdict"] = COMPATIBLE if row["detail"] != BEGINS_EMPTY else row["verdict"]
        return Edit.BACKFILL
    if REMOVED in row["detail"] and not is_sink and "renamed_to" not in row:
        statement = statement_of(spec, name)
        if statement is not None:
            row |= {"verdict": COMPATIBLE, "detail": f"no step of statement {statement} needs it"}
    return None


def _origins(uid: str, graph: JobGraph, edits: QueryEdits) -> Iterator[str]:
    """Yield the operators that supply the current rows to rebuild a node from, as text."""
    node = graph.nodes[uid]
    if node.is_stateful and uid not in edits.refilled:
        yield f"the current rows of {uid}"
        return
    for name in node.inputs:
        yield from _origins(name, graph, edits)


def lacks_text(is_new: bool, base: CheckpointMetadata, *, is_recompiled: bool = False) -> str:
    """Return how a step or table of a statement lacks rows, for a pre-flight row.

    Args:
        is_recompiled: whether its text is the recorded one (`recompiled_statements`).
    """
    read = f"rows read up to checkpoint {base.checkpoint_id}"
    if is_new:
        return f"{read} would be missing"
    return (
        f"{read} went through the recorded ones"
        if is_recompiled
        else f"its query changed: {read} went through the former text"
    )


def statement_edits(spec: JobSpec, report: Iterable[Mapping[str, str]]) -> dict[str, Edit]:
    """Return what the edits since the head do to each statement that has state or a table.

    Args:
        report: the pre-flight report.
    """
    edits: dict[str, Edit] = {}
    inputs = {sink.name: sink.input for sink in spec.sinks}
    severity = list(Edit)
    for row in report:
        if row["kind"] not in ("operator", "sink") or REMOVED in row["detail"]:
            continue
        statement = statement_of(spec, inputs.get(row["name"], "") if row["kind"] == "sink" else row["name"])
        if statement is not None:
            edits[statement] = max(edits.get(statement, Edit.UNCHANGED), _edit_of(row), key=severity.index)
    return edits


def _edit_of(row: Mapping[str, str]) -> Edit:
    if row["outcome"] == "refused" or row["verdict"] != COMPATIBLE:
        return Edit.BACKFILL
    return {"refilled": Edit.REFILL, "new": Edit.NEW}.get(row["outcome"], Edit.UNCHANGED)
