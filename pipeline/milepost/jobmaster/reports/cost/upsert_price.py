"""The price of upsert: what one table of the latest rows costs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UpsertPrice:
    """What one table of the latest rows costs.

    Attributes:
        files, table_bytes: of the head's table. epochs: of which the figures are, the newest; 0: none is known.
        files_per_epoch, written_bytes_per_epoch: that one of them wrote; changed_bytes_per_epoch: of the rows that it
            changed, by the table's own bytes per row.
        epochs_per_day: by the cron expression, else by when those epochs were triggered; None: not known,
            they followed one another within an hour.
        by_schedule: which of the two.
        written_bytes_per_day: None: not known.
        kept_bytes: of the table and what retained checkpoints keep besides, once as many are retained as the spec says.
        advice: what would be cheaper; None: nothing, or it costs little.
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
