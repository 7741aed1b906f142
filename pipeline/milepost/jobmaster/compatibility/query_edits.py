"""Decide what an edit of a SQL statement does to recorded state and tables.

*Refill*: all that follows state with current rows is rebuilt from it in the next epoch. *Backfill*: the edit is between
appended rows and state or a table, which are refused, or continue with the new text from now on. Example, of a HAVING::

    orders -> totals__agg (unchanged) -> totals (edited) -> sizes__agg
                                                            refilled from the current rows of totals__agg
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

from milepost.epoch import CheckpointMetadata
from milepost.jobspec.graph import (
    BEGINS_EMPTY,
    COMPATIBLE,
    NEW_TABLE_OR_BACKFILL,
    NEW_UID,
    REMOVED,
    JobGraph,
    SinkInput,
    is_changed,
    is_edited,
    state_signatures,
    statement_of,
)
from milepost.jobspec.job import JobSpec
from milepost.operators.base import APPEND, RETRACTIONS

INCOMPLETE = "incomplete statements"
"""Section of a checkpoint's signatures: statement -> the checkpoint from which on its rows are those of its text."""


class Edit(Enum):
    """The verdict of an edit for one operator, sink or statement."""

    UNCHANGED = "unchanged"
    NEW = "new"
    REFILL = "refill"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True)
class QueryEdits:
    """The verdicts of the edits since a checkpoint. Nodes and sinks that are in none of these are unchanged.

    Attributes:
        refilled: operators that restart with all current rows of updates upstream.
        replaced: sinks of which the next epoch replaces all rows.
        lacking: operators, new or edited, of which rows that were read before are gone, or went through another text.
        lacking_sinks: sinks for which the same is true.
        stuck: operators that can neither continue, because an input is refilled, nor restart, because of another one.
        stuck_sinks: sinks that cannot replace the rows that they show.
    """

    refilled: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    lacking: frozenset[str] = frozenset()
    lacking_sinks: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    stuck_sinks: frozenset[str] = frozenset()


def query_edits(
    spec: JobSpec, graph: JobGraph, base: CheckpointMetadata | None, *, from_now_on: bool = False
) -> QueryEdits:
    """Return what the edits of SQL statements since a checkpoint do.

    Args:
        from_now_on: edited state continues with the new text.
    """
    if base is None or not spec.statements:
        return QueryEdits()
    edits = _Edits(spec, graph, base, from_now_on).verdicts()
    if from_now_on:
        return edits
    accepted = _Edits(spec, graph, base, True).verdicts()  # what would be refilled from state that continues
    return replace(
        edits,
        lacking=edits.lacking | accepted.refilled - edits.refilled,
        lacking_sinks=edits.lacking_sinks | accepted.replaced - edits.replaced,
    )


