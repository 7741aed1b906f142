"""Recovery steps for a spec that does not fit the head, each with the command to type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milepost.jobmaster.compatibility.source_changes import changed_sources
from milepost.jobmaster.compatibility.tables import (
    OTHER_TABLE,
    OTHER_TABLE_OR_MIGRATION,
    can_be_filled,
    migration_command,
)
from milepost.jobspec.graph import (
    FROM_NOW_ON,
    NEW_TABLE,
    NEW_TABLE_OR_BACKFILL,
    NEW_UID,
    NON_RESTORED,
    JobGraph,
    statement_of,
)
from milepost.jobspec.job import JobSpec

Row = dict[str, str]


def advice(
    spec: JobSpec,
    graph: JobGraph,
    refused: Sequence[Row],
    *,
    can_rebuild: bool = True,
    retry_command: str | None = None,
) -> str:
    """Return the recovery steps that resolve at least one refused row of a pre-flight report.

    Args:
        can_rebuild: whether a backfill could rebuild the job's state from recorded input.
        retry_command: the command that was refused; None: `milepost run`.
    """
    return "; or ".join(_steps(spec, graph, refused, can_rebuild, retry_command or f"milepost run {spec.name}"))


def _steps(
    spec: JobSpec, graph: JobGraph, refused: Sequence[Row], can_rebuild: bool, retry_command: str
) -> Iterator[str]:
    non_restored = [row for row in refused if row["verdict"] == NON_RESTORED]
    renamed = [row for row in non_restored if row["kind"] == "operator" and "renamed_to" in row]
    renamed += [{**row, "renamed_to": row["name"], "name": row["former"]} for row in refused if "former" in row]
    changed_operators = [row["name"] for row in refused if row["kind"] == "operator" and row["verdict"] == NEW_UID]
    moved_sinks = [row for row in refused if row["verdict"] in (OTHER_TABLE, OTHER_TABLE_OR_MIGRATION)]
    new_tables = [row["name"] for row in refused if row["verdict"] == NEW_TABLE]
    changed_rows = [row["name"] for row in refused if row["verdict"] == NEW_TABLE_OR_BACKFILL]
    if renamed:
        yield f"if {_renamed_text(spec, renamed)}: its state continues"
    yield from (f"write `{row['renamed']}` in the spec: the table continues" for row in refused if "renamed" in row)
    yield from changed_sources(refused)
    recompiled = [row["recompiled"] for row in refused if "recompiled" in row]
    if recompiled:
        show = f"milepost show {spec.name} {recompiled[0]} --spec"
        file = f"{spec.name}.compiled"
        yield f"continue with the recorded steps: save the spec that {show} prints as {file}, add `compiled: {file}`"
    if len(recompiled) < len(refused):
        is_moved = len(moved_sinks) == len(refused)
        yield "restore the lines of the current table in the sink" if is_moved else "undo the change"
    for row in moved_sinks:
        if row["verdict"] == OTHER_TABLE_OR_MIGRATION:
            yield f"undo the change, then move the table: {migration_command(spec, row['name'])}"
    if any(row["kind"] == "source" and row["verdict"] == NEW_UID for row in refused):
        yield "give the changed source a new name: its recorded position does not apply to another path"
    statements = list(dict.fromkeys(filter(None, (statement_of(spec, name) for name in _names(graph, refused)))))
    noun = f"statement{'s' * (len(statements) > 1)} {', '.join(statements)}"
    lacking = [row for row in refused if row["verdict"] == FROM_NOW_ON]
    rebuildable = bool(changed_operators or changed_rows or lacking or any(row["kind"] == "job" for row in refused))
    if can_rebuild and rebuildable:
        renamed_tables = f"{noun} a new name" if statements else f"{_sinks(new_tables)} a new name and path"
        first = f"give {renamed_tables}, then " if new_tables else ""
        yield f"rebuild all state from the recorded input: {first}milepost backfill {spec.name} --from-checkpoint 0"
    changelogs = [row["name"] for row in refused if _begins_anew(graph, row)]
    if len(changelogs) == len(refused):
        renamed_sinks = f"give {_sinks(changelogs)} a new name and path"
        yield f"begin a new table with all current rows: {renamed_sinks}, then {retry_command}"
        if len(lacking) == len(refused):
            yield f"let {_sinks(changelogs)} continue without deletes of the former rows: {retry_command} --from-now-on"
        return
    if lacking and all(row["verdict"] in (FROM_NOW_ON, NON_RESTORED) for row in refused):
        others = [row["uid"] for row in lacking if all(statement_of(spec, one) is None for one in _names(graph, [row]))]
        lack = " and ".join([*([noun] if statements else []), *others])
        discards = " --allow-non-restored-state" if non_restored else ""
        yield (
            f"let {lack} lack these rows: {retry_command} --from-now-on{discards}, and a table does not equal "
            "its query until a backfill"
        )
        return
    if statements:
        if new_tables and not changed_operators:
            yield "keep the columns of the table, and their types by CAST"
            yield f"begin a new table: give {noun} a new name"
        if changed_operators or changed_rows:
            yield (
                f"begin new tables with the rows that arrive from now on: give {noun} a new name, then {retry_command} "
                "--from-now-on --allow-non-restored-state, which discards the state under the old name"
            )
        return
    if changed_operators:
        latest_row_sinks = (
            name
            for name, rows in graph.sink_inputs.items()
            if _publishes_state_of(graph, rows.mode, rows.uid, changed_operators)
        )
        sinks_to_rename = list(dict.fromkeys([*new_tables, *changed_rows, *latest_row_sinks]))
        sinks = f" and {_sinks(sinks_to_rename)} a new name and path" if sinks_to_rename else ""
        operators = f"operator{'s' * (len(changed_operators) > 1)} {', '.join(changed_operators)}"
        yield (
            f"start with empty state: give {operators} a new uid{sinks}, then "
            f"{retry_command} --allow-non-restored-state, which discards the state under the old uid"
        )
        return
    sinks_to_rename = [*new_tables, *changed_rows, *(row["name"] for row in moved_sinks)]
    first = f"give {_sinks(sinks_to_rename)} a new name and path, then " if sinks_to_rename else ""
    if non_restored and all(row["kind"] == "source" for row in non_restored):
        is_renamed = any("renamed_to" in row for row in non_restored)
        what, again = ("its position", ", which reads everything again") if is_renamed else ("the source", "")
        yield f"continue without {what}: {first}{retry_command} --allow-non-restored-state{again}"
    elif non_restored:
        forgotten = "; ".join(dict.fromkeys(row["forgets"] for row in non_restored if "forgets" in row))
        forgets = f", which discards {forgotten}" if forgotten else ""
        yield f"discard the state permanently: {first}{retry_command} --allow-non-restored-state{forgets}"
    elif sinks_to_rename:
        yield f"start a new table: {first}{retry_command}"


def _renamed_text(spec: JobSpec, renamed: Sequence[Row]) -> str:
    """Return which renames would explain removed operators, and what to write then."""
    queries = {}
    for row in renamed:
        if statement_of(spec, row["renamed_to"]) is not None:
            name, former = (uid.split("__") for uid in (row["renamed_to"], row["name"]))
            own = 2 if len(name) > 2 and len(former) > 2 and name[1] != former[1] else 1
            queries[".".join(name[:own])] = ".".join(former[:own])
    if queries:
        entries = ", ".join(f"{name}: {former}" for name, former in queries.items())
        return f"the query was only renamed, write `renamed: {{{entries}}}` in the spec"
    lines = "; ".join(f"write `renamed_from: {row['name']}` at operator {row['renamed_to']}" for row in renamed)
    return f"the operator was only renamed, {lines}"


def _begins_anew(graph: JobGraph, row: Row) -> bool:
    """Return whether a refused row is of a changelog that could begin with all current rows under another name."""
    rows = graph.sink_inputs.get(row["name"]) if row["kind"] == "sink" else None
    is_edited = row["verdict"] in (FROM_NOW_ON, NEW_TABLE_OR_BACKFILL)
    return rows is not None and is_edited and rows.mode == "changelog" and can_be_filled(rows, graph)


def _names(graph: JobGraph, refused: Sequence[Row]) -> Iterator[str]:
    """Yield the nodes of refused operators and sinks."""
    for row in refused:
        if row["kind"] == "operator":
            yield row["name"]
        elif row["kind"] == "sink" and row["name"] in graph.sink_inputs:
            yield graph.sink_inputs[row["name"]].uid


def _publishes_state_of(graph: JobGraph, mode: str, uid: str, operators: Sequence[str]) -> bool:
    return mode == "upsert" and graph.keyed_by(uid) in operators


def _sinks(names: Sequence[str]) -> str:
    return f"sink{'s' * (len(names) > 1)} {', '.join(names)}"
