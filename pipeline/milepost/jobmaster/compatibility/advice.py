"""Recovery steps for a spec that does not fit the head, each with the command to type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milepost.jobmaster.compatibility.table_locations import OTHER_TABLE, OTHER_TABLE_OR_MIGRATION, migration_command
from milepost.jobspec.graph.compatibility import NEW_TABLE, NEW_TABLE_OR_BACKFILL, NEW_UID, NON_RESTORED
from milepost.jobspec.graph.graph import JobGraph
from milepost.jobspec.job.spec import JobSpec

Row = dict[str, str]


def advice(
    spec: JobSpec, graph: JobGraph, refused: Sequence[Row], *, rebuild: bool = True, again: str | None = None
) -> str:
    """Return the steps that help with at least one refused row of a report.

    Args:
        rebuild: whether the job has recorded input that a backfill could make its state of.
        again: the command that was refused; None: `milepost run`.
    """
    return "; or ".join(_ways(spec, graph, refused, rebuild, again or f"milepost run {spec.name}"))


def _ways(spec: JobSpec, graph: JobGraph, refused: Sequence[Row], rebuild: bool, again: str) -> Iterator[str]:
    lost = [row for row in refused if row["verdict"] == NON_RESTORED]
    renamed = [row for row in lost if "renamed_to" in row]
    changed = [row["name"] for row in refused if row["kind"] == "operator" and row["verdict"] == NEW_UID]
    moved = [row for row in refused if row["verdict"] in (OTHER_TABLE, OTHER_TABLE_OR_MIGRATION)]
    new_tables = [row["name"] for row in refused if row["verdict"] == NEW_TABLE]
    other_rows = [row["name"] for row in refused if row["verdict"] == NEW_TABLE_OR_BACKFILL]
    if renamed:
        lines = "; ".join(f"write `renamed_from: {row['name']}` at operator {row['renamed_to']}" for row in renamed)
        yield f"if only the name is new, {lines}: its state goes on"
    yield "write in the sink the lines of the table that it has" if len(moved) == len(refused) else "undo the change"
    for row in moved:
        if row["verdict"] == OTHER_TABLE_OR_MIGRATION:
            yield f"undo it, and then move the table: {migration_command(spec, row['name'])}"
    if any(row["kind"] == "source" and row["verdict"] != NON_RESTORED for row in refused):
        yield "give the changed source a new name: what it has read is not known under another path"
    rebuildable = bool(changed or other_rows or any(row["kind"] == "job" for row in refused))
    if rebuild and rebuildable:
        first = f"give {_sinks(new_tables)} a new name and path, then " if new_tables else ""
        yield f"rebuild all state from the recorded input: {first}milepost backfill {spec.name} --from-checkpoint 0"
    if changed:
        latest = (name for name, rows in graph.sink_inputs.items() if _shows(graph, rows.mode, rows.uid, changed))
        with_sinks = list(dict.fromkeys([*new_tables, *other_rows, *latest]))
        sinks = f" and {_sinks(with_sinks)} a new name and path" if with_sinks else ""
        operators = f"operator{'s' * (len(changed) > 1)} {', '.join(changed)}"
        yield (
            f"begin empty from now on: give {operators} a new uid{sinks}, then {again} --allow-non-restored-state, "
            "which forgets the state under the old uid"
        )
        return
    with_sinks = [*new_tables, *other_rows, *(row["name"] for row in moved)]
    first = f"give {_sinks(with_sinks)} a new name and path, then " if with_sinks else ""
    if lost:
        forgotten = "; ".join(dict.fromkeys(row["forgets"] for row in lost if "forgets" in row))
        forgets = f", which forgets {forgotten}" if forgotten else ""
        yield f"leave the state behind for good: {first}{again} --allow-non-restored-state{forgets}"
    elif with_sinks:
        yield f"begin a new table: {first}{again}"


def _shows(graph: JobGraph, mode: str, uid: str, operators: Sequence[str]) -> bool:
    return mode == "upsert" and graph.keyed_by(uid) in operators


def _sinks(names: Sequence[str]) -> str:
    return f"sink{'s' * (len(names) > 1)} {', '.join(names)}"
