"""Format `postgres`: the changes of one table, by logical decoding, after a copy of it.

A landing ends at the WAL that was on disk at its start. It peeks into the slot, which is repeatable, and advances it
only after a record was appended: what is not landed stays in the slot.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from milepost.errors import CheckpointError, PositionExpired, SourceReplaced, SourceWentBack
from milepost.jobspec.job import EventTimeSpec, PostgresAccess
from milepost.language import ColumnType
from milepost.protocol.landed import SLOT, Identity, Position, SourceBacklog
from milepost.sources.landed.contract import INITIAL_COPY, LandedSource, Note, Pull, Reached
from milepost.sources.landed.postgres.change_rows import End, Limits, TableRows, UnlandableChange, read_changes
from milepost.sources.landed.postgres.failures import Failures
from milepost.sources.landed.postgres.initial_copy import (
    Copied,
    begin_copy,
    copy_rows,
    fetched,
    is_waiting,
)
from milepost.sources.landed.postgres.pgoutput import BadMessage, lsn_text
from milepost.sources.landed.postgres.positions import CopyPosition, SlotPosition
from milepost.sources.landed.postgres.server import (
    Connection,
    Facts,
    Server,
    Slot,
    advance_slot,
    can_use_slots,
    create_slot,
    quoted_name,
    read_facts,
    read_slot,
)
from milepost.sources.landed.postgres.table import TableName, check_columns, find_publication, find_table
from milepost.sources.landed.postgres.text_values import UnfitValue
from milepost.sources.landed.row_batches import record_batches

_PEEK = """
SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s::text::pg_lsn, %s,
    'proto_version', '1', 'publication_names', %s)
"""
_MESSAGES_PER_ROW = 4
"""A transaction of one row is three messages, or four with that of its table."""

_WAIT_S = 30.0
"""How long a landing waits for transactions that were open when the copy began."""


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """The table of a source, as declared in its spec.

    Attributes:
        publication: its name. key, declared: as in the spec. metadata: name of a column -> its content.
        copies: whether a new log begins with a copy of the table.
    """

    name: TableName
    publication: str
    key: tuple[str, ...]
    declared: Mapping[str, ColumnType]
    metadata: Mapping[str, str]
    copies: bool

    @property
    def rows(self) -> TableRows:
        """The columns of the source's rows."""
        return TableRows(self.declared, self.key, self.metadata)


def open_postgres_source(
    name: str,
    table: PostgresTable,
    find_access: Callable[[], PostgresAccess],
    types: Mapping[str, ColumnType],
    event_time: EventTimeSpec | None,
    *,
    slot: str,
    max_rows: int,
    max_bytes: int,
    may_create: bool,
) -> LandedSource:
    """Open a table for one landing. Connects at the first call.

    Args:
        name: of the source, for messages. types: all columns of its rows.
        find_access: returns how to reach the database.
        slot: name of its replication slot.
        max_rows, max_bytes: of one record. may_create: whether a new log may create its slot.
    """
    failures = Failures(name, str(table.name), slot)
    server = Server(name, failures, find_access)
    limits = Limits(max_rows, max_bytes)
    return PostgresSource(name, table, server, failures, slot, types, event_time, limits, may_create)


def slot_name(job: str, log: str, job_identity: str) -> str:
    """Return the name of the slot that a new log creates: milepost_shop_orders_4f1d09a2b6c3.

    It differs for each life of a job, so that a test environment with the same spec does not take its changes.

    Args:
        log: name under which the log is stored.
    """
    digest = hashlib.sha256(f"{job}\n{log}\n{job_identity}".encode()).hexdigest()[:12]
    parts = (re.sub(r"[^a-z0-9_]", "_", part.lower())[:20] for part in (job, log))
    return "_".join(("milepost", *parts, digest))


