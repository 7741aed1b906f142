"""Decide what an edit of a SQL statement does to recorded state and tables.

What an operator or a sink holds is right if the text from the sources to it is the one it was computed with, whether a
statement or an operator of the spec has that text. Otherwise it is *refilled*: rebuilt in the next epoch from current
rows that are right. If rows that it needs are gone, it is refused (*backfill*), or continues with the new text from now
on. Example, of a HAVING::

    orders -> totals__agg (unchanged) -> totals (edited) -> sizes__agg
                                                            refilled from the current rows of totals__agg

An operator of the spec that reads no statement follows the rules of a spec: it continues. SQL that reads it lacks rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.compatibility.recorded_spec import recorded_spec
from milepost.jobspec.graph import (
    BEGINS_EMPTY,
    COMPATIBLE,
    NEW_TABLE_OR_BACKFILL,
    NEW_UID,
    REMOVED,
    RENAMED_FROM,
    JobGraph,
    SinkInput,
    fingerprint,
    is_changed,
    is_other_table,
    is_same_query,
    reads_statement,
    state_fingerprint,
    state_signatures,
    statement_of,
)
from milepost.jobspec.job import JobSpec
from milepost.jobspec.load import hash_spec
from milepost.operators.base import APPEND, RETRACTIONS

INCOMPLETE = "incomplete"
"""Section of a checkpoint's signatures: operator, or "sink NAME" -> the checkpoint before which rows are missing."""


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
        continued: operators without a statement, upstream too, that continue with another text, or begin empty.
    """

    refilled: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    lacking: frozenset[str] = frozenset()
    lacking_sinks: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    stuck_sinks: frozenset[str] = frozenset()
    continued: frozenset[str] = frozenset()


def query_edits(
    spec: JobSpec, graph: JobGraph, base: CheckpointMetadata | None, *, from_now_on: bool = False
) -> QueryEdits:
    """Return what the edits of SQL statements since a checkpoint do.

    Args:
        from_now_on: edited state continues with the new text.
    """
    if base is None or not spec.statements or hash_spec(spec) == base.spec_hash:
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


@dataclass(slots=True)
class _Edits:
    spec: JobSpec
    graph: JobGraph
    base: CheckpointMetadata
    from_now_on: bool
    refilled: set[str] = field(default_factory=set)
    lacking: set[str] = field(default_factory=set)
    continued: set[str] = field(default_factory=set)
    unusable: set[str] = field(default_factory=set)
    """Operators of which the state is refused."""
    texts: _Texts = field(init=False)

    def __post_init__(self) -> None:
        self.texts = _Texts(self.spec, self.base)

    def verdicts(self) -> QueryEdits:
        signatures, stuck = state_signatures(self.spec, self.graph), set()
        recorded: Mapping[str, Any] = self.base.signatures["operators"]
        for node in self.graph.stateful:
            uid, before = node.uid, recorded.get(node.uid)
            lacks = any(self._lacks(name) for name in node.inputs)
            if before is None or uid not in self.base.operators:
                if lacks:
                    (self.continued if statement_of(self.spec, uid) is None else self.lacking).add(uid)
                continue
            moved, after = any(self._moves(name) for name in node.inputs), signatures["operators"][uid]
            differs, same = is_changed(before, after), self.texts.is_same_state(uid, before, after)
            if not self.texts.is_governed(uid, before):
                (self.unusable if differs else self.continued if not same else set()).add(uid)
            elif not lacks:
                if moved or differs or not self.texts.is_same(uid, before, after):
                    self.refilled.add(uid)
            elif moved:
                stuck.add(uid)
                self.unusable.add(uid)
            elif differs:
                self.unusable.add(uid)
            elif not same:
                self.lacking.add(uid)
        sinks: dict[str | None, set[str]] = {}
        for name, rows in self.graph.sink_inputs.items():
            before = None if name not in self.base.sinks else self.base.signatures["sinks"].get(name)
            sinks.setdefault(self._sink_verdict(rows, before, signatures["sinks"][name]), set()).add(name)
        return QueryEdits(
            refilled=frozenset(self.refilled),
            replaced=frozenset(sinks.get("replaced", ())),
            lacking=frozenset(self.lacking),
            lacking_sinks=frozenset(sinks.get("lacking", ())),
            stuck=frozenset(stuck),
            stuck_sinks=frozenset(sinks.get("stuck", ())),
            continued=frozenset(self.continued),
        )

    def _sink_verdict(self, rows: SinkInput, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str | None:
        """Return "replaced", "lacking" or "stuck", as in `QueryEdits`; None: the sink continues."""
        if before is None:
            is_statement = statement_of(self.spec, rows.uid) is not None
            return "lacking" if is_statement and not rows.part and self._lacks(rows.uid) else None
        moved, (same, governed) = self._moves(rows.uid), self.texts.of_sink(rows, before, after)
        if not governed or is_other_table(before, after) or (same and not moved):
            return None
        if rows.mode == "upsert" and not rows.part and not self._lacks(rows.uid):
            graph = self.graph
            if graph.nodes[graph.keyed_by(rows.uid)].publishes_state:
                return "replaced"
        return "stuck" if moved else "lacking"

    def _lacks(self, uid: str) -> bool:
        """Return whether rows that a new reader of a node needs are gone. Current rows of updates are read again."""
        node = self.graph.nodes[uid]
        if not node.inputs:
            return uid in self.base.sources
        if uid in self.base.operators and uid not in self.refilled:
            has_current_rows = node.output_kind == RETRACTIONS or (node.output_kind != APPEND and node.publishes_state)
            accepted = self.from_now_on or uid not in self.lacking | self.continued
            return not has_current_rows or uid in self.unusable or not accepted
        return any(self._lacks(name) for name in node.inputs)

    def _moves(self, uid: str) -> bool:
        """Return whether a node's rows are computed again from refilled state."""
        node = self.graph.nodes[uid]
        if node.is_stateful:
            return uid in self.refilled
        return any(self._moves(name) for name in node.inputs)