class _Edits:
    def __init__(self, spec: JobSpec, graph: JobGraph, base: CheckpointMetadata, from_now_on: bool) -> None:
        self._spec, self._graph, self._base, self._from_now_on = spec, graph, base, from_now_on
        self._refilled: set[str] = set()
        self._lacking: set[str] = set()
        self._refused: set[str] = set()

    def verdicts(self) -> QueryEdits:
        signatures = state_signatures(self._spec, self._graph)
        recorded: Mapping[str, Any] = self._base.signatures["operators"]
        stuck = set()
        for node in self._graph.stateful:
            uid, before = node.uid, recorded.get(node.uid)
            is_statement = statement_of(self._spec, uid) is not None
            lacks = any(self._lacks(name) for name in node.inputs)
            if before is None or uid not in self._base.operators:
                self._lacking |= {uid} if is_statement and lacks else set()
                continue
            moved, after = any(self._moves(name) for name in node.inputs), signatures["operators"][uid]
            if not moved and not (is_statement and is_changed(before, after)):
                continue
            if not lacks:
                self._refilled.add(uid)
            elif moved:
                stuck.add(uid)
            elif is_edited(before, after):
                self._lacking.add(uid)
            else:
                self._refused.add(uid)
        replaced, lacking_sinks, stuck_sinks = set(), set(), set()
        for name, rows in self._graph.sink_inputs.items():
            before = None if name not in self._base.sinks else self._base.signatures["sinks"].get(name)
            kind = None if rows.part else self._sink(rows, before, signatures["sinks"][name])
            replaced |= {name} if kind == "replaced" else set()
            lacking_sinks |= {name} if kind == "lacking" else set()
            stuck_sinks |= {name} if kind == "stuck" else set()
        return QueryEdits(
            *(frozenset(one) for one in (self._refilled, replaced, self._lacking, lacking_sinks, stuck, stuck_sinks))
        )

    def _sink(self, rows: SinkInput, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str | None:
        is_statement = statement_of(self._spec, rows.uid) is not None
        if before is None:
            return "lacking" if is_statement and self._lacks(rows.uid) else None
        edited, moved = is_statement and is_edited(before, after), self._moves(rows.uid)
        if not edited and (not moved or is_changed(before, after)):
            return None
        if rows.mode == "upsert" and not self._lacks(rows.uid):
            graph = self._graph
            if graph.nodes[graph.keyed_by(rows.uid)].publishes_state:
                return "replaced"
        return "stuck" if moved else "lacking"

    def _lacks(self, uid: str) -> bool:
        """Return whether rows that a new reader of a node needs are gone. Current rows of updates are read again."""
        node = self._graph.nodes[uid]
        if not node.inputs:
            return uid in self._base.sources
        if uid in self._base.operators and uid not in self._refilled:
            has_current_rows = node.output_kind == RETRACTIONS or (node.output_kind != APPEND and node.publishes_state)
            unusable = self._refused if self._from_now_on else self._refused | self._lacking
            return not has_current_rows or uid in unusable
        return any(self._lacks(name) for name in node.inputs)

    def _moves(self, uid: str) -> bool:
        """Return whether a node's rows are computed again from refilled state."""
        node = self._graph.nodes[uid]
        if node.is_stateful:
            return uid in self._refilled
        return any(self._moves(name) for name in node.inputs)


def without_refilled(spec: JobSpec, graph: JobGraph, base: CheckpointMetadata) -> CheckpointMetadata:
    """Return the checkpoint that an epoch continues: without the state that it refills and the sinks that it replaces.

    They start as new operators and sinks do, with all current rows upstream. An epoch is only opened if its edits were
    accepted, so edited state that is not refilled continues.
    """
    edits = query_edits(spec, graph, base, from_now_on=True)
    if not edits.refilled and not edits.replaced:
        return base
    operators = {uid: one for uid, one in base.signatures["operators"].items() if uid not in edits.refilled}
    return replace(
        base,
        operators={uid: one for uid, one in base.operators.items() if uid not in edits.refilled},
        sinks={name: one for name, one in base.sinks.items() if name not in edits.replaced},
        signatures={**base.signatures, "operators": operators},
    )


def with_incomplete(spec: JobSpec, graph: JobGraph, base: CheckpointMetadata, checkpoint_id: int) -> CheckpointMetadata:
    """Return the checkpoint that an epoch continues, with the statements that will not equal their queries.

    A statement was recorded earlier, or lacks rows from this epoch on. It leaves the record once all of it is refilled.
    """
    edits, recorded = query_edits(spec, graph, base, from_now_on=True), _recorded_incomplete(spec, base)
    stateful = {node.uid for node in graph.stateful}
    incomplete = {}
    for name in spec.statements:
        operators = {uid for uid in stateful if statement_of(spec, uid) == name}
        sinks = {sink for sink, rows in graph.sink_inputs.items() if statement_of(spec, rows.uid) == name}
        if operators & edits.lacking or sinks & edits.lacking_sinks:
            incomplete[name] = checkpoint_id
        elif name in recorded and not (operators <= edits.refilled and sinks <= edits.replaced):
            incomplete[name] = recorded[name]
    return replace(base, signatures={**base.signatures, INCOMPLETE: incomplete})


def _recorded_incomplete(spec: JobSpec, base: CheckpointMetadata) -> dict[str, int]:
    """Return the incomplete statements of a checkpoint by their names in the spec."""
    names = {former: name for name, former in spec.renamed.items()}
    return {names.get(name, name): since for name, since in base.signatures.get(INCOMPLETE, {}).items()}


def incomplete_statements(spec: JobSpec, graph: JobGraph, base: CheckpointMetadata | None) -> dict[str, int]:
    """Return the statements that do not equal their queries: statement -> the checkpoint before which that is so.

    A statement that reads such a statement is one as well.
    """
    recorded = {} if base is None else _recorded_incomplete(spec, base)
    since: dict[str, int] = {}
    for node in graph.nodes.values():
        statement = statement_of(spec, node.uid)
        if statement is not None:
            read = [since.get(one) for one in map(partial(statement_of, spec), node.inputs) if one is not None]
            known = [one for one in (*read, since.get(statement), recorded.get(statement)) if one is not None]
            since |= {statement: max(known)} if known else {}
    return since


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
        row |= {"verdict": verdict, "detail": "its input is rebuilt, and it cannot be: rows read before are gone"}
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
    """Yield the operators whose current rows a node's rows are made of."""
    node = graph.nodes[uid]
    if node.is_stateful and uid not in edits.refilled:
        yield f"the current rows of {uid}"
        return
    for name in node.inputs:
        yield from _origins(name, graph, edits)


def lacks_text(is_new: bool, base: CheckpointMetadata) -> str:
    """Return how a step or table of a statement lacks rows, for a pre-flight row."""
    read = f"rows read up to checkpoint {base.checkpoint_id}"
    return f"{read} would be missing" if is_new else f"its query changed: {read} went through the former text"


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
