"""Read the published table of another job: its newest mark, and its data files in commit order.

It has only published rows: no mark includes rows that are staged, or that a quality gate has vetoed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from milepost.errors import StateCorrupt
from milepost.protocol.landed import Identity, SourceBacklog
from milepost.protocol.records import NO_CHECKPOINT, CheckpointId, ManifestState, ObjectStore, TimelineId
from milepost.sources.landed.milepost.positions import TablePosition
from milepost.sources.landed.tables.reserved_table import require_appends, reservation_at
from milepost.sources.landed.tables.table_failures import TableFailures
from milepost.storage.log import ManifestLog
from milepost.tables.records import (
    ContentsRecords,
    Mark,
    MarkRecords,
    Reservation,
    StagedFile,
    newest_head,
    rows_identity,
    staged_by,
)

_READS = 3
"""Attempts to read a table. One fails if a newer mark replaces the table's mark, which is deleted before it is read."""

_DIGEST_DIGITS = 16


def rows_digest(files: Sequence[StagedFile]) -> str:
    """Return a digest of the rows of some files that does not depend on how they are divided into files.

    It is the end of `rows_identity`: the same sum, modulo 2^64.
    """
    return (rows_identity(files) or "")[-_DIGEST_DIGITS:]


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as of one read.

    Attributes:
        table_id: of the table. reservation: its owner, format and mode.
        job_store: of the job that writes it.
        mark: the mark that it shows; None: it shows none yet. files: in commit order, each with at least one row.
    """

    table_id: str
    reservation: Reservation
    job_store: ObjectStore
    mark: Mark | None
    files: tuple[StagedFile, ...]

    @property
    def identity(self) -> Identity:
        """Identity of the table, which is equal as long as it is the same table of the same job."""
        owner = self.reservation.owner
        return {"format": "milepost", "upstream": owner.identity, "sink": owner.sink, "table": self.table_id}

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def position_after(self, count: int, initial: int = 0) -> TablePosition:
        """Return the position after some of the files. initial: as in `TablePosition`."""
        files = self.files[:count]
        rows, digest = sum(file.rows for file in files), rows_digest(files)
        if self.mark is None:
            return TablePosition(0, "", 0, rows, digest)
        checkpoint = max(map(self._published_by, files), default=NO_CHECKPOINT)
        return TablePosition(self.mark.number, self.mark.timeline, checkpoint, rows, digest, initial)

    def _published_by(self, file: StagedFile) -> CheckpointId:
        """Return a checkpoint that has the rows of a file. A compacted file has only rows of earlier checkpoints."""
        writer = staged_by(file.key)
        if writer is None:
            return self.shown[1]
        return writer[0] if file.rows_of is None else CheckpointId(writer[0] - 1)

    @property
    def shown(self) -> tuple[TimelineId, CheckpointId]:
        """Timeline and checkpoint that the mark shows."""
        if self.mark is None:
            return TimelineId(""), NO_CHECKPOINT
        return TimelineId(self.mark.timeline), CheckpointId(self.mark.checkpoint_id)

    def __str__(self) -> str:
        """Return the mark that it shows, as text."""
        timeline, checkpoint = self.shown
        if self.mark is None:
            return "nothing"
        return f"mark {self.mark.number} (checkpoint {checkpoint} of timeline {timeline})"

    def backlog(self, position: TablePosition) -> SourceBacklog:
        """Return the marks that have rows after a position.

        The job that writes the table deletes old marks, so the actual backlog may be larger and older.
        """
        is_whole = self.mark is None or position.mark != self.mark.number or position.rows == self.rows
        marks = MarkRecords(self.job_store, self.reservation.owner.sink)
        times = marks.published_since(position.mark if is_whole else position.mark - 1)
        age_ms = max(0, self.job_store.clock_ms() - times[0]) if times else 0
        return SourceBacklog(len(times), "mark", age_ms)

    def state(self) -> ManifestState | None:
        """Return the newest state of the job that writes it; None: its storage has no manifest."""
        head = ManifestLog(self.job_store, lambda: "").head()
        return None if head is None else head.state


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads one table.

    Attributes:
        store: rooted at the table. open_job: opens the store of a job, by its name.
    """

    failures: TableFailures
    store: ObjectStore
    open_job: Callable[[str], ObjectStore]

    def read(self) -> PublishedTable:
        """Return the current table. Raises InvalidRequest: it cannot be landed; SourceUnreachable."""
        with self.translated():
            return self._read()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate store errors in the block to errors of the source."""
        try:
            with self.failures.outages():
                yield
        except StateCorrupt as error:
            raise self.failures.invalid(
                f"is damaged: {error.message.rstrip('.')}", "run `milepost fsck` for the job that writes it"
            ) from error

    def _read(self) -> PublishedTable:
        reservation = self._reservation()
        owner = reservation.owner
        job_store = self.open_job(owner.job)
        marks = MarkRecords(job_store, owner.sink)
        number, deleted = 0, None
        for _ in range(_READS):
            table = newest_head(self.store)
            if table is None:
                return PublishedTable(reservation.table_id, reservation, job_store, None, ())
            if deleted is not None and table.number == number:
                raise deleted
            number, mark = table.number, marks.matching(table.number, table.write_id, table.table_id)
            if mark is not None:
                try:
                    files = ContentsRecords(job_store).files(mark.contents)
                except StateCorrupt as error:
                    deleted = error
                else:
                    return PublishedTable(table.table_id, reservation, job_store, mark, files)
        if deleted is not None:
            raise self.failures.unreachable(f"moved on {_READS} times while it was read") from deleted
        raise self.failures.invalid(
            f"shows mark {number} of job {owner.job}, and {job_store.config.url} has no such mark",
            "correct `storage`: it is the `storage` of the job that writes the table",
        )

    def _reservation(self) -> Reservation:
        reservation = reservation_at(self.failures, self.store)
        if reservation is None:
            raise self.failures.invalid(
                "does not exist: nothing there was written by Milepost",
                "correct `path`: it is that of a sink with `format: parquet`, whose first epoch creates the table",
            )
        format_ = reservation.table_format
        if format_ != "parquet":
            raise self.failures.invalid(
                f"is of format {format_}, which other engines may write too",
                f"read it with `format: {format_}`" if format_ in ("delta", "iceberg") else "read what its sink reads",
            )
        require_appends(self.failures, reservation)
        return reservation