class _Texts:
    """Compares the text from the sources to a node with that of the recorded spec."""

    def __init__(self, spec: JobSpec, base: CheckpointMetadata) -> None:
        self._spec, self._before = spec, recorded_spec(base)
        sources = base.signatures.get("sources", {}).items()
        self._seen: dict[str, str] = {}
        self._seen_before = {one[RENAMED_FROM]: name for name, one in sources if RENAMED_FROM in one}

    def is_governed(self, uid: str, before: Mapping[str, Any]) -> bool:
        """Return whether a node reads a statement, or is a step of one, now or in the recorded spec."""
        return reads_statement(self._spec, uid) or self._was_governed(str(before.get(RENAMED_FROM, uid)))

    def is_same(self, uid: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Return whether a node has the recorded text."""
        return self._is_same(uid, str(before.get(RENAMED_FROM, uid)), before, after)

    def is_same_state(self, uid: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Return whether an operator's state has the recorded text. Its aggregates are compared as columns."""
        former = str(before.get(RENAMED_FROM, uid))
        if self._before is None or not _has(self._before, former):
            return is_same_query(before, after)
        recorded = state_fingerprint(self._before, former, self._seen_before)
        return recorded == state_fingerprint(self._spec, uid, self._seen)

    def of_sink(self, rows: SinkInput, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[bool, bool]:
        """Return whether a sink shows rows with the recorded text, and whether they are those of a statement."""
        inputs = () if self._before is None else (one.input for one in self._before.sinks if one.name == rows.sink)
        former = next((name.removesuffix(rows.part) for name in inputs), "")
        governed = reads_statement(self._spec, rows.uid) or self._was_governed(former)
        return self._is_same(rows.uid, former, before, after), governed

    def _is_same(self, uid: str, former: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        if self._before is None or not _has(self._before, former):
            return is_same_query(before, after)
        return fingerprint(self._before, former, self._seen_before) == fingerprint(self._spec, uid, self._seen)

    def _was_governed(self, former: str) -> bool:
        return self._before is not None and _has(self._before, former) and reads_statement(self._before, former)


def _has(spec: JobSpec, name: str) -> bool:
    return name in spec.sources or any(operator.uid == name for operator in spec.operators)


def changes_tables(spec: JobSpec, graph: JobGraph, base: CheckpointMetadata) -> bool:
    """Return whether the next epoch is the first one of an edited query that a table shows."""
    edits = query_edits(spec, graph, base, from_now_on=True)
    return bool(edits.replaced | edits.lacking_sinks & base.sinks.keys())


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
    """Return the checkpoint that an epoch continues, with a record of the operators and sinks that lack rows.

    The record has those of earlier epochs and those that lack rows from this epoch on. Refilled ones are removed.
    """
    edits = query_edits(spec, graph, base, from_now_on=True)
    rebuilt = edits.refilled | {_sink_entry(name) for name in edits.replaced}
    present = {*graph.nodes, *map(_sink_entry, graph.sink_inputs)}
    recorded = {name: since for name, since in _recorded_incomplete(base).items() if name in present - rebuilt}
    lacking = [*edits.lacking, *edits.continued, *map(_sink_entry, edits.lacking_sinks)]
    incomplete = dict(sorted((recorded | dict.fromkeys(lacking, checkpoint_id)).items()))
    return replace(base, signatures={**base.signatures, INCOMPLETE: incomplete})


def _sink_entry(name: str) -> str:
    return f"sink {name}"


def _recorded_incomplete(base: CheckpointMetadata) -> dict[str, int]:
    """Return the incomplete operators and sinks of a checkpoint by their names in the spec."""
    operators = base.signatures.get("operators", {}).items()
    names = {one[RENAMED_FROM]: uid for uid, one in operators if RENAMED_FROM in one}
    return {names.get(name, name): since for name, since in base.signatures.get(INCOMPLETE, {}).items()}


def incomplete_statements(spec: JobSpec, graph: JobGraph, base: CheckpointMetadata | None) -> dict[str, int]:
    """Return the statements that do not equal their queries: statement -> the checkpoint before which they do not.

    Statements that read an incomplete operator are incomplete too. An operator of the spec that reads a statement has
    an entry under its uid.
    """
    recorded = {} if base is None else _recorded_incomplete(base)
    since: dict[str, int] = {}
    statements: dict[str, int] = {}
    for uid, node in graph.nodes.items():
        read = (since.get(name, 0) for name in node.inputs)
        since[uid] = max([recorded.get(uid, 0), *read])
        shown = max([since[uid], *(recorded.get(_sink_entry(name), 0) for name in node.sinks)])
        if shown and reads_statement(spec, uid) and (node.is_stateful or node.sinks or statement_of(spec, uid)):
            name = statement_of(spec, uid) or uid
            statements[name] = max(statements.get(name, 0), shown)
    return statements


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
        row |= {"verdict": verdict, "detail": "its input is rebuilt, but it cannot be: rows read before are gone"}
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
    """Yield the operators from whose current rows a node is rebuilt, as text."""
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
