"""The report about the cost of an upsert table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UpsertPrice:
    """Storage and write volume of one upsert table.

    Attributes:
        files, table_bytes: of the head's table. epochs: number of newest epochs that the figures are based on.
        files_per_epoch, written_bytes_per_epoch: average per epoch. changed_bytes_per_epoch: of the changed rows, at
            the table's average bytes per row.
        epochs_per_day: by the cron expression, else by the triggers of those epochs; None: unknown, because they were
            triggered within one hour.
        by_schedule: whether by the cron expression.
        written_bytes_per_day: None: unknown.
        kept_bytes: of the table and the files that only retained checkpoints need, at the spec's retention.
        advice: a cheaper alternative; None: there is none, or the table costs little.
    """

    sink: str
    files: int
    table_bytes: int
    epochs: int
    files_per_epoch: int
    written_bytes_per_epoch: int
    changed_bytes_per_epoch: int
    epochs_per_day: float | None
    by_schedule: bool
    written_bytes_per_day: int | None
    kept_bytes: int
    advice: str | None
