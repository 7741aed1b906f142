"""The sink of every table format: stage files, prepare, then publish with one commit (I14).

This module and `table_mover.py` hold what the formats share. A format adds its log only (`table_format.py`).

Order of writes of a publication, for checkpoint 42 (manifest version 97):

    1. files       _milepost/data/chk-…42/t7/0-<sha256>.parquet            below the table
    2. records     the contents of checkpoint 42                           in the job's storage
    3. manifest    version 97: checkpoint 42 is complete                   commit point
    4. mark        sinks/<sink>/marks/…97.json, names the contents         in the job's storage
    5. commit      of the format: the files, number 97, the write id       visible to readers

A crash before 3 leaves garbage. After 3, the next session repeats 4 and 5 until the table carries number 97.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from milepost.errors import CommitConflict, InvalidRequest, StateCorrupt
from milepost.protocol.records import ObjectStore
from milepost.sinks.contract import (
    PreparedTable,
    SinkChange,
    SinkMode,
    TableObject,
    TablePosition,
    TableRead,
    TableTarget,
)
from milepost.sinks.parquet_files.deletes import table_columns, without_deletes
from milepost.sinks.parquet_files.partitions import PartitionBy, check_partition
from milepost.sinks.parquet_files.table_files import ReadOptions
from milepost.sinks.parquet_files.table_schema import check_rows_schema, merged_schema, widened_schema
from milepost.sinks.staging.small_files import valid_joins
from milepost.sinks.staging.table_staging import TableStaging
from milepost.sinks.table.epoch_change import epoch_change
from milepost.sinks.table.object_inventory import table_objects
from milepost.sinks.table.table_mover import MAX_LOST_RACES, TableMover
from milepost.sinks.table.table_ownership import TableOwnership
from milepost.sinks.table.table_takeover import Takeover
from milepost.sinks.table_format import OpenTable, TableFormat
from milepost.storage.concurrency import run_in_background
from milepost.tables.records import (
    Committable,
    ContentsChange,
    ContentsRecords,
    Mark,
    MarkRecords,
    Reservation,
    StagedFile,
    TableContents,
    TableGarbage,
    TableOwner,
    TableView,
    check_reservable,
    decode_schema,
    identity_of,
    new_reservation,
    reserve,
    staged_by,
    staged_prefix,
)


class TableSink(TableStaging):
    """The sink of one table; the methods are documented in `contract`.

    Args:
        job: the job's name. store: rooted at the table. format_name: as in the spec.
        by_buckets: as in `Sink`.
        marks, records: in the job's storage.
        op: as in `TableStaging`. retention_ms: age of the oldest checkpoint that a rollback may go back to.
        identity: returns the job's identity; called once the job has one.
        adopts: adopt a table that another writer created.
    """

    def __init__(
        self,
        name: str,
        *,
        job: str,
        mode: SinkMode,
        key: tuple[str, ...],
        store: ObjectStore,
        format_name: str,
        table_format: TableFormat,
        by_buckets: bool,
        marks: MarkRecords,
        records: ContentsRecords,
        op: str = "insert",
        identity: Callable[[], str],
        retention_ms: int = 0,
        adopts: bool = False,
        partition: PartitionBy | None = None,
    ) -> None:
        statistics = table_format.keeps_statistics
        super().__init__(name, mode=mode, key=key, store=store, op=op, statistics=statistics, partition=partition)
        self._job, self._store, self._format_name, self._format = job, store, format_name, table_format
        self.by_buckets = by_buckets
        self._retention_ms = retention_ms
        self._marks, self._records = marks, records
        self._ownership = TableOwnership(
            name,
            store,
            table_format,
            lambda: self._owner(identity()),
            adopts=adopts,
            only_empty=mode is SinkMode.UPSERT,
        )
        self._takeover = Takeover(name, store, table_format, marks, records)
        self._mover = TableMover(name, job, store, table_format, marks, records, self._ownership)

    def reserve(self, identity: str, before_create: Callable[[], None] = lambda: None) -> None:
        requested = self._new_reservation(identity)

        def check_location() -> None:
            before_create()
            self._ownership.check_unreserved(requested.owner)

        reserve(self._store, requested, check_location)

    def check_reservable(self, identity: str) -> None:
        requested = self._new_reservation(identity)
        check_reservable(self._store, requested, lambda: self._ownership.check_unreserved(requested.owner))

    def _new_reservation(self, identity: str) -> Reservation:
        return new_reservation(self._owner(identity), self._format_name, self.mode.value, self.key)

    def owner(self) -> TableOwner | None:
        return self._ownership.reserved_owner()

    def stored_mode_and_key(self) -> tuple[SinkMode, tuple[str, ...]]:
        stored = self._ownership.reservation()
        return (self.mode, self.key) if stored is None else (SinkMode(stored.mode), stored.key)

    def belongs_to_other(self, identity: str) -> bool:
        return self.owner() not in (None, self._owner(identity))

    def table_view(self, contents: TableContents | None) -> TableView | None:
        return self._takeover.table_view(contents)

    def check_takeover(self, identity: str, job: str, view: TableView) -> None:
        self._takeover.check(TableOwner(job, "", self.name), self._owner(identity), view)

    def is_taken_over(self, identity: str, view: TableView) -> bool:
        return self._takeover.is_complete(self._owner(identity), view)

    def take_over(self, identity: str, job: str, view: TableView, target: TableTarget) -> None:
        self._takeover.take_over(TableOwner(job, "", self.name), self._owner(identity), view, target)

    def check_columns(self, schema: pa.Schema) -> None:
        check_rows_schema(self.name, columns := table_columns(schema), self.key)
        self._format.check_columns(columns)

    def read_table(self) -> TableRead:
        return self._mover.read_table()

    def check_staged(self, committable: Committable) -> None:
        self._files.check(committable.written)

    def prepare(
        self,
        committable: Committable,
        base: TableContents | None,
        *,
        waits: bool,
        read_table: Callable[[], TableRead] | None = None,
        before_change: Callable[[], None] = lambda: None,
    ) -> PreparedTable:
        read_table = read_table or self._mover.read_table
        table, position, schema = self._ready_table(committable, base, waits, read_table, before_change)
        if self._format.is_database:
            table.check_keys(self._checked_rows(committable), decode_schema(committable.schema))
        recorded = self._records.files(base)
        rewritten = ContentsChange(())
        if not waits:
            rewritten = self._mover.rewritten(table, position, recorded)
            # A stored record needs a digest for each file, and no format's log has one.
            rewritten = replace(rewritten, added=tuple(map(self._files.with_digest, rewritten.added)))
        current = () if committable.whole else rewritten.applied_to(recorded)
        joins = valid_joins(committable.joined, current, latest=self.mode is SinkMode.UPSERT)
        change = epoch_change(self.name, committable, rewritten, joins, current, by_buckets=self.by_buckets)
        return PreparedTable.after(change, recorded, schema, table.table_id)

    def prepare_fork(self, committable: Committable, base: TableContents | None) -> PreparedTable:
        schema = self._next_schema(committable, base, None)
        if self._format.is_database:
            for _ in self._checked_rows(committable):
                pass
        change = epoch_change(self.name, committable, ContentsChange(()), by_buckets=self.by_buckets)
        return PreparedTable.after(change, self._records.files(base), schema, None if base is None else base.table_id)

    def bucket_files(self, base: TableContents | None, *, waits: bool) -> tuple[StagedFile, ...]:
        if not self.by_buckets:
            return ()
        recorded = self._records.files(base)
        if waits:
            return recorded
        table, position = self._mover.read_table()
        self._mover.check_position(position, base)
        return recorded if table is None else self._mover.rewritten(table, position, recorded).applied_to(recorded)

    def abort(self, *, checkpoint_id: int, token: int, before_delete: Callable[[], None] = lambda: None) -> None:
        # A copy of the job has the same checkpoint ids and tokens, so a table that a copy has moved is left alone.
        listing = self._store.list(staged_prefix(checkpoint_id, token))
        staged = [stat.key for stat in listing if staged_by(stat.key) is not None]
        if not staged:
            return
        before_delete()
        position = self.position()
        if not position.is_known:
            raise InvalidRequest(
                f"sink {self.name}: its table carries mark {position.number}, which is not of this job, so the "
                f"files staged by checkpoint {checkpoint_id} may belong to another job. Nothing was deleted.",
                hint=f"to replace its rows by the job's state: milepost realign {self._job} {self.name}",
                sink=self.name,
            )
        self._store.delete(staged)

    def position(self) -> TablePosition:
        return self._mover.read_table()[1]

    def prefetch_table(self) -> None:
        self._mover.prefetch_table()

    def move(self, target: TableTarget, before_commit: Callable[[], None] = lambda: None) -> bool:
        return self._mover.move(target, before_commit)

    def check(self, contents: TableContents | None) -> None:
        self._mover.check_columns(contents)
        files = self._records.files(contents)
        self._files.check(files)
        if self.by_buckets and any(file.groups is None for file in files):
            raise InvalidRequest(
                f"sink {self.name}: a fork staged changes that are in no bucket of its table at that checkpoint. "
                "Nothing was moved.",
                hint="the last epoch of a backfill writes the buckets: run an unfinished backfill again, or go back to "
                "that epoch's checkpoint or one before the fork",
                sink=self.name,
            )

    def fault(self, contents: TableContents | None) -> str | None:
        table, position = self._mover.read_table()
        if table is None:
            return None if contents is None else f"the table at {self._store.config.url} no longer exists"
        if not position.is_known or identity_of(position.contents) != identity_of(contents):
            return f"its table shows {position}"
        try:
            self._mover.current_files(table, position)
        except InvalidRequest as error:
            return error.message
        return table.rows_fault(self._records.files(contents))

    def compare(self, contents: TableContents | None) -> SinkChange:
        def read_now() -> tuple[TablePosition, int | None]:
            position = self.position()
            if position.is_known:
                with suppress(StateCorrupt):
                    return position, self._count(position.contents)
            return position, None

        now = run_in_background(read_now, "shown-table")
        self.check(contents)
        rows_then = self._count(contents)
        position, rows_now = now.result()
        return SinkChange(
            rows_now=rows_now,
            rows_then=rows_then,
            files_now=0 if position.contents is None else position.contents.files,
            files_then=0 if contents is None else contents.files,
            position=position,
        )

    def undo_limits(self) -> tuple[str, ...]:
        return ("rows that a reader has already copied from the table stay where they were copied to",)

    def files(self, contents: TableContents | None) -> tuple[StagedFile, ...]:
        return self._records.files(contents)

    def pieces(
        self, contents: TableContents, *, verify: bool = False, left_out: Collection[str] = ()
    ) -> Iterator[pa.Table]:
        schema = decode_schema(contents.schema)
        files = [file for file in self._records.files(contents) if file.key not in left_out]
        mode, key = self.stored_mode_and_key()
        if mode is not SinkMode.UPSERT:
            return self._files.all_pieces(files, ReadOptions(schema, verify))
        return self._files.latest_pieces(files, ReadOptions(schema, verify), key)

    def read(self, contents: TableContents, *, verify: bool = False) -> pa.Table:
        pieces = self.pieces(contents, verify=verify)
        return pa.concat_tables([decode_schema(contents.schema).empty_table(), *pieces])

    def verify(self, contents: TableContents, *, deep: bool = False) -> list[str]:
        try:
            files = self._records.files(contents)
        except StateCorrupt as error:
            return [f"sink {self.name}: {error.message}"]
        problems = []
        if len(files) != contents.files:
            problems.append(f"sink {self.name}: {contents.files} files are recorded, its records list {len(files)}")
        return problems + self._files.problems(files, decode_schema(contents.schema), deep=deep)

    def import_key(self, file: StagedFile, number: int, *, checkpoint_id: int, token: int) -> str:
        check_partition(self.name, file, self._partition)
        return f"{staged_prefix(checkpoint_id, token)}{number}-{file.sha256}.parquet"

    def stored_sizes(self, keys: Iterable[str]) -> dict[str, int]:
        return self._files.stored_sizes(keys)

    @property
    def store(self) -> ObjectStore:
        return self._store

    def objects(self) -> tuple[TableObject, ...]:
        return table_objects(self._store, self._format.log_prefix)

    def marks(self, *, above: int) -> tuple[Mark, ...]:
        marks = (self._marks.at(number) for number in self._marks.numbers() if number > above)
        return tuple(mark for mark in marks if mark is not None)

    def delete_marks(self, *, below: int, kept: Collection[int] = ()) -> None:
        self._marks.delete([number for number in self._marks.numbers() if number < below and number not in kept])

    def garbage(self) -> TableGarbage:
        return TableGarbage(self._store)

    def maintain(self) -> None:
        self._format.maintain(self._retention_ms)

    def probe(self) -> str:
        return self._mover.probe()

    def _owner(self, identity: str) -> TableOwner:
        return TableOwner(self._job, identity, self.name)

    def _ready_table(
        self,
        committable: Committable,
        base: TableContents | None,
        waits: bool,
        read_table: Callable[[], TableRead],
        before_change: Callable[[], None],
    ) -> tuple[OpenTable, TablePosition, pa.Schema]:
        """Create and claim the table if necessary; return it with its position and the columns of the contents."""
        for attempt in range(MAX_LOST_RACES):
            table, position = self._mover.read_table() if attempt else read_table()
            schema = self._next_schema(committable, base, table)
            if not waits:
                self._mover.check_position(position, base)  # first, or a table may be created in the wrong catalog
            if table is None:
                before_change()
                self._mover.create_table(schema)
                continue
            table.check(schema)
            if self._ownership.ensure_owned(table, None if base is None else base.table_id, before_change):
                return table, position, schema
        raise CommitConflict(
            f"sink {self.name}: other writers changed its table {MAX_LOST_RACES} times before its properties were set. "
            "Nothing was published.",
            hint="run the epoch again",
            sink=self.name,
        )

    def _checked_rows(self, committable: Committable) -> Iterator[pa.Table]:
        """Yield the rows of an epoch piece by piece, each checked by the format of a database table."""
        self.check_committable(committable)
        columns = decode_schema(committable.schema)
        self._format.check_columns(columns)
        for file in committable.files:
            for changes in self._files.pieces(file, ReadOptions(columns, verify=True, deletes=True)):
                self._format.check_rows(changes.select(columns.names))  # including the keys of deletes
                yield without_deletes(changes)

    def _next_schema(self, committable: Committable, base: TableContents | None, table: OpenTable | None) -> pa.Schema:
        """Check the staged rows; return the columns of the contents after the epoch. The table may have more."""
        self.check_committable(committable)
        rows = decode_schema(committable.schema)
        check_rows_schema(self.name, rows, self.key)
        schema = merged_schema(self.name, decode_schema(base.schema) if base is not None else None, rows)
        if self._partition is not None:
            self._partition.check(self.name, rows)
        if table is not None and table.schema is not None:
            widened_schema(self.name, table.schema, schema)
        return schema

    def _count(self, contents: TableContents | None) -> int:
        mode, key = self.stored_mode_and_key()
        if contents is None or mode is not SinkMode.UPSERT:
            return 0 if contents is None else contents.rows
        files, schema = self._records.files(contents), decode_schema(contents.schema)
        if all(file.groups is not None for file in files):
            return contents.rows
        pieces = self._files.latest_pieces(files, ReadOptions(schema, columns=key or None), key)
        return sum(rows.num_rows for rows in pieces)
