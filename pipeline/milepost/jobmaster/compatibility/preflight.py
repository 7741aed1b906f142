"""The pre-flight compares spec and code with the state they are to continue, operator by operator.

Each operator of the spec is restored, converted (columns added, wider, or left behind), new, or refused; one that is
gone from the spec is dropped. Sources, sinks and the job are told alike. `lint` shows it, `run` prints it when spec or
code differ from the head's, and nothing is planned while anything is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from milepost.epoch.dimensions import DimensionSnapshot, read_as
from milepost.epoch.metadata import CheckpointMetadata, OperatorSnapshot
from milepost.epoch.plan import are_continued, other_tables
from milepost.errors import InvalidRequest
from milepost.jobmaster.compatibility.advice import advice
from milepost.jobmaster.compatibility.expected_operators import expected_operator
from milepost.jobmaster.compatibility.filled_sinks import filled_sinks, seeded_operators
from milepost.jobmaster.compatibility.non_restored_state import (
    LOST_STATE,
    SOURCE_POSITION_KEPT,
    renamed_operators,
)
from milepost.jobmaster.compatibility.rows_in_flight import refusals
from milepost.jobmaster.compatibility.table_columns import changed_types, missing_columns
from milepost.jobmaster.compatibility.table_locations import (
    OTHER_TABLE,
    OTHER_TABLE_OR_MIGRATION,
    check_locations,
    resolved_path_note,
)
from milepost.jobmaster.job.code import JobCode, LoadedCode
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.graph.compatibility import (
    BEGINS_EMPTY,
    COMPATIBLE,
    NEW_TABLE,
    NEW_TABLE_OR_BACKFILL,
    NEW_UID,
    NON_RESTORED,
    REMOVED,
    RENAMED_FROM,
    UNCHANGED,
    compare_signatures,
    retimed_sources,
    state_signatures,
)
from milepost.jobspec.graph.graph import JobGraph
from milepost.jobspec.job.operators.lookup import LookupOperator
from milepost.jobspec.job.source_spec import SourceSpec
from milepost.jobspec.job.spec import JobSpec, RowWiseSpec
from milepost.jobspec.load.load import from_text
from milepost.operators.contract import StatefulOperator
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.sinks.records.table_address import may_go
from milepost.state.runs.evolution import SchemaChange, compare_schemas

RESTORED, CONVERTED, NEW, DROPPED, REFUSED = "restored", "converted", "new", "dropped", "refused"

CHANGED = "changed"
"""Of a source, or of SQL, that makes other rows of the same input now, or times them otherwise."""

_OLD_ROWS = "what was read by then stays as it was made, unless a backfill reads it again"

Tell = Callable[[list[dict[str, str]]], None]
"""Gets the report of a spec or code that differs from the head's, before anything is planned."""


