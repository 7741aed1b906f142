"""An open Delta table is one look at its log, and commits on just that: atomically, or not at all."""

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
from milepost.protocol.records.cached_property import cached_property
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.formats.delta.delta_checks import TableTraits, check_schema, check_traits, short_retentions
from milepost.sinks.formats.delta.delta_errors import FAULTS, parse_reason, translated_errors
from milepost.sinks.formats.delta.delta_location import DeltaLocation
from milepost.sinks.formats.delta.delta_log import (
    LogTail,
    OurCommit,
    log_key,
    our_protocol_changes,
    read_log_tail,
)
from milepost.sinks.formats.delta.delta_metadata import (
    VARIANT,
    Action,
    Protocol,
    commit_body,
    metadata_action,
    transaction_actions,
)
from milepost.sinks.formats.delta.delta_types import arrow_schema, delta_field, has_timestamp_ntz
from milepost.sinks.records.committables import StagedFile
from milepost.sinks.records.reservation import TableOwner, is_same_owner
from milepost.sinks.table_format import ForeignCommit, TableMove

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""What the library would do after a commit on its own: a fault of that would pass for one of the commit."""

_OWNER = {"job": "milepost.job", "identity": "milepost.identity", "sink": "milepost.sink"}


def properties_of(owner: TableOwner) -> dict[str, str]:
    """Return an owner as properties of the table."""
    return {name: getattr(owner, attribute) for attribute, name in _OWNER.items()}


def owner_in(properties: Mapping[str, str]) -> TableOwner | None:
    """Return whose a table with these properties is; None: nobody's."""
    said = {attribute: properties.get(name) for attribute, name in _OWNER.items()}
    if said["identity"] is None or said["sink"] is None:
        return None
    return TableOwner(said["job"] or "", said["identity"], said["sink"])


