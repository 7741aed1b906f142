"""A Delta table as of one version, and compare-and-set commits of the next version.

A move is recorded twice in a commit, because a log is shortened but its transactions are not:

    commitInfo.milepost     identity, sink, number 97, writeId
    txn milepost/<identity>/<sink>               97
    txn milepost/<identity>/<sink>/write-id/0    first half of the write id, as a signed 64-bit number
    txn milepost/<identity>/<sink>/write-id/1    second half
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from milepost.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    ProtocolViolation,
    StateCorrupt,
    StoreUnavailable,
)
from milepost.protocol.records import ObjectStore, cached_property
from milepost.sinks.formats.delta.delta_log import JobCommit, LogTail, job_protocol_changes, read_log_tail
from milepost.sinks.formats.delta.delta_metadata import (
    VARIANT,
    Action,
    Protocol,
    commit_body,
    metadata_action,
    transaction_actions,
)
from milepost.sinks.formats.delta.delta_types import arrow_schema, delta_field, has_timestamp_ntz
from milepost.sinks.formats.delta.refusals import TableTraits, check_schema, refuse_traits, short_retentions
from milepost.sinks.table_format import ForeignCommit, TableMove
from milepost.tables.delta import FAULTS, DeltaLocation, log_key, parse_reason, translated_errors
from milepost.tables.records import StagedFile, TableOwner, is_same_owner

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Disables what the library does after a commit. An error there would look like an error of the commit."""

_OWNER = {"job": "milepost.job", "identity": "milepost.identity", "sink": "milepost.sink"}


def properties_of(owner: TableOwner) -> dict[str, str]:
    """Return the table properties that name the owner."""
    return {name: getattr(owner, attribute) for attribute, name in _OWNER.items()}


def owner_in(properties: Mapping[str, str]) -> TableOwner | None:
    """Return the owner that the properties name; None if the table is unowned."""
    values = {attribute: properties.get(name) for attribute, name in _OWNER.items()}
    if values["identity"] is None or values["sink"] is None:
        return None
    return TableOwner(values["job"] or "", values["identity"], values["sink"])


