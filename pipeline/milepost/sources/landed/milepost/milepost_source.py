"""Format `milepost`: the rows that are appended to the published table of another job.

A landing reads up to the mark that was the newest at its start. Rows that were not landed yet are at the end of the
table, in one or more files, even if they were written many marks ago and compacted since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from milepost.errors import CheckpointError, SourceWentBack
from milepost.protocol.landed import Identity, Position
from milepost.protocol.records import ObjectStore
from milepost.protocol.retention import shared_checkpoint
from milepost.sources.landed.contract import INITIAL_COPY, LandedSource, Note, PassedFiles, Pull, Resumption
from milepost.sources.landed.milepost.positions import TablePosition
from milepost.sources.landed.milepost.published_table import PublishedTable, TableReader, rows_digest
from milepost.sources.landed.tables.column_types import check_declared
from milepost.sources.landed.tables.data_files import DataFile, DataFileMissing, missing_files, read_data_files
from milepost.sources.landed.tables.pulls import FileSteps
from milepost.sources.landed.tables.reading import TableReading
from milepost.sources.landed.tables.table_failures import TableFailures
from milepost.tables.records import decode_schema


def open_milepost_source(
    reading: TableReading, location: str, store: ObjectStore, open_job: Callable[[str], ObjectStore]
) -> LandedSource:
    """Open a table for one landing. Connects at the first call.

    Args:
        location: for messages, without secrets. store: rooted at the table.
        open_job: opens the store of the job that writes it, by its name.
    """
    failures = TableFailures(reading.source, f"the Milepost table {location}")
    return MilepostSource(reading, TableReader(failures, store, open_job))


@dataclass
class MilepostSource:
    """A table, opened for one landing. Arguments: as in `open_milepost_source`."""

    reading: TableReading
    reader: TableReader
    _opened: PublishedTable | None = field(default=None, init=False)

    def identity(self) -> Identity:
        return self._table().identity

    def notes(self, position: Position | None) -> tuple[Note, ...]:
        table = self._table()
        owner = table.reservation.owner
        shown = Note(f"sink {owner.sink} of job {owner.job} shows {table}")
        return shown, *self.reading.start_notes(position, lambda: len(table.files))

    def initial_position(self) -> Position:
        table = self._checked()
        if self.reading.start == "latest":
            return table.position_after(len(table.files)).encode()
        return table.position_after(0, table.rows).encode()

    def next_pull(self, position: Position) -> Pull | None:
        start, table = TablePosition.decode(position), self._checked()
        first, skipped = self._unread(start, table)
        if first == len(table.files):
            return None
        steps = ((number + 1, file) for number, file in self._data_files(table, first, skipped))
        stop, files = FileSteps[int]().take(first, lambda _: steps, self.reading.max_bytes)
        end = table.position_after(stop, min(start.initial, table.rows))
        with self.reader.translated():
            before, after = table.backlog(start), table.backlog(end)
        return Pull([files], end.encode(), (INITIAL_COPY,) if end.initial > end.rows else (), before, after)

    def resume_position(self, where: str | int, position: Position) -> Resumption:
        """Return the position after the newest file that is lost."""
        start, table = TablePosition.decode(position), self._checked()
        first, skipped = self._unread(start, table)
        if isinstance(where, int):
            raise self.reader.failures.invalid(
                "cannot be read from a time on: it does not store when its rows were published",
                "continue from `earliest`, which is after the newest data file that is lost, or from `latest`",
            )
        files = [file for _, file in self._data_files(table, first, skipped)]
        with self.reader.translated():
            is_lost = missing_files(files)
        lost = [number for number, is_missing in enumerate(is_lost, first) if is_missing]
        stop = len(table.files) if where == "latest" else lost[-1] + 1 if lost else first
        if stop == first:
            return Resumption(position)
        end = table.position_after(stop, start.initial)
        with self.reader.translated():
            backlog = table.backlog(end)
        behind = (INITIAL_COPY,) if end.initial > end.rows else ()
        return Resumption(end.encode(), behind, backlog, PassedFiles(stop - first, len(lost)))

    def newest_true(self, ends: Iterable[Position]) -> int | None:
        table = self._checked()
        return next(
            (number for number, end in enumerate(ends) if self._begins_with(TablePosition.decode(end), table)), None
        )

    def read(self, split: Any) -> Iterator[pa.RecordBatch]:
        failures = self.reader.failures
        try:
            with self.reader.translated():
                yield from read_data_files(failures, split, self.reading.types, self.reading.event_time)
        except DataFileMissing as missing:
            table, now = self._table(), self.reader.read()
            if now.mark != table.mark:
                raise failures.unreachable(
                    f"no longer has the data file {missing.args[0]}: it was compacted while it was read"
                ) from missing
            raise failures.expired(
                f"has lost the data file {missing.args[0]}, with rows that its job has published",
                table.position_after(0).encode(),
                table.position_after(len(table.files)).encode(),
            ) from missing

    def commit(self, end: Position) -> None:
        """Nothing waits for an acknowledgement: the table retains all its rows."""

    def _table(self) -> PublishedTable:
        if self._opened is None:
            self._opened = self.reader.read()
        return self._opened

    def _checked(self) -> PublishedTable:
        """Return the table, after a check of its columns. Raises InvalidRequest."""
        table = self._table()
        if table.mark is not None and table.mark.contents is not None:
            schema = decode_schema(table.mark.contents.schema)
            check_declared(self.reader.failures, self.reading.types, {column.name: column.type for column in schema})
        return table

    def _data_files(self, table: PublishedTable, first: int, skipped: int) -> Iterator[tuple[int, DataFile]]:
        """Yield the files from one on, with their numbers. Of the first one, some rows are skipped."""
        for number, file in enumerate(table.files[first:], first):
            skip = skipped if number == first else 0
            yield number, DataFile(self.reader.store, file.key, file.size, skipped_rows=skip)

    def _unread(self, position: TablePosition, table: PublishedTable) -> tuple[int, int]:
        """Return the number of the file with the first row after a position, and how many of its rows are before it.

        With 5 rows read, of files with 3, 2 and 4 rows: file 2, 0 rows. Once the last two are joined: file 1, 2 rows.

        Raises SourceWentBack: the rows before the position are not those that were read.
        """
        before = 0
        for number, file in enumerate((*table.files, None)):
            if before == position.rows:
                if rows_digest(table.files[:number]) != position.digest:
                    raise self._went_back(position, table)
                return number, 0
            if file is not None and before + file.rows > position.rows:
                if not self._continues(position, table):
                    raise self._went_back(
                        position, table, f"no longer continues {position}, up to which its rows were landed"
                    )
                return number, position.rows - before
            before += 0 if file is None else file.rows
        raise self._went_back(position, table)

    def _begins_with(self, position: TablePosition, table: PublishedTable) -> bool:
        """Return whether the table begins with the rows before a position."""
        try:
            self._unread(position, table)
        except SourceWentBack:
            return False
        return True

    def _continues(self, position: TablePosition, table: PublishedTable) -> bool:
        """Return whether the table shows a checkpoint that continues that of a position. False if that is unknown."""
        return self._shared_checkpoint(position, table) == position.checkpoint

    def _shared_checkpoint(self, position: TablePosition, table: PublishedTable) -> int | None:
        """Return the newest checkpoint that is before a position and before what the table shows; None: unknown."""
        with self.reader.translated():
            state = table.state()
        return None if state is None else shared_checkpoint(state, position.continued, table.shown)

    def _went_back(self, position: TablePosition, table: PublishedTable, problem: str = "") -> CheckpointError:
        owner = table.reservation.owner
        problem = problem or f"no longer begins with the {position.rows} rows that were landed up to {position}"
        shared = self._shared_checkpoint(position, table)
        both = (
            f"the newest checkpoint of job {owner.job} that both have is {shared}"
            if shared
            else "it is unknown which checkpoint both have"
        )
        error: SourceWentBack = self.reader.failures.went_back(
            f"{problem}: job {owner.job} was rolled back or backfilled, and the table shows {table}; {both}",
            table.position_after(len(table.files)).encode(),
        )
        return error