def preflight(
    context: JobContext,
    base: CheckpointMetadata | None,
    loaded: LoadedCode | None,
    *,
    allow_non_restored_state: bool = False,
) -> list[dict[str, str]]:
    """Return one row per operator, source, sink and the job, in the order of the spec, then what is gone from it.

    Args:
        base: the checkpoint to continue, with the names of the spec (`JobContext.base_metadata`); None: none.
        loaded: None: no class of a process operator was loaded; what depends on one is not judged.
        allow_non_restored_state: state that nothing restores may be left behind.
    Returns:
        ``{"kind", "name", "uid", "outcome", "verdict", "detail"}``; [] without a checkpoint. At the end a row for each
        source and SQL that is another one now, which stops nothing.
    """
    if base is None:
        return []
    graph = context.graph if loaded is None else loaded.graph
    recorded, signatures = _recorded(base, graph), state_signatures(context.job.spec, graph)
    rows = compare_signatures(recorded, signatures)
    order = [node.uid for node in graph.stateful]
    renamed = renamed_operators(recorded.get("operators", {}), signatures["operators"], order)
    stuck = refusals(context.job.spec, base, graph, loaded)
    retimed = retimed_sources(recorded, signatures)
    filled, begin = filled_sinks(base, graph), seeded_operators(base, graph)
    for row in rows:
        outcome = RESTORED
        if row["detail"] == BEGINS_EMPTY:
            outcome = NEW
        elif row["detail"].endswith(REMOVED):
            outcome = DROPPED
            _left_behind(row, recorded, renamed)
        if row["kind"] == "operator":
            outcome = _operator(row, outcome, context, base, graph, loaded)
            if row["verdict"] == COMPATIBLE and row["name"] in stuck:
                row |= {"verdict": NEW_UID, "detail": stuck[row["name"]].full_message()}
        elif row["kind"] == "sink" and outcome == RESTORED:
            _sink(row, context, base, graph)
        elif row["kind"] == "source" and row["verdict"] == NEW_UID:
            row["detail"] += resolved_path_note(context, base.signatures["sources"][row["name"]]["root"])
        elif row["kind"] == "source" and row["name"] in retimed:
            outcome, row["detail"] = CHANGED, f"{retimed[row['name']]}: its watermark begins anew; {_OLD_ROWS}"
        if row["kind"] == "sink" and row["name"] in filled and row["verdict"] == COMPATIBLE:
            row["detail"] = f"the next epoch publishes every key of {graph.sink_inputs[row['name']].uid} to it"
        if row["kind"] == "operator" and row["name"] in begin and row["detail"] == BEGINS_EMPTY:
            read = [name for name in graph.nodes[row["name"]].inputs if graph.nodes[name].retracts]
            row["detail"] = f"begins with the rows that {' and '.join(read)} has now"
        accepted = row["verdict"] == COMPATIBLE or (row["verdict"] == NON_RESTORED and allow_non_restored_state)
        row["outcome"] = outcome if accepted else REFUSED
    return [*rows, *_other_rules(context, base)]


def _recorded(base: CheckpointMetadata, graph: JobGraph) -> dict[str, Any]:
    """Return the signatures to compare with: of sinks that were gone already, those alone that come back."""
    sinks = base.signatures.get("sinks", {})
    return {
        **base.signatures,
        "sinks": {name: sink for name, sink in sinks.items() if name in base.sinks or name in graph.sink_inputs},
        "job": {"job": {"max_parallelism": base.max_parallelism}},
    }


def _rules_of(operator: RowWiseSpec) -> dict[str, Any]:
    """Return what an operator makes of its input, as its spec has it."""
    return operator.model_dump(mode="json", exclude={"uid", "inputs"})


def _other_rules(context: JobContext, base: CheckpointMetadata) -> Iterator[dict[str, str]]:
    """A row for each source, SQL and lookup that makes other rows of the same input now: compatible, easily missed."""
    if base.spec_hash == context.job.spec_hash:
        return
    try:
        before = from_text(base.spec_text, context.job.path).spec
    except InvalidRequest:  # a spec of another version: what it made of its input is not known
        return
    now = context.job.spec
    former = {one.uid: _rules_of(one) for one in before.operators if isinstance(one, RowWiseSpec)}
    found: list[tuple[str, str, str, str]] = [
        (one.kind, one.uid, one.uid, "its SQL" if one.kind == "sql" else "how it looks up")
        for one in now.operators
        if isinstance(one, RowWiseSpec) and former.get(one.uid, _rules_of(one)) != _rules_of(one)
    ]
    for name, source in now.sources.items():
        if name not in before.sources:
            continue
        if before.sources[name].options != source.options:
            found.append(("source", name, f"source {name}", "how it reads its objects"))
        elif _is_reordered(before.sources[name], base.dimensions.get(name), source):
            found.append(("source", name, f"source {name}", f"the order of its columns{_tied_lookups(now, name)}"))
    for kind, name, uid, what in found:
        detail = f"{what} was another one at checkpoint {base.checkpoint_id}: {_OLD_ROWS}"
        yield {"kind": kind, "name": name, "uid": uid, "verdict": COMPATIBLE, "detail": detail, "outcome": CHANGED}