class OpenDeltaTable:
    """One version of a Delta table, as `OpenTable` has it; the log is read back by whoever asks for what is in it.

    Raises: InvalidRequest: a column of a type that Milepost does not know. StateCorrupt: the log contradicts itself.
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
        check_traits(self._sink, traits, self._partition_by)
        if schema is not None:
            check_schema(self._sink, self.schema, schema)

    def missing_properties(self, owner: TableOwner) -> Mapping[str, str]:
        properties = self._table.metadata().configuration
        whose = {} if is_same_owner(self.owner, owner) else properties_of(owner)
        return whose | short_retentions(self._sink, properties, self._retention_ms)

    def claim(self, owner: TableOwner, properties: Mapping[str, str], mark: tuple[int, str] | None) -> None:
        transactions: list[Transaction] = []
        ours = OurCommit(owner.identity, owner.sink)
        if mark is not None:
            ours, transactions = _mark(owner, *mark)
        metadata = metadata_action(self._table, self._columns, properties)
        self._commit_metadata(
            "SET TBLPROPERTIES",
            {"properties": json.dumps(dict(properties))},
            ours,
            [metadata, *transaction_actions(transactions)],
        )

    def check_keys(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> None:
        """Nothing: rows of others lie in files of their own."""

    def rows_fault(self, files: Sequence[StagedFile]) -> str | None:
        """Nothing: its rows are those of its files."""
        return None

    def live_files(self) -> Mapping[str, int]:
        with translated_errors(self._location, self._unreadable):
            files = pa.table(self._table.get_add_actions()).select(["path", "size_bytes"])
        return {unquote(file["path"]): file["size_bytes"] for file in files.to_pylist()}

    def foreign_commits(self) -> tuple[ForeignCommit, ...]:
        return self._since_ours.foreign

    def history(self) -> tuple[ForeignCommit, ...]:
        columns = tuple(self._table.metadata().partition_columns)
        return read_log_tail(self._store, self._table.version(), None, columns).foreign

    def widen(self, schema: pa.Schema) -> None:
        self.check(None)
        there = self.schema.names if self.schema is not None else []
        added = [field for field in schema if field.name not in there]
        fields = [delta_field(field) for field in added]
        columns = {**self._columns, "fields": [*self._columns["fields"], *fields]}
        before = after = Protocol.of(self._table)
        if any(has_timestamp_ntz(field.type) for field in added):
            after = before.with_timestamp_ntz()
        self._commit_metadata(
            "ADD COLUMNS",
            {"columns": json.dumps(fields)},
            OurCommit(self.owner.identity, self.owner.sink) if self.owner is not None else None,
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
                OurCommit(self.owner.identity, self.owner.sink),
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
            raise ProtocolViolation(f"sink {self._sink}: a Delta table that is nobody's was to be moved.")
        ours, transactions = _mark(self.owner, move.number, move.write_id)
        with self._committing(ours, transactions) as properties:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                self._table.metadata().partition_columns,
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )

    @cached_property
    def _since_ours(self) -> LogTail:
        columns = tuple(self._table.metadata().partition_columns)
        found = read_log_tail(self._store, self._table.version(), self.owner, columns)
        if found.ours is not None and (found.ours.number, found.ours.write_id) != (self.number, self.write_id):
            raise StateCorrupt(
                f"sink {self._sink}: the Delta table {self._store.config.url} contradicts itself: the newest commit of "
                f"this sink has the number {found.ours.number}, its transaction {self.number}. Nothing was published.",
                hint="find out who wrote to its log, and restore it",
                sink=self._sink,
            )
        return found

    def _added_variant_feature(self) -> bool:
        """Return whether a recent commit of this sink added the feature to a protocol that did not have it."""
        for version in our_protocol_changes(self._store, self.version, self.owner):
            with suppress(*FAULTS):  # the log may not reach back so far
                before = DeltaTable(self._location.uri, version=version - 1, storage_options=self._location.options)
                if VARIANT not in Protocol.of(before).writer_features:
                    return True
        return False

    def _newest_move(self) -> tuple[int, str | None]:
        """Return number and write id by the table's transactions.

        They outlive the objects of its log. RESTORE takes files back, but no transaction: they are of our newest move,
        whatever was done to it since.
        """
        if self.owner is None:
            return 0, None
        with translated_errors(self._location, self._unreadable):
            number, first, second = map(self._table.transaction_version, _applications(self.owner))
        if number is None:
            return 0, None
        return number, _joined(first, second) if first is not None and second is not None else None

    @contextmanager
    def _committing(self, ours: OurCommit | None, transactions: list[Transaction]) -> Iterator[CommitProperties]:
        """Give what a commit carries: whose it is, and no leave to try again, on top of what others did meanwhile.

        Raises: CommitConflict: the version is taken, maybe by this very commit, whose answer was lost.
            CommitOutcomeUnknown: anything else.
        """
        taken = None
        with translated_errors(self._location, self._unknown):
            try:
                yield CommitProperties(
                    ours.as_metadata() if ours is not None else None,
                    max_commit_retries=0,
                    app_transactions=transactions or None,
                )
            except CommitFailedError as error:
                taken = parse_reason(self._location, error)
        if taken is not None:
            raise self._taken(taken)

    def _commit_metadata(
        self, operation: str, parameters: Mapping[str, str], ours: OurCommit | None, actions: Iterable[Action]
    ) -> None:
        """Commit what changes no rows as the next version, by a conditional write. Raises: as `commit`."""
        info = ours.as_metadata() if ours is not None else {}
        body = commit_body(operation, parameters, time.time_ns() // 1_000_000, info, actions)
        try:
            self._store.create(log_key(self.version + 1), body)
        except CommitConflict as error:
            raise self._taken(error.message) from error
        except CommitOutcomeUnknown as error:
            raise self._unknown(error.message) from error

    def _taken(self, reason: str) -> CommitConflict:
        return CommitConflict(
            f"sink {self._sink}: the Delta table {self._store.config.url} was changed by another commit: {reason}. "
            "Nothing else is known before the table is opened again: that commit may be our own.",
            hint="try again",
            sink=self._sink,
        )

    def _unknown(self, reason: str) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"sink {self._sink}: nobody knows whether a commit to the Delta table {self._store.config.url} landed: "
            f"{reason}. The table says so when it is opened again.",
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


def _mark(owner: TableOwner, number: int, write_id: str) -> tuple[OurCommit, list[Transaction]]:
    """Return what a move leaves in the log, and what stays when the log is cut. Number 0: it became the owner's."""
    versions = (number, *_halves(write_id))
    transactions = [Transaction(*said) for said in zip(_applications(owner), versions, strict=True)]
    return OurCommit(owner.identity, owner.sink, number, write_id), transactions


def _applications(owner: TableOwner) -> tuple[str, str, str]:
    """Return what a table's transactions call a sink: its number, and the two halves of its write id.

    A transaction is one signed number of 64 bits, and what else a commit says goes with the log.
    """
    sink = f"milepost/{owner.identity}/{owner.sink}"
    return sink, f"{sink}/write-id/0", f"{sink}/write-id/1"


def _halves(write_id: str) -> tuple[int, int]:
    """Return 32 hexadecimal digits as two signed numbers."""
    first, second = struct.unpack(">qq", bytes.fromhex(write_id))
    return first, second


def _joined(first: int, second: int) -> str:
    return struct.pack(">qq", first, second).hex()


def _statistics(file: StagedFile) -> str:
    return file.statistics or json.dumps({"numRecords": file.rows})
