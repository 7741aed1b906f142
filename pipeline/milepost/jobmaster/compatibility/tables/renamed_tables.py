"""Tables of renamed statements, which keep their first name."""

from __future__ import annotations

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.compatibility.recorded_spec import recorded_spec
from milepost.jobspec.job import JobSpec
from milepost.jobspec.sql import first_name

NEEDS_RENAMED = "needs the former names of its statement"


def describe_renamed_table(row: dict[str, str], spec: JobSpec, base: CheckpointMetadata) -> None:
    """Refuse a new table of a statement that has one under a former name. Completes its pre-flight row.

    Example: after `renamed: {b: a}`, statement b has table a. With `renamed: {c: b}` alone, c would have a new table b,
    and table a would be dropped.
    """
    before = recorded_spec(base)
    statement = next(sink.input for sink in spec.sinks if sink.name == row["name"])
    former = spec.renamed.get(statement, statement)
    if before is None or former not in before.statements or row["name"] != first_name(statement, spec.renamed):
        return
    table = first_name(former, before.renamed)
    shown = any((sink.name, sink.input) == (table, former) for sink in before.sinks)
    if shown and table not in {sink.name for sink in spec.sinks}:
        entries = [f"{name}: {older}" for name, older in ((statement, former), (former, table)) if name != older]
        row |= {
            "verdict": NEEDS_RENAMED,
            "detail": f"the rows of statement {former} are in table {table}, which would be dropped",
            "renamed": f"renamed: {{{', '.join(entries)}}}",
        }
