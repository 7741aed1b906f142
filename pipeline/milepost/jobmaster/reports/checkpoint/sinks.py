"""Sink details tell what an epoch published to a sink, where its table is, and when it had it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.epoch.iso_times import iso_ms
from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobmaster.reports.checkpoint.log_search import confirmations_after
from milepost.jobmaster.reports.checkpoint.subtasks import Spread, SubtaskDetails, Subtasks, spreads
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.storage.log.manifest_log import ManifestLog

_SOON = 3
"""Entries per sink behind a completion that are searched for when each of them had it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDetails:
    """What one epoch published to a sink.

    Attributes:
        table: where it is, as the spec says it.
        rows: that it adds, deletes among them. files, bytes: that its subtasks wrote for it.
        table_rows, table_files: of the whole table afterwards; None where the epoch was refused before.
        commit: the number that its commit to the table carries.
        confirmed: when the log says that the table has it; None: not yet, or not known any more.
    """

    table: str | None
    rows: int
    files: int
    bytes: int
    table_rows: int | None
    table_files: int | None
    commit: int
    confirmed: str | None
    subtasks: tuple[SubtaskDetails, ...]
    spread: Mapping[str, Spread]


def sink_confirmation_times(log: ManifestLog, newest: int, checkpoint: CompletedCheckpoint) -> Mapping[str, int]:
    """Return when each sink had a retained checkpoint, by the job store's clock; reads the entries that follow it.

    Args:
        newest: version of the head.
    """
    return confirmations_after(log, checkpoint, newest, _SOON * (1 + len(checkpoint.sinks)))


def sink_details(
    checkpoint: CompletedCheckpoint, metadata: CheckpointMetadata, subtasks: Subtasks, confirmed: Mapping[str, int]
) -> dict[str, SinkDetails]:
    """Return what a retained checkpoint published, by sink.

    Args:
        confirmed: as `sink_confirmation_times` returns it.
    """
    return {name: _details(checkpoint, metadata, name, subtasks, confirmed.get(name)) for name in metadata.sinks}


def _details(
    checkpoint: CompletedCheckpoint,
    metadata: CheckpointMetadata,
    name: str,
    subtasks: Subtasks,
    confirmed_ms: int | None,
) -> SinkDetails:
    contents, staged = metadata.tables.get(name), subtasks.of_sink(name)
    return SinkDetails(
        table=None if contents is None else str(contents.address),
        rows=metadata.sinks[name].rows,
        files=sum(one.files or 0 for one in staged),
        bytes=sum(one.bytes or 0 for one in staged),
        table_rows=None if contents is None else contents.rows,
        table_files=None if contents is None else contents.files,
        commit=checkpoint.version,
        confirmed=None if confirmed_ms is None else iso_ms(confirmed_ms),
        subtasks=staged,
        spread=spreads(staged),
    )
