"""Move the state of renamed operators to their new uids, and sources to the names that read their logs.

Stored objects do not change. Runs keep their location, and the next checkpoint refers to them under the new uid. Once a
checkpoint has state of the new uid, `renamed_from` only documents its origin and has no effect. The log of a renamed
source stays where it is: its snapshot has the name under which it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from milepost.epoch.metadata import CheckpointMetadata, OperatorSnapshot
from milepost.jobspec.graph import RENAMED_FROM, with_queries_of, with_rows_of, with_source_names, with_updates_of
from milepost.jobspec.job import JobSpec
from milepost.jobspec.sql import former_uids
from milepost.operators.base import RowWiseSpec


def renames(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield (former uid, uid) of each renamed operator, the newest former uid first.

    A checkpoint before several renames of a statement has the oldest one.
    """
    for operator in spec.operators:
        if not isinstance(operator, RowWiseSpec) and operator.renamed_from is not None:
            formers = dict.fromkeys([operator.renamed_from, *former_uids(operator.uid, spec.renamed)])
            yield from ((former, operator.uid) for former in formers)


def with_names_of(
    spec: JobSpec, metadata: CheckpointMetadata, logs: Mapping[str, str] | None = None
) -> CheckpointMetadata:
    """Return the checkpoint with its operators and landed sources under their names in the spec.

    Args:
        logs: name under which the log of each landed source is stored; None: sources keep their names.
    """
    metadata = with_readers_of(metadata, logs or {}, spec)
    before: Mapping[str, Any] = metadata.signatures.get("operators", {})
    recorded = renamed_signatures(spec, before)
    if recorded == before:
        return metadata
    uids = {one[RENAMED_FROM]: uid for uid, one in recorded.items() if RENAMED_FROM in one}
    operators = {uids.get(uid, uid): _renamed(one, uids.get(uid, uid)) for uid, one in metadata.operators.items()}
    sinks: dict[str, Any] = dict(metadata.signatures.get("sinks", {}))
    for former, uid in uids.items():
        sinks = {name: with_rows_of(sink, former, uid) for name, sink in sinks.items()}
    signatures = {**metadata.signatures, "operators": recorded, "sinks": sinks}
    return replace(metadata, operators=operators, signatures=signatures)


def renamed_signatures(spec: JobSpec, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded signatures of operators, with the names that operators and what they read have in the spec.

    A signature that was recorded under a former uid has it as RENAMED_FROM.
    """
    signatures = dict(recorded)
    for former, uid in renames(spec):
        if uid not in signatures and former in signatures:
            signatures[uid] = {**signatures.pop(former), RENAMED_FROM: former}
            signatures = {name: with_updates_of(one, former, uid) for name, one in signatures.items()}
    if not spec.renamed:
        return signatures
    formers = {operator.uid: former_uids(operator.uid, spec.renamed) for operator in spec.operators}
    names = {uid: one.get(RENAMED_FROM, uid) for uid, one in signatures.items()}
    return {uid: with_queries_of(spec, one, formers, names) for uid, one in signatures.items()}


def with_readers_of(metadata: CheckpointMetadata, logs: Mapping[str, str], spec: JobSpec) -> CheckpointMetadata:
    """Return the checkpoint with each landed source under the name of the source that reads its log now.

    Example: the checkpoint has `clicks`, and the log that is stored as `clicks` belongs to `events`. The snapshot of
    `clicks` becomes that of `events`, with `stored_as: clicks`.

    Args:
        logs: name under which the log of each landed source is stored.
    """
    names: dict[str, str] = {}
    for former, item in metadata.sources.items():
        log = item.stored_as or former
        readers = [name for name, stored_as in logs.items() if stored_as == log]
        if readers and former not in readers and former not in spec.files:
            names[former] = readers[0]
    if not names:
        return metadata
    sources = {name: item for name, item in metadata.sources.items() if name not in names}
    recorded: dict[str, Any] = dict(metadata.signatures.get("sources", {}))
    signatures = {name: item for name, item in recorded.items() if name not in names}
    for former, name in names.items():
        item = metadata.sources[former]
        log = item.stored_as or former
        sources[name] = replace(item, stored_as=None if log == name else log)
        if former in recorded:
            signatures[name] = {**recorded[former], RENAMED_FROM: former}
    operators = {
        uid: with_source_names(operator, names) for uid, operator in metadata.signatures.get("operators", {}).items()
    }
    return replace(
        metadata,
        sources=sources,
        signatures={**metadata.signatures, "sources": signatures, "operators": operators},
    )


def _renamed(snapshot: OperatorSnapshot, uid: str) -> OperatorSnapshot:
    tables = {
        name: replace(table, handles=tuple(replace(handle, uid=uid) for handle in table.handles))
        for name, table in snapshot.tables.items()
    }
    return replace(snapshot, tables=tables)
