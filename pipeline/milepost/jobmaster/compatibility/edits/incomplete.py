"""Record which statements lack rows, and since which checkpoint."""

from __future__ import annotations

from dataclasses import replace

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.compatibility.edits.verdicts import query_edits
from milepost.jobspec.graph import RENAMED_FROM, JobGraph, reads_statement, statement_of
from milepost.jobspec.job import JobSpec

INCOMPLETE = "incomplete"
"""Section of a checkpoint's signatures: operator, or "sink NAME" -> the checkpoint before which rows are missing."""


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
