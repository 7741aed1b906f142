"""Compare spec and code with the state that they continue, operator by operator.

Each operator of the spec is restored, converted (columns added, widened or dropped), new, or refused. An operator that
the spec no longer has is dropped. Sources, sinks and the job get the same outcomes. `lint` shows the report, `run`
prints it when spec or code differ from the head's. Nothing is planned while any row is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.epoch import CheckpointMetadata, OperatorSnapshot, are_continued, other_tables
from milepost.jobmaster.compatibility.changed_definitions import (
    CHANGED,
    OLD_ROWS,
    changed_definitions,
    retyped_sources,
)
from milepost.jobmaster.compatibility.derived_types import DerivedTypes, derived_types
from milepost.jobmaster.compatibility.edits import (
    Edit,
    describe_edit,
    describe_recompiled,
    lacks_text,
    query_edits,
    recompiled_statements,
    without_refilled,
)
from milepost.jobmaster.compatibility.expected_operators import expected_operator
from milepost.jobmaster.compatibility.non_restored_state import renamed_operators
from milepost.jobmaster.compatibility.rows_in_flight import refusals
from milepost.jobmaster.compatibility.source_changes import describe_sources
from milepost.jobmaster.compatibility.tables import (
    OTHER_TABLE,
    OTHER_TABLE_OR_MIGRATION,
    changed_types,
    describe_renamed_table,
    filled_sinks,
    missed_rows,
    missing_columns,
    resolved_path_note,
    seeded_operators,
)
from milepost.jobmaster.job.code import LoadedCode
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.graph import (
    BEGINS_EMPTY,
    COMPATIBLE,
    FROM_NOW_ON,
    NEW_TABLE,
    NEW_TABLE_OR_BACKFILL,
    NEW_UID,
    NON_RESTORED,
    REMOVED,
    RENAMED_FROM,
    UNCHANGED,
    JobGraph,
    compare_signatures,
    is_same_query,
    retimed_sources,
    state_signatures,
    statement_of,
    without_queries,
)
from milepost.operators import STATEFUL_KINDS, StatefulOperator
from milepost.operators.base import RowWiseSpec
from milepost.state.runs import SchemaChange, compare_schemas

RESTORED, CONVERTED, NEW, DROPPED, REFUSED = "restored", "converted", "new", "dropped", "refused"
REFILLED = "refilled"
"""Outcome of an operator or sink whose rows the next epoch makes again, from current rows upstream."""


def preflight(
    context: JobContext,
    base: CheckpointMetadata | None,
    loaded: LoadedCode | None,
    *,
    allow_non_restored_state: bool = False,
    from_now_on: bool = False,
) -> list[dict[str, str]]:
    """Return one row per operator, source, sink and the job, in the order of the spec, then the removed ones.

    Args:
        base: the checkpoint to continue, with the names of the spec (`JobContext.base_metadata`); None: none.
        loaded: None: no process class was loaded. What depends on one is not checked.
        allow_non_restored_state: whether state that no operator restores may be discarded.
        from_now_on: whether SQL statements may lack rows that were read before.
    Returns:
        ``{"kind", "name", "uid", "outcome", "verdict", "detail"}``; [] without a checkpoint. The last rows are the
        sources, SQL and lookups with changed definitions, which refuses nothing.
    """
    if base is None:
        return []
    spec, graph = context.job.spec, context.graph if loaded is None else loaded.graph
    recorded, signatures = _recorded(base, graph), state_signatures(spec, graph)
    rows = compare_signatures(without_queries(recorded), without_queries(signatures))
    order = [node.uid for node in graph.stateful]
    renamed = renamed_operators(recorded.get("operators", {}), signatures["operators"], order)
    refused_operators = refusals(spec, base, graph, loaded)
    retimed = retimed_sources(recorded, signatures)
    edits, continued = query_edits(spec, graph, base, from_now_on=from_now_on), without_refilled(spec, graph, base)
    filled, seeded = filled_sinks(continued, graph), seeded_operators(continued, graph)
    is_edited = bool(spec.statements) and base.spec_hash != context.job.spec_hash
    retyped = retyped_sources(context, base)
    derived = derived_types(spec, graph) if is_edited or retyped else None
    recompiled = recompiled_statements(spec, base) if is_edited else frozenset[str]()
    describe_sources(rows, context, base, signatures)
    accepted = {COMPATIBLE}
    accepted |= ({NON_RESTORED} if allow_non_restored_state else set()) | ({FROM_NOW_ON} if from_now_on else set())
    for row in rows:
        outcome = RESTORED
        if row["detail"] == BEGINS_EMPTY:
            outcome = NEW
        elif f"{row['kind']} {REMOVED}" in row["detail"]:
            outcome = DROPPED
            _describe_loss(row, recorded, renamed)
        edit = describe_edit(row, edits, spec, graph)
        node = _node_of(row, graph)
        is_recompiled = statement_of(spec, node) in recompiled
        is_retyped = node in graph.nodes and not retyped.keys().isdisjoint(graph.nodes[node].sources)
        if row["kind"] == "operator" and edit is not Edit.REFILL:
            types = derived if edit is Edit.BACKFILL or is_retyped else None
            outcome = _check_operator(row, outcome, context, base, graph, loaded, types)
            if row["verdict"] == COMPATIBLE and row["name"] in refused_operators:
                row |= {"verdict": NEW_UID, "detail": refused_operators[row["name"]].full_message()}
        elif row["kind"] == "sink" and outcome == RESTORED:
            _check_sink(row, context, base, graph, edit, derived if edit is not None or is_retyped else None)
        elif row["kind"] == "sink" and outcome == NEW:
            describe_renamed_table(row, spec, base)
        elif row["kind"] == "source" and row["verdict"] == NEW_UID:
            row["detail"] += resolved_path_note(context, base.signatures["sources"][row["name"]].get("root"))
        elif row["kind"] == "source" and row["name"] in retimed:
            outcome, row["detail"] = CHANGED, f"{retimed[row['name']]}: its watermark is reset; {OLD_ROWS}"
        if row["kind"] == "sink" and row["name"] in filled - edits.replaced and row["verdict"] == COMPATIBLE:
            row["detail"] = f"the next epoch publishes every key of {graph.sink_inputs[row['name']].uid} to it"
        elif row["kind"] == "sink" and row["detail"] == UNCHANGED:
            row["detail"] = missed_rows(row["name"], base, graph) or UNCHANGED
        if row["kind"] == "operator" and row["name"] in seeded and row["detail"] == BEGINS_EMPTY:
            upstream = [name for name in graph.nodes[row["name"]].inputs if graph.nodes[name].retracts]
            row["detail"] = f"starts with the current rows of {' and '.join(upstream)}"
        if edit is Edit.BACKFILL and row["kind"] == "sink" and row["detail"] == BEGINS_EMPTY:
            row |= _former_sink(row["name"], recorded["sinks"], signatures["sinks"])
        if edit is Edit.BACKFILL and row["verdict"] == COMPATIBLE:
            is_new = row["detail"] == BEGINS_EMPTY or (row["kind"] == "sink" and row["name"] not in base.sinks)
            row |= {"verdict": FROM_NOW_ON, "detail": lacks_text(is_new, base, is_recompiled=is_recompiled)}
        outcome = REFILLED if edit is Edit.REFILL else outcome
        row["outcome"] = outcome if row["verdict"] in accepted else REFUSED
        if row["outcome"] == REFUSED and is_recompiled:
            describe_recompiled(row, base)
    return [*rows, *changed_definitions(context, base)]


def _node_of(row: Mapping[str, str], graph: JobGraph) -> str:
    """Return the node of an operator or a sink of the spec; otherwise the empty string."""
    if row["kind"] == "sink":
        return graph.sink_inputs[row["name"]].uid if row["name"] in graph.sink_inputs else ""
    return row["name"] if row["kind"] == "operator" and row["name"] in graph.nodes else ""


def _recorded(base: CheckpointMetadata, graph: JobGraph) -> dict[str, Any]:
    """Return the recorded signatures to compare with, without sinks that neither the checkpoint nor the spec has."""
    sinks = base.signatures.get("sinks", {})
    return {
        **base.signatures,
        "sinks": {name: sink for name, sink in sinks.items() if name in base.sinks or name in graph.sink_inputs},
        "job": {"job": {"max_parallelism": base.max_parallelism}},
    }


def _former_sink(name: str, recorded: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, str]:
    """Return, for the row of a new table, the removed one that a statement with the same text had."""
    same = (former for former, sink in recorded.items() if is_same_query(sink, current[name]))
    removed = next((former for former in same if former not in current), None)
    return {} if removed is None else {"former": removed}


def _describe_loss(row: dict[str, str], recorded: Mapping[str, Any], renamed: Mapping[str, str]) -> None:
    """Complete the row of a removed operator: what is lost, and its likely new name."""
    if row["kind"] == "operator":
        if row["name"] in renamed:
            row["renamed_to"] = renamed[row["name"]]
            how = "`renamed`" if "__" in row["renamed_to"] else f"`renamed_from: {row['name']}`"
            row["detail"] += f"; operator {row['renamed_to']} continues it with {how}"
        row["forgets"] = STATEFUL_KINDS[recorded["operators"][row["name"]]["kind"]].lost_state
        row["detail"] += f"; --allow-non-restored-state discards {row['forgets']}"


def _check_operator(
    row: dict[str, str],
    outcome: str,
    context: JobContext,
    base: CheckpointMetadata,
    graph: JobGraph,
    loaded: LoadedCode | None,
    derived: DerivedTypes | None,
) -> str:
    """Compare the columns of an operator's state and complete its row. Returns its outcome.

    Args:
        derived: types from the text of SQL, if the text or a source's types upstream were edited.
    """
    uid = row["name"]
    spec = None if uid not in graph.nodes else context.job.spec.operator(uid)
    if spec is None or isinstance(spec, RowWiseSpec) or row["verdict"] != COMPATIBLE:
        return outcome
    if outcome == NEW:
        if spec.renamed_from is not None and statement_of(context.job.spec, uid) is None:
            detail = f"checkpoint {base.checkpoint_id} has no state of {spec.renamed_from}, its former name"
            row |= {"verdict": NON_RESTORED, "detail": f"{detail}: starts empty"}
        return outcome
    origin = base.signatures["operators"][uid].get(RENAMED_FROM)
    notes = [] if origin is None else [f"renamed from {origin}"]
    snapshot = base.operators.get(uid)
    if snapshot is not None:
        recorded = {name: table.schema for name, table in snapshot.tables.items()}
        operator = expected_operator(recorded, spec, graph, loaded, derived)
        if operator is None:
            notes.append("`run` compares its columns, because it loads the classes of process operators")
            changes = []
        elif not are_continued(snapshot.tables, operator.tables):
            row |= {"verdict": NEW_UID, "detail": "; ".join([*notes, other_tables(snapshot.tables, operator.tables)])}
            return outcome
        else:
            changes = _changes(snapshot, operator)
            if snapshot.tables.keys() != operator.tables.keys():
                row["verdict"] = NON_RESTORED
                notes.append("no operator reads its updates now: the rows that it has emitted are discarded")
        problems = [problem for change in changes for problem in change.problems]
        converted = [change for change in changes if change.converts]
        if problems:
            row["verdict"] = NEW_UID
            notes += problems
        elif converted:
            outcome = CONVERTED
            notes += [change.words() for change in converted]
            if any(change.added and change.dropped for change in converted):
                row["verdict"] = NON_RESTORED
                notes.append("a renamed column would start empty")
    row["detail"] = "; ".join(notes) or UNCHANGED
    return outcome


def _changes(snapshot: OperatorSnapshot, operator: StatefulOperator) -> list[SchemaChange]:
    """Return how each recorded state table converts to the operator's."""
    return [
        compare_schemas(snapshot.tables[name].schema, table.schema, table.key, table.tie_break)
        for name, table in operator.tables.items()
    ]


