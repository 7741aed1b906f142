"""Move the state of renamed operators to their new uids, and sources to their new names (`renamed_from`).

Stored objects do not change. Runs keep their location, and the next checkpoint refers to them under the new uid. Once a
checkpoint has state of the new uid, `renamed_from` only documents its origin and has no effect. The log of a renamed
source stays where it is: its snapshot has the name under which it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from milepost.epoch.metadata import CheckpointMetadata, OperatorSnapshot
from milepost.jobspec.graph import RENAMED_FROM, with_rows_of, with_source_name, with_updates_of
from milepost.jobspec.job import JobSpec
from milepost.operators.base import RowWiseSpec


def renames(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield (former uid, uid) of each renamed operator."""
    for operator in spec.operators:
        if not isinstance(operator, RowWiseSpec) and operator.renamed_from is not None:
            yield operator.renamed_from, operator.uid


def with_names_of(
    spec: JobSpec, metadata: CheckpointMetadata, logs: Mapping[str, str] | None = None
) -> CheckpointMetadata:
    """Return the checkpoint with its operators and landed sources under their names in the spec.

    Args:
        logs: name under which the log of each landed source is stored; None: sources keep their names.
    """
    for name, log in (logs or {}).items():
        if name in spec.landed and name not in metadata.sources:
            metadata = _with_source(metadata, name, log, known=spec.landed)
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


def _with_source(
    metadata: CheckpointMetadata, name: str, log: str, *, known: Mapping[str, object]
) -> CheckpointMetadata:
    """Return the checkpoint with the source that reads a log under a name. known: names that are not renamed."""
    readers = (former for former, item in metadata.sources.items() if (item.stored_as or former) == log)
    former = next((former for former in readers if former not in known), None)
    if former is None:
        return metadata
    sources, signatures = dict(metadata.sources), dict(metadata.signatures)
    sources[name] = replace(sources.pop(former), stored_as=None if log == name else log)
    recorded = dict(signatures.get("sources", {}))
    if former in recorded:
        recorded[name] = {**recorded.pop(former), RENAMED_FROM: former}
    operators = {uid: with_source_name(one, former, name) for uid, one in signatures.get("operators", {}).items()}
    return replace(metadata, sources=sources, signatures=signatures | {"sources": recorded, "operators": operators})


def _renamed(snapshot: OperatorSnapshot, uid: str) -> OperatorSnapshot:
    tables = {
        name: replace(table, handles=tuple(replace(handle, uid=uid) for handle in table.handles))
        for name, table in snapshot.tables.items()
    }
    return replace(snapshot, tables=tables)
