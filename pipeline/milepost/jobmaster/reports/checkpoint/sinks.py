"""Report what an epoch published to each sink, where its table is, and when it was confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.codec import OmitNone
from milepost.epoch import CheckpointMetadata, iso_ms
from milepost.jobmaster.reports.checkpoint.log_search import confirmations_after
from milepost.jobmaster.reports.checkpoint.subtasks import Spread, SubtaskDetails, Subtasks, spreads
from milepost.protocol.records import CompletedCheckpoint
from milepost.storage.log import ManifestLog

_SOON = 3
"""Entries per sink after a completion that are searched for confirmations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDetails:
    """What one epoch published to a sink.

    Attributes:
        table: its address, in the notation of the spec.
        rows: of the commit, including deletes. files, bytes: written by its subtasks.
        rejected_rows: rows that its row rules refused, each counted once: quarantined_rows went to `<sink>.rejected`,
            and dropped_rows to no table. None: it has no such rules.
        table_rows, table_files: of the whole table after the commit; None if the epoch was refused before.
        commit: the number in its commit to the table.
        confirmed: when the log confirmed the commit; None: not yet, or no longer known.
    """

    table: str | None
    rows: int
    rejected_rows: OmitNone[int] = None
    quarantined_rows: OmitNone[int] = None
    dropped_rows: OmitNone[int] = None
    files: int
    bytes: int
    table_rows: int | None
    table_files: int | None
    commit: int
    confirmed: str | None
    subtasks: tuple[SubtaskDetails, ...]
    spread: Mapping[str, Spread]


def sink_confirmation_times(log: ManifestLog, newest: int, checkpoint: CompletedCheckpoint) -> Mapping[str, int]:
    """Return, by sink, when a retained checkpoint was confirmed, in ms by the job store's clock. Reads log entries.

    Args:
        newest: version of the head.
    """
    return confirmations_after(log, checkpoint, newest, _SOON * (1 + len(checkpoint.sinks))).sinks


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
    of, rejected = metadata.sinks[name], metadata.sinks[name].rejected_rows
    quarantined = None if rejected is None else of.quarantined_rows or 0
    contents, staged = metadata.tables.get(name), subtasks.of_sink(name)
    return SinkDetails(
        table=None if contents is None else str(contents.address),
        rows=of.rows,
        rejected_rows=rejected,
        quarantined_rows=quarantined,
        dropped_rows=None if rejected is None else rejected - (quarantined or 0),
        files=sum(share.files or 0 for share in staged),
        bytes=sum(share.bytes or 0 for share in staged),
        table_rows=None if contents is None else contents.rows,
        table_files=None if contents is None else contents.files,
        commit=checkpoint.version,
        confirmed=None if confirmed_ms is None else iso_ms(confirmed_ms),
        subtasks=staged,
        spread=spreads(staged),
    )
