"""Format `delta`: the rows that are appended to a Delta table.

A landing reads up to the version that was the newest at its start. It walks the commits, and takes the files that each
appended. The difference of two file sets would be wrong: after an append and an OPTIMIZE, it is the rewritten file,
which also has rows that were landed before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from milepost.errors import CheckpointError, InvalidRequest, PositionExpired, SourceWentBack
from milepost.protocol.landed import Identity, Position, SourceBacklog
from milepost.protocol.records import ObjectStore
from milepost.sources.landed.contract import INITIAL_COPY, FileReference, FileRetention, Note, Pull, Reached, Resumption
from milepost.sources.landed.delta.commits import DeltaRows
from milepost.sources.landed.delta.delta_log import DeltaLog, TableState
from milepost.sources.landed.delta.positions import DeltaPosition
from milepost.sources.landed.tables.data_files import DataFile, DataFileMissing, read_data_files
from milepost.sources.landed.tables.file_references import file_references
from milepost.sources.landed.tables.pulls import FileSteps, Lost, Step, after_loss
from milepost.sources.landed.tables.reading import TableReading
from milepost.sources.landed.tables.reserved_table import require_appends, reservation_at, upsert_notes
from milepost.sources.landed.tables.table_failures import TableFailures, names_outages
from milepost.tables.delta import FILE_RETENTION, duration_ms


def open_delta_source(reading: TableReading, location: str, store: ObjectStore) -> DeltaSource:
    """Open a table for one landing. Connects at the first call.

    Args:
        location: for messages, without secrets. store: rooted at the table.
    """
    failures = TableFailures(reading.source, f"the Delta table {location}")
    return DeltaSource(reading, failures, DeltaLog(failures, store), DeltaRows(failures, store, reading.types))


@dataclass
class DeltaSource:
    """A table, opened for one landing. Arguments: as in `open_delta_source`."""

    reading: TableReading
    failures: TableFailures
    log: DeltaLog
    rows: DeltaRows
    _newest: TableState | None = field(default=None, init=False)
    _is_checked: bool = field(default=False, init=False)
    _initial: list[DataFile] | None = field(default=None, init=False)
    _unread: FileSteps[DeltaPosition] = field(default_factory=FileSteps, init=False)

    @names_outages
    def identity(self) -> Identity:
        return {"format": "delta", "table": self._state().id}

    @names_outages
    def notes(self, position: Position | None) -> tuple[Note, ...]:
        upserts = upsert_notes(reservation_at(self.failures, self.rows.store))
        return *upserts, *self.reading.start_notes(position, lambda: self.log.count_files(self._state()))

    @names_outages
    def initial_position(self) -> Position:
        state = self._checked()
        require_appends(self.failures, reservation_at(self.failures, self.rows.store))
        if self.reading.start == "earliest":
            return replace(self._before(state.version + 1), version=state.version, is_initial=True).encode()
        if self.reading.start == "latest":
            return self._before(state.version + 1).encode()
        if isinstance(self.reading.start, str):
            return self._before(self.log.first_since(self.failures.past_start_ms(self.reading.start), state)).encode()
        oldest = self.log.oldest()
        if not (state.version + 1 if oldest is None else oldest) <= self.reading.start <= state.version + 1:
            has = "none" if oldest is None else f"those of versions {oldest} to {state.version}"
            raise self.failures.invalid(
                f"does not have the commits from version {self.reading.start} on, where `start` begins; it has {has}",
                "correct `start`; `start: earliest` begins with the table as it is",
            )
        return self._before(self.reading.start).encode()

    @names_outages
    def next_pull(self, position: Position) -> Pull | None:
        start = DeltaPosition.decode(position)
        if not self._is_checked:
            self._require_there(start, self._state())
        try:
            state = self._checked()
        except InvalidRequest:  # the cause may be a RESTORE to other columns
            for version, _, actions in self.log.commits(start.landed + 1, self._state().version):
                self.rows.require_not_restored(version, actions)
            raise
        if start.version > state.version:
            return None
        end, files = self._unread.take(
            start,
            lambda at: self._steps(at, state.version),
            self.reading.max_bytes,
            by_reference=self.reading.by_reference,
        )
        behind = (INITIAL_COPY,) if end.is_initial else ()
        ahead, backlog = (SourceBacklog(state.version + 1 - each.version, "version") for each in (start, end))
        return Pull([files] if files else [], end.encode(), behind, ahead, backlog)

    @names_outages
    def resume_position(self, where: str | int, position: Position) -> Resumption:
        """Return a position after the newest file that is lost, or commit with unknown files.

        Raises InvalidRequest: a commit that is not lost deleted or updated rows.
        """
        start, state = DeltaPosition.decode(position), self._checked()
        self._require_there(start, state)
        since = state.version + 1 if where == "latest" else 0
        if isinstance(where, int):
            since = self.log.first_since(where, state, may_be_cleaned=True)
        steps = self._steps(start, state.version, over_loss=True)
        end, passed = after_loss(start, steps, lambda at: at.version < since + (not at.file))
        backlog = SourceBacklog(state.version + 1 - end.version, "version")
        return Resumption(end.encode(), (INITIAL_COPY,) if end.is_initial else (), backlog, passed)

    def newest_true(self, ends: Iterable[Position]) -> int | None:
        """Return the first position whose newest commit is still in the table's log. Raises InvalidRequest: unknown."""
        state = self._checked()
        for number, end in enumerate(ends):
            position = DeltaPosition.decode(end)
            with suppress(SourceWentBack):
                self._require_there(position, state)
                if position.landed >= 0 and (position.digest is None or self.log.body(position.landed) is None):
                    raise self.failures.invalid(
                        f"no longer has the commit of version {position.landed}, so whether it is the one that was "
                        "landed is unknown",
                        "give the source another name in the spec, which copies the table again",
                    )
                return number
        return None

    def read(self, split: Any) -> Iterator[pa.RecordBatch | FileReference | Reached]:
        read = file_references if self.reading.by_reference else read_data_files
        try:
            with self.failures.outages():
                yield from read(self.failures, split, self.reading.types, self.reading.event_time)
        except DataFileMissing as missing:
            raise self._expired(f"no longer has the data file {missing.args[0]}: it was vacuumed") from missing

    def commit(self, end: Position) -> None:
        """Nothing waits for an acknowledgement."""

    @names_outages
    def file_retention(self) -> FileRetention | None:
        """Return how long VACUUM retains a file that a commit removed."""
        if not self.reading.by_reference:
            return None
        return FileRetention(FILE_RETENTION, duration_ms(self._state().configuration, FILE_RETENTION))

    def _state(self) -> TableState:
        if self._newest is None:
            self._newest = self.log.state()
            assert self._newest is not None
        return self._newest

    def _checked(self) -> TableState:
        """Return the newest state, after a check that it can be read. Raises InvalidRequest."""
        state = self._state()
        if not self._is_checked:
            self.rows.check_protocol(state.reader_version, state.reader_features)
            self.rows = self.rows.as_of(state.configuration, state.fields)
            self._is_checked = True
        return state

    def _before(self, version: int) -> DeltaPosition:
        """Return the position before a version's commit."""
        body = self.log.body(version - 1)
        return DeltaPosition(version, digest=None if body is None else _digest(body))

    def _require_there(self, position: DeltaPosition, state: TableState) -> None:
        """Check that the log still has the newest commit that was landed. Raises SourceWentBack."""
        latest = DeltaPosition(state.version + 1).encode()
        if position.landed > state.version:
            raise self.failures.went_back(f"is at version {state.version}, and {position.landed} was landed", latest)
        body = None if position.digest is None else self.log.body(position.landed)
        if body is not None and _digest(body) != position.digest:
            raise self.failures.went_back(
                f"has another commit of version {position.landed} than the one that was landed", latest
            )

    def _steps(self, position: DeltaPosition, newest: int, *, over_loss: bool = False) -> Iterator[Step[DeltaPosition]]:
        """Yield the files after a position, each with the position after it, and the position after each commit.

        Args:
            over_loss: yield a step over a commit that was deleted. Otherwise it is PositionExpired.
        """
        if position.is_initial:
            after = DeltaPosition(position.version + 1, digest=position.digest)
            try:
                files = self._initial_files(position)
            except PositionExpired:
                if not over_loss:
                    raise
                yield after, Lost.COMMIT
                files = []
            for number, file in enumerate(files[position.file :], position.file + 1):
                yield replace(position, file=number), file
            position = after
            yield position, None
        for version, body, actions in self.log.commits(position.version, newest):
            if body is None:
                if not over_loss:
                    raise self._expired(f"no longer has the commit of version {version}: its log was cleaned")
                position = DeltaPosition(version + 1)
                yield position, Lost.COMMIT
                continue
            files = self.rows.appended(version, actions)
            for number, file in enumerate(files[position.file :], position.file + 1):
                yield DeltaPosition(version, number, digest=_digest(body)), file
            position = DeltaPosition(version + 1, digest=_digest(body))
            yield position, None

    def _initial_files(self, position: DeltaPosition) -> list[DataFile]:
        if self._initial is None:
            state = self._state()
            if state.version != position.version:
                older = self.log.state(position.version)
                if older is None:
                    raise self._expired(f"can no longer be read as of version {position.version}: its log was cleaned")
                state = older
            at = f" in version {position.version}"
            self._initial = [
                self.rows.file(row["path"], row["size_bytes"], row.get("partition") or {}, at)
                for row in self.log.files(state)
            ]
        return self._initial

    def _expired(self, problem: str) -> CheckpointError:
        oldest, latest = self.log.oldest(), DeltaPosition(self._state().version + 1)
        return self.failures.expired(
            problem, (latest if oldest is None else DeltaPosition(oldest)).encode(), latest.encode()
        )


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