def _is_reordered(before: SourceSpec, held: DimensionSnapshot | None, now: SourceSpec) -> bool:
    """Return whether a source has columns in another order than at a checkpoint.

    Args:
        held: of a static source what was looked up in. It records how that was read, whatever the spec said.
    """
    orders = [[*one.columns, *one.partitions] for one in (before, now)]
    former, current = [[name for name in order if all(name in other for other in orders)] for order in orders]
    same = all(getattr(before, key) == getattr(now, key) for key in ("format", "columns", "partitions"))
    return former != current or (same and held is not None and held.read_as != read_as(now))


def _tied_lookups(spec: JobSpec, source: str) -> str:
    """Return, as a clause, the lookups that choose among equal rows of a static source by the order of its columns."""
    lookups = [one for one in spec.operators if isinstance(one, LookupOperator)]
    tied = [one.uid for one in lookups if one.dimension == source and one.order_by]
    return f", which breaks ties of {' and '.join(tied)}," if tied else ""


def report_lines(report: list[dict[str, str]]) -> list[str]:
    """Return the report as people read it, one line each; what did not change is counted."""
    lines = ["spec or code differ from the head's; what is continued:"]
    for row in report:
        if row["detail"] != UNCHANGED:
            need = f", {row['verdict']}" if row["outcome"] == REFUSED else ""
            lines.append(f"  {row['uid']}: {row['outcome']}{need}: {row['detail']}")
    same = [row["uid"] for row in report if row["detail"] == UNCHANGED and row["kind"] != "job"]
    return [*lines, f"  restored unchanged: {', '.join(same)}"] if same else lines


def check_compatible(
    context: JobContext,
    base: CheckpointMetadata | None,
    code: JobCode,
    loaded: LoadedCode,
    *,
    allow_non_restored_state: bool = False,
    tell: Tell | None = None,
    rebuild: bool = True,
    again: str | None = None,
) -> bool:
    """Refuse a spec whose state, or whose functions' state, is not that of the checkpoint to continue.

    Returns: whether the next epoch leaves state behind. Raises: InvalidRequest.
    Args:
        allow_non_restored_state: state that nothing restores, and positions of sources that are gone, may be left.
        tell: gets the report, refused or not, when spec or code are not those of the checkpoint.
        rebuild, again: as `advice` takes them.
    """
    if base is None:
        return False
    check_locations(context, base)
    report = preflight(context, base, loaded, allow_non_restored_state=allow_non_restored_state)
    if tell is not None and (base.spec_hash, base.code_hash) != (context.job.spec_hash, code.hash):
        tell(report)
    stuck = refusals(context.job.spec, base, loaded.graph, loaded)  # these have hints of their own
    refused = [row for row in report if row["outcome"] == REFUSED and row["name"] not in stuck]
    if refused:
        raise InvalidRequest(
            f"job {context.spec.name}: the spec does not fit checkpoint {base.checkpoint_id}: "
            f"{'; '.join(mismatches(refused))}. "
            "Nothing was written.",
            hint=advice(context.spec, loaded.graph, refused, rebuild=rebuild, again=again),
            preflight=report,
            reason=CheckpointFailureReason.SPEC_REFUSED.value,
        )
    return any(row["verdict"] == NON_RESTORED for row in report)


def mismatches(report: list[dict[str, str]]) -> list[str]:
    """Return what of a report the next epoch would refuse, for people, a text for each row."""
    return [f"{row['uid']}: {row['verdict']} ({row['detail']})" for row in report if row["outcome"] == REFUSED]


def _left_behind(row: dict[str, str], recorded: Mapping[str, Any], renamed: Mapping[str, str]) -> None:
    """Complete the row of a removed operator or source: what would be forgotten, and its likely new name."""
    if row["kind"] == "source":
        row["detail"] += f"; {SOURCE_POSITION_KEPT}"
    elif row["kind"] == "operator":
        if row["name"] in renamed:
            row["renamed_to"] = renamed[row["name"]]
            row["detail"] += f"; operator {row['renamed_to']} continues it with `renamed_from: {row['name']}`"
        row["forgets"] = LOST_STATE[recorded["operators"][row["name"]]["kind"]]
        row["detail"] += f"; --allow-non-restored-state forgets {row['forgets']}"


