"""Move the state of renamed operators to their new uids (`renamed_from`).

Stored objects do not change. Runs keep their location, and the next checkpoint refers to them under the new uid. Once a
checkpoint has state of the new uid, `renamed_from` only documents its origin and has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from milepost.epoch.metadata import CheckpointMetadata, OperatorSnapshot
from milepost.jobspec.graph import RENAMED_FROM, with_rows_of, with_updates_of
from milepost.jobspec.job import JobSpec
from milepost.operators.base import RowWiseSpec


def renames(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield (former uid, uid) of each renamed operator."""
    for operator in spec.operators:
        if not isinstance(operator, RowWiseSpec) and operator.renamed_from is not None:
            yield operator.renamed_from, operator.uid


def with_names_of(spec: JobSpec, metadata: CheckpointMetadata) -> CheckpointMetadata:
    """Return the checkpoint with its operators under their uids in the spec."""
    operators = dict(metadata.operators)
    recorded: dict[str, Any] = dict(metadata.signatures.get("operators", {}))
    sinks: dict[str, Any] = dict(metadata.signatures.get("sinks", {}))
    for former, uid in renames(spec):
        if uid not in recorded and former in recorded:
            recorded[uid] = {**recorded.pop(former), RENAMED_FROM: former}
            if former in operators:
                operators[uid] = _renamed(operators.pop(former), uid)
            recorded = {name: with_updates_of(one, former, uid) for name, one in recorded.items()}
            sinks = {name: with_rows_of(sink, former, uid) for name, sink in sinks.items()}
    if recorded.keys() == metadata.signatures.get("operators", {}).keys():
        return metadata
    signatures = {**metadata.signatures, "operators": recorded, "sinks": sinks}
    return replace(metadata, operators=operators, signatures=signatures)


def _renamed(snapshot: OperatorSnapshot, uid: str) -> OperatorSnapshot:
    tables = {
        name: replace(table, handles=tuple(replace(handle, uid=uid) for handle in table.handles))
        for name, table in snapshot.tables.items()
    }
    return replace(snapshot, tables=tables)