@dataclass
class PostgresSource:
    """A table of one database, opened for one landing. Arguments: as in `open_postgres_source`."""

    name: str
    table: PostgresTable
    server: Server
    failures: Failures
    slot: str
    types: Mapping[str, ColumnType]
    event_time: EventTimeSpec | None
    limits: Limits
    may_create: bool
    _until: int | None = field(default=None, init=False)
    _is_before_begin: bool = field(default=False, init=False)

    def identity(self) -> Identity:
        """Return the ids of the database, the table and its publication. Their names may be reused."""
        with self.server.reading() as connection:
            facts = read_facts(connection)
            oid, *_ = find_table(connection, self.table.name, self.failures)
            publication = find_publication(connection, self.table.publication, self.table.name, oid, self.failures)
            return {
                "format": "postgres",
                "database": f"{facts.system_id}/{facts.database}",
                "table": f"{self.table.name}/{oid}",
                "publication": f"{self.table.publication}/{publication.oid}/{publication.member}",
                SLOT: self.slot,
            }

    def initial_position(self) -> Position:
        """Create the slot, unless an interrupted landing has done so. Return its consistent point."""
        with self.server.reading() as connection:
            facts = read_facts(connection)
            self._check_table(connection)
            slot = read_slot(connection, self.slot, facts.database, self.failures)
            if slot is not None and slot.lost:
                raise self.failures.unusable(
                    f"slot {self.slot} can no longer be read ({slot.lost}), and nothing was landed from it",
                    f"drop it (SELECT pg_drop_replication_slot('{self.slot}'))",
                )
            if slot is not None:
                lsn = slot.confirmed
            elif self.may_create:
                lsn = create_slot(connection, self.slot)
            else:
                self._require_right(connection)
                self._is_before_begin, lsn = True, facts.flushed
            copy = begin_copy(connection, facts.now_us) if self.table.copies else None
            return SlotPosition(lsn, facts.timeline, facts.system_id, self.slot, copy).encode()

    def next_pull(self, position: Position) -> Pull | None:
        if self._is_before_begin:
            return None
        at = SlotPosition.decode(position)
        with self.server.reading() as connection:
            facts = read_facts(connection)
            self._require_position(connection, facts, at)
            if self._until is None:
                self._until = facts.flushed
        if at.copy is None and at.lsn >= self._until:
            return None
        return Pull([at], None)

    def read(self, split: Any) -> Iterator[pa.RecordBatch | Reached]:
        assert isinstance(split, SlotPosition), split
        try:
            with self.server.reading() as connection:
                facts = read_facts(connection)
                slot = self._require_position(connection, facts, split)
                if slot.confirmed < split.lsn:  # the acknowledgement of the previous record was lost
                    advance_slot(connection, self.slot, split.lsn)
                at = SlotPosition(split.lsn, facts.timeline, facts.system_id, self.slot, split.copy)
                yield from self._copy(connection, at) if at.copy is not None else self._stream(connection, at)
        except UnlandableChange as change:
            raise self.failures.invalid(f"table {self.table.name}: {change.reason}", change.hint) from change
        except UnfitValue as unfit:
            hint = "correct the column's type in `schema`, then land again. `string` takes the text of every value"
            raise self.failures.invalid(f"table {self.table.name}, initial copy: {unfit}", hint) from unfit
        except BadMessage as bad:
            raise self.failures.invalid(
                f"slot {self.slot} returned bytes that are no message of pgoutput: {bad}", "report it with this message"
            ) from bad

    def newest_true(self, ends: Iterable[Position]) -> int | None:
        """Return the first position up to which the server has what was landed. Raises InvalidRequest: unknown."""
        if self.table.copies:
            raise self.failures.unknown_copy(self.table.name)
        with self.server.reading() as connection:
            facts, places = read_facts(connection), enumerate(map(SlotPosition.decode, ends))
        return next((number for number, at in places if self._lost_before(facts, at) is None), None)

    def commit(self, end: Position) -> None:
        """Advance the slot, unless it is beyond the position."""
        at = SlotPosition.decode(end)
        with self.server.reading() as connection:
            facts = read_facts(connection)
            slot = self._require_slot(connection, facts)
            self._require_timeline(facts, at)
            if slot.confirmed < at.lsn:
                advance_slot(connection, self.slot, at.lsn)

    def notes(self, position: Position | None) -> tuple[Note, ...]:
        """Return the facts for `doctor`: the slot, and the WAL that it retains."""
        with self.server.reading() as connection:
            facts = read_facts(connection)
            slot = read_slot(connection, self.slot, facts.database, self.failures)
            notes = []
            if slot is None:
                notes.append(Note("its slot is created by the first landing"))
            else:
                retained = f"slot {self.slot} is {slot.status} and retains {slot.retained_bytes / 1e6:.1f} MB of WAL"
                notes.append(Note(retained, is_warning=slot.status != "reserved"))
            if facts.keeps_all_wal:
                text = "max_slot_wal_keep_size is not set: if nothing is landed, the slot fills the server's disk"
                notes.append(Note(text, is_warning=True))
            return tuple(notes)

    def _copy(self, connection: Connection, at: SlotPosition) -> Iterator[pa.RecordBatch | Reached]:
        assert at.copy is not None
        self._check_table(connection)
        if at.copy.after is None:
            self._await_transactions(connection, at.copy)
        table = self.table
        has_rows = False
        for item in copy_rows(connection, table.name, table.rows, at.copy, at.lsn, self.limits):
            if not isinstance(item, Copied):
                has_rows = True
                yield from self._checked(item)
            elif item.is_whole and not has_rows:
                yield from self._stream(connection, SlotPosition(at.lsn, at.timeline, at.system_id, at.slot))
            else:
                copy = None if item.is_whole else CopyPosition(item.after, at.copy.since, at.copy.time_us)
                behind = () if copy is None else (INITIAL_COPY,)
                yield Reached(SlotPosition(at.lsn, at.timeline, at.system_id, at.slot, copy).encode(), behind)

    def _stream(self, connection: Connection, at: SlotPosition) -> Iterator[pa.RecordBatch | Reached]:
        """Read changes up to where the landing ends. If those within the limit have no rows, read without one."""
        assert self._until is not None
        oid, *_ = find_table(connection, self.table.name, self.failures)
        lsn = at.lsn
        for most in (_MESSAGES_PER_ROW * self.limits.max_rows + 100, None):
            has_rows = False
            for item in self._changes(connection, oid, at.lsn, most):
                if not isinstance(item, End):
                    has_rows = True
                    yield from self._checked(item)
                    continue
                lsn = max(lsn, item.lsn or 0)
                if item.is_drained and (most is None or item.messages < most):
                    lsn = max(lsn, self._until)
            if has_rows or lsn >= self._until:
                break
        backlog = SourceBacklog(max(0, self._until - lsn), "WAL byte")
        yield Reached(SlotPosition(lsn, at.timeline, at.system_id, at.slot).encode(), backlog=backlog)

    def _changes(
        self, connection: Connection, oid: int, after: int, most: int | None
    ) -> Iterator[pa.RecordBatch | End]:
        """Peek into the slot. most: number of messages after which the server stops at a commit."""
        assert self._until is not None
        with connection.cursor(name="milepost_changes", binary=True) as cursor:
            cursor.execute(_PEEK, [self.slot, lsn_text(self._until), most, quoted_name(self.table.publication)])
            messages = (bytes(data) for (data,) in fetched(cursor))
            yield from read_changes(messages, oid, self.table.rows, after, self.limits)

    def _checked(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a batch with the declared columns, in their order. Raises InvalidRequest: a row has no event time."""
        return record_batches(self.name, iter([batch]), self.types, self.event_time)

    def _check_table(self, connection: Connection) -> None:
        table = self.table
        oid, *_ = find_table(connection, table.name, self.failures)
        publication = find_publication(connection, table.publication, table.name, oid, self.failures)
        check_columns(connection, table.name, publication, table.declared, table.key, self.failures)

    def _require_right(self, connection: Connection) -> None:
        """Check, without creating a slot, that the role may have one. Raises EnvironmentUnusable."""
        if not can_use_slots(connection):
            user = self.server.target.user
            raise self.failures.unusable(
                f"role {user} may not use replication slots", f'as an administrator: ALTER ROLE "{user}" REPLICATION'
            )

    def _require_position(self, connection: Connection, facts: Facts, at: SlotPosition) -> Slot:
        """Check that the slot has what follows a position. Raises: PositionExpired, SourceWentBack, SourceReplaced."""
        if at.slot != self.slot or at.system_id != facts.system_id:
            raise SourceReplaced(
                f"source {self.name}: the position is one of slot {at.slot} of database system {at.system_id}, and "
                f"the source has slot {self.slot} of {facts.system_id}. Nothing was landed.",
                hint="a slot belongs to one log: give the source another name in the spec",
                source=self.name,
            )
        slot = self._require_slot(connection, facts)
        self._require_timeline(facts, at)
        if slot.confirmed > at.lsn:
            raise self._expired(
                f"slot {self.slot} was acknowledged up to {lsn_text(slot.confirmed)} by another reader, or was made "
                "anew: changes in between are not landed",
                SlotPosition(slot.confirmed, facts.timeline, facts.system_id, self.slot),
                facts,
            )
        return slot

    def _require_slot(self, connection: Connection, facts: Facts) -> Slot:
        slot = read_slot(connection, self.slot, facts.database, self.failures)
        if slot is None:
            raise self._expired(f"slot {self.slot} does not exist: it was dropped, or lost in a failover", None, facts)
        if slot.lost:
            raise self._expired(
                f"slot {self.slot} can no longer be read ({slot.lost}): it held back more WAL than the server keeps "
                f"(max_slot_wal_keep_size). Drop it: SELECT pg_drop_replication_slot('{self.slot}')",
                None,
                facts,
            )
        return slot

    def _require_timeline(self, facts: Facts, at: SlotPosition) -> None:
        """Check that the server has everything that was landed. Raises SourceWentBack."""
        if (lost := self._lost_before(facts, at)) is not None:
            raise SourceWentBack(lost, latest=self._latest(facts).encode())

    def _lost_before(self, facts: Facts, at: SlotPosition) -> str | None:
        """Return why the server does not have everything that was landed up to a position; None: it has it."""
        is_newer = facts.timeline > at.timeline
        end = self.server.timeline_end(at.timeline, facts.timeline) if is_newer else facts.flushed
        if facts.timeline < at.timeline or end is None:
            return f"the server is on timeline {facts.timeline}, which does not continue it"
        if end < at.lsn:
            has = f"timeline {facts.timeline} has it up to {lsn_text(end)} only"
            return f"the server lost what was written after that: {has}"
        return None

    def _expired(self, why: str, earliest: SlotPosition | None, facts: Facts) -> CheckpointError:
        """Return the error for a slot that no longer has what follows the log. The lander names the source."""
        if earliest is None:
            return PositionExpired(why)
        return PositionExpired(why, earliest=earliest.encode(), latest=self._latest(facts).encode())

    def _latest(self, facts: Facts) -> SlotPosition:
        return SlotPosition(facts.flushed, facts.timeline, facts.system_id, self.slot)

    def _await_transactions(self, connection: Connection, copy: CopyPosition) -> None:
        deadline = time.monotonic() + _WAIT_S
        while is_waiting(connection, copy):
            if time.monotonic() > deadline:
                raise self.failures.unreachable(
                    f"transactions from before the slot was created are still open after {_WAIT_S:g} s, so the copy of "
                    f"{self.table.name} would miss what they commit",
                    "end them (see pg_stat_activity), then land again",
                )
            time.sleep(0.2)