def _operator(
    row: dict[str, str],
    outcome: str,
    context: JobContext,
    base: CheckpointMetadata,
    graph: JobGraph,
    loaded: LoadedCode | None,
) -> str:
    """Judge the columns of an operator's state; complete its row."""
    uid = row["name"]
    spec = None if uid not in graph.nodes else context.job.spec.operator(uid)
    if spec is None or isinstance(spec, RowWiseSpec) or row["verdict"] != COMPATIBLE:
        return outcome
    if outcome == NEW:
        if spec.renamed_from is not None:
            detail = f"checkpoint {base.checkpoint_id} has no state of {spec.renamed_from}, which it is renamed from"
            row |= {"verdict": NON_RESTORED, "detail": f"{detail}: begins empty"}
        return outcome
    origin = base.signatures["operators"][uid].get(RENAMED_FROM)
    notes = [] if origin is None else [f"renamed from {origin}"]
    snapshot = base.operators.get(uid)
    if snapshot is not None:
        recorded = {name: table.schema for name, table in snapshot.tables.items()}
        operator = expected_operator(recorded, spec, graph, loaded)
        if operator is None:
            notes.append("its columns are compared by `run`, which loads the classes of process operators")
            changes = []
        elif not are_continued(snapshot.tables, operator.tables):
            row |= {"verdict": NEW_UID, "detail": "; ".join([*notes, other_tables(snapshot.tables, operator.tables)])}
            return outcome
        else:
            changes = _changes(snapshot, operator)
            if snapshot.tables.keys() != operator.tables.keys():
                row["verdict"] = NON_RESTORED
                notes.append("no operator reads its updates any more: the rows that it has put out are left behind")
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
                notes.append("a column that only got another name would begin empty")
    row["detail"] = "; ".join(notes) or UNCHANGED
    return outcome


def _changes(snapshot: OperatorSnapshot, operator: StatefulOperator) -> list[SchemaChange]:
    """Return how each table of recorded state becomes the operator's."""
    return [
        compare_schemas(snapshot.tables[name].schema, table.schema, table.key, table.tie_break)
        for name, table in operator.tables.items()
    ]


def _sink(row: dict[str, str], context: JobContext, base: CheckpointMetadata, graph: JobGraph) -> None:
    """Refuse a sink whose table is elsewhere, or cannot take the rows that it would get now, as far as is known."""
    sink = graph.sink_inputs[row["name"]]
    before = base.tables.get(row["name"])
    said = context.sink_address(row["name"])
    here = said.format, context.sink_location(row["name"])
    if before is not None and before.address != said and (before.address.format, before.location) != here:
        lines = "; ".join(before.address.spec_lines())
        detail = f"its table is of {before.address}, the spec says {said}: write {lines}"
        if before.address.format == said.format:  # else it was migrated: its path is another one for that
            detail += resolved_path_note(context, before.address.path)
        goes = may_go(before.address.format, said.format)
        row |= {"verdict": OTHER_TABLE_OR_MIGRATION if goes else OTHER_TABLE, "detail": detail}
        return
    if before is None:
        return
    if before.rows and sink.mode == "upsert" and graph.keyed_by(sink.uid) not in base.signatures["operators"]:
        uid = graph.keyed_by(sink.uid)
        detail = f"its table has rows of {uid} as it was before, and {uid} begins empty"
        row |= {"verdict": NEW_TABLE_OR_BACKFILL, "detail": detail}
        return
    if not sink.columns_known:
        return
    problems = [*missing_columns(before.schema, sink), *changed_types(before.schema, sink, graph)]
    if problems:
        row |= {"verdict": NEW_TABLE, "detail": "; ".join(problems)}