class OpenDeltaTable:
    """One version of a Delta table; see `table_format.OpenTable`. The log is read lazily.

    Raises: InvalidRequest: a column has an unknown type. StateCorrupt: the log contradicts itself.
    """

    def __init__(
        self,
        sink: str,
        store: ObjectStore,
        location: DeltaLocation,
        table: DeltaTable,
        retention_ms: int,
        partition_by: tuple[str, ...] = (),
    ) -> None:
        self._sink = sink
        self._store = store
        self._location = location
        self._table = table
        self._retention_ms = retention_ms
        self._partition_by = partition_by
        metadata = table.metadata()
        self.version = table.version()
        self.readers_version: str | None = str(self.version)
        self._columns = json.loads(table.schema().to_json())
        self.table_id = str(metadata.id)
        self.owner = owner_in(metadata.configuration)
        self.number, self.write_id = self._newest_move()
        self.schema = arrow_schema(sink, self._columns)

    def check(self, schema: pa.Schema | None) -> None:
        metadata = self._table.metadata()
        traits = TableTraits(
            properties=metadata.configuration,
            protocol=Protocol.of(self._table),
            partition_columns=tuple(metadata.partition_columns),
            fields=tuple(self._columns["fields"]),
        )
        refuse_traits(self._sink, self._store.config.url, traits, self._partition_by)
        if schema is not None:
            check_schema(self._sink, self.schema, schema)

    def missing_properties(self, owner: TableOwner) -> Mapping[str, str]:
        properties = self._table.metadata().configuration
        whose = {} if is_same_owner(self.owner, owner) else properties_of(owner)
        return whose | short_retentions(self._sink, self._store.config.url, properties, self._retention_ms)

    def claim(self, owner: TableOwner, properties: Mapping[str, str], mark: tuple[int, str] | None) -> None:
        transactions: list[Transaction] = []
        commit = JobCommit(owner.identity, owner.sink)
        if mark is not None:
            commit, transactions = _mark(owner, *mark)
        metadata = metadata_action(self._table, self._columns, properties)
        self._commit_metadata(
            "SET TBLPROPERTIES",
            {"properties": json.dumps(dict(properties))},
            commit,
            [metadata, *transaction_actions(transactions)],
        )

    def check_keys(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> None:
        """Accept all keys: rows of other writers are in files of their own."""

    def rows_fault(self, files: Sequence[StagedFile]) -> str | None:
        """Return None: the table's rows are those of its files."""
        return None

    def live_files(self) -> Mapping[str, int]:
        with translated_errors(self._location, self._unreadable):
            files = pa.table(self._table.get_add_actions()).select(["path", "size_bytes"])
        return {unquote(file["path"]): file["size_bytes"] for file in files.to_pylist()}

    def foreign_commits(self) -> tuple[ForeignCommit, ...]:
        return self._log_tail.foreign

    def history(self) -> tuple[ForeignCommit, ...]:
        columns = tuple(self._table.metadata().partition_columns)
        return read_log_tail(self._store, self._table.version(), None, columns).foreign

    def widen(self, schema: pa.Schema) -> None:
        self.check(None)
        existing = self.schema.names if self.schema is not None else []
        added = [field for field in schema if field.name not in existing]
        fields = [delta_field(field) for field in added]
        columns = {**self._columns, "fields": [*self._columns["fields"], *fields]}
        before = after = Protocol.of(self._table)
        if any(has_timestamp_ntz(field.type) for field in added):
            after = before.with_timestamp_ntz()
        self._commit_metadata(
            "ADD COLUMNS",
            {"columns": json.dumps(fields)},
            JobCommit(self.owner.identity, self.owner.sink) if self.owner is not None else None,
            [*([after.action()] if after != before else []), metadata_action(self._table, columns, {})],
        )

    def drop_variant_feature(self) -> None:
        """Drop `variantType` if an earlier version of Milepost added it together with a property of the table.

        No column uses it, and readers without it refuse the whole table. What another writer added stays.

        Raises: as `commit`.
        """
        if self.owner is not None and self._added_variant_feature():
            self._commit_metadata(
                "DROP FEATURE",
                {"featureName": VARIANT},
                JobCommit(self.owner.identity, self.owner.sink),
                [Protocol.of(self._table).without(VARIANT).action()],
            )

    def commit(self, move: TableMove) -> None:
        now_ms = time.time_ns() // 1_000_000
        same = move.same_rows
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.key, file.size, dict(file.partition), now_ms, file.key not in same, _statistics(file))
            for file in move.added
        ]
        actions += [
            RemoveAction(file.key, file.key not in same, now_ms, file.size, dict(file.partition))
            for file in move.removed
        ]
        if self.owner is None:
            raise ProtocolViolation(f"sink {self._sink}: a move of a Delta table without an owner.")
        commit, transactions = _mark(self.owner, move.number, move.write_id)
        with self._committing(commit, transactions) as properties:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                self._table.metadata().partition_columns,
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )

    @cached_property
    def _log_tail(self) -> LogTail:
        columns = tuple(self._table.metadata().partition_columns)
        tail = read_log_tail(self._store, self._table.version(), self.owner, columns)
        commit = tail.job_commit
        if commit is not None and (commit.number, commit.write_id) != (self.number, self.write_id):
            raise StateCorrupt(
                f"sink {self._sink}: the Delta table {self._store.config.url} is inconsistent: the newest commit of "
                f"this sink has number {commit.number}, its transaction {self.number}. Nothing was published.",
                hint="find out who wrote to its log, and restore it",
                sink=self._sink,
            )
        return tail

    def _added_variant_feature(self) -> bool:
        """Return whether a recent commit of this sink added the feature to a protocol that did not have it."""
        for version in job_protocol_changes(self._store, self.version, self.owner):
            with suppress(*FAULTS):  # the log may no longer have that version
                before = DeltaTable(self._location.uri, version=version - 1, storage_options=self._location.options)
                if VARIANT not in Protocol.of(before).writer_features:
                    return True
        return False

    def _newest_move(self) -> tuple[int, str | None]:
        """Return number and write id of the job's newest move, from the table's transactions.

        Transactions outlive the objects of the log, and RESTORE does not revert them. So they name the newest move,
        whatever other writers did to its files since.
        """
        if self.owner is None:
            return 0, None
        with translated_errors(self._location, self._unreadable):
            number, first, second = map(self._table.transaction_version, _applications(self.owner))
        if number is None:
            return 0, None
        return number, _joined(first, second) if first is not None and second is not None else None

    @contextmanager
    def _committing(self, job_commit: JobCommit | None, transactions: list[Transaction]) -> Iterator[CommitProperties]:
        """Yield the commit's properties, without retries, and translate its errors.

        With retries the library would commit on top of a foreign commit.

        Raises: CommitConflict: the version exists, possibly by this very commit. CommitOutcomeUnknown: any other error.
        """
        conflict = None
        with translated_errors(self._location, self._unknown):
            try:
                yield CommitProperties(
                    job_commit.as_metadata() if job_commit is not None else None,
                    max_commit_retries=0,
                    app_transactions=transactions or None,
                )
            except CommitFailedError as error:
                conflict = parse_reason(self._location, error)
        if conflict is not None:
            raise self._conflict(conflict)

    def _commit_metadata(
        self, operation: str, parameters: Mapping[str, str], job_commit: JobCommit | None, actions: Iterable[Action]
    ) -> None:
        """Commit actions that change no rows as the next version, by a conditional write. Raises: as `commit`."""
        info = job_commit.as_metadata() if job_commit is not None else {}
        body = commit_body(operation, parameters, time.time_ns() // 1_000_000, info, actions)
        try:
            self._store.create(log_key(self.version + 1), body)
        except CommitConflict as error:
            raise self._conflict(error.message) from error
        except CommitOutcomeUnknown as error:
            raise self._unknown(error.message) from error

    def _conflict(self, reason: str) -> CommitConflict:
        return CommitConflict(
            f"sink {self._sink}: the Delta table {self._store.config.url} was changed by another commit: {reason}. "
            "It may be a repeated request of this very commit, which the next read of the table shows.",
            hint="try again",
            sink=self._sink,
        )

    def _unknown(self, reason: str) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"sink {self._sink}: it is unknown whether a commit to the Delta table {self._store.config.url} landed: "
            f"{reason}. The next read of the table shows it.",
            hint="try again",
            sink=self._sink,
        )

    def _unreadable(self, reason: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"sink {self._sink}: the log of the Delta table {self._store.config.url} could not be read: {reason}. "
            "Nothing was published.",
            hint="try again",
            sink=self._sink,
        )


def _mark(owner: TableOwner, number: int, write_id: str) -> tuple[JobCommit, list[Transaction]]:
    """Return the commit metadata of a move, and its transactions. Number 0: the owner adopted the table."""
    versions = (number, *_halves(write_id))
    transactions = [Transaction(*pair) for pair in zip(_applications(owner), versions, strict=True)]
    return JobCommit(owner.identity, owner.sink, number, write_id), transactions


def _applications(owner: TableOwner) -> tuple[str, str, str]:
    """Return the application ids of a sink's transactions: for the number, and for the halves of the write id.

    Three are needed, because a transaction stores one signed 64-bit number.
    """
    sink = f"milepost/{owner.identity}/{owner.sink}"
    return sink, f"{sink}/write-id/0", f"{sink}/write-id/1"


def _halves(write_id: str) -> tuple[int, int]:
    """Return 32 hexadecimal digits as two signed 64-bit numbers: "00…01" "ff…ff" is 1, -1."""
    first, second = struct.unpack(">qq", bytes.fromhex(write_id))
    return first, second


def _joined(first: int, second: int) -> str:
    return struct.pack(">qq", first, second).hex()


def _statistics(file: StagedFile) -> str:
    return file.statistics or json.dumps({"numRecords": file.rows})