def _check_sink(
    row: dict[str, str],
    context: JobContext,
    base: CheckpointMetadata,
    graph: JobGraph,
    edit: Edit | None,
    derived: DerivedTypes | None,
) -> None:
    """Refuse a sink whose table is elsewhere, or cannot hold the rows as far as types are known. Completes its row.

    Args:
        edit: what an edit of its query does to the table. derived: types from the text of SQL, as in
            `_check_operator`.
    """
    sink = graph.sink_inputs[row["name"]]
    table = base.tables.get(row["name"])
    address = context.sink_address(row["name"])
    location = address.format, context.sink_location(row["name"])
    if table is not None and table.address != address and (table.address.format, table.location) != location:
        lines = "; ".join(table.address.spec_lines())
        detail = f"its table is {table.address}, the spec says {address}: write {lines}"
        if table.address.format == address.format:  # else a migration moved it to another path
            detail += resolved_path_note(context, table.address.path)
        can_migrate = table.address.sink_format.can_migrate_to(address.sink_format)
        row |= {"verdict": OTHER_TABLE_OR_MIGRATION if can_migrate else OTHER_TABLE, "detail": detail}
        return
    if table is None:
        return
    uid = graph.keyed_by(sink.uid) if sink.mode == "upsert" else None
    if table.rows and uid is not None and uid not in base.signatures["operators"] and edit is not Edit.REFILL:
        detail = f"its table has rows of the former {uid}, and {uid} starts empty"
        row |= {"verdict": NEW_TABLE_OR_BACKFILL, "detail": detail}
        return
    if not sink.columns_known:
        return
    problems = [*missing_columns(table.schema, sink), *changed_types(table.schema, sink, graph, derived)]
    if problems:
        row |= {"verdict": NEW_TABLE, "detail": "; ".join(problems)}
