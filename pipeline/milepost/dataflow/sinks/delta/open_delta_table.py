"""An open Delta table is one look at its log, and commits on just that: atomically, or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import cached_property
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties
from deltalake.transaction import AddAction, RemoveAction, Transaction

from milepost.dataflow.sinks.committables import StagedFile
from milepost.dataflow.sinks.delta.delta_checks import TableTraits, check_schema, check_traits
from milepost.dataflow.sinks.delta.delta_errors import translated_errors
from milepost.dataflow.sinks.delta.delta_location import DeltaLocation
from milepost.dataflow.sinks.delta.delta_log import OurCommit, SinceOurs, commits_since_ours
from milepost.dataflow.sinks.delta.delta_types import arrow_schema, delta_field
from milepost.dataflow.sinks.reservation import TableOwner
from milepost.dataflow.sinks.table_format import ForeignCommit, TableMove
from milepost.protocol.records.errors import CommitOutcomeUnknown, StateCorrupt, StoreUnavailable
from milepost.protocol.records.object_store import ObjectStore

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
        self, sink: str, store: ObjectStore, location: DeltaLocation, table: DeltaTable, retention_ms: int
    ) -> None:
        self._sink = sink
        self._store = store
        self._location = location
        self._table = table
        self._retention_ms = retention_ms
        metadata = table.metadata()
        self.version = table.version()
        self._columns = json.loads(table.schema().to_json())
        self.table_id = str(metadata.id)
        self.owner = owner_in(metadata.configuration)
        self.number = self._number()
        self.write_id = self._write_id() if self.number else None
        self.schema = arrow_schema(sink, self._columns)

    def check(self, schema: pa.Schema) -> None:
        metadata, protocol = self._table.metadata(), self._table.protocol()
        traits = TableTraits(
            properties=metadata.configuration,
            writer_features=frozenset(protocol.writer_features or ()),
            partition_columns=tuple(metadata.partition_columns),
            fields=tuple(self._columns["fields"]),
        )
        check_traits(self._sink, traits, self._retention_ms)
        check_schema(self._sink, self.schema, schema)

    def live(self) -> Mapping[str, int]:
        with translated_errors(self._location, self._unreadable):
            files = pa.table(self._table.get_add_actions()).select(["path", "size_bytes"])
        return {unquote(file["path"]): file["size_bytes"] for file in files.to_pylist()}

    def foreign(self) -> tuple[ForeignCommit, ...]:
        return self._since_ours.foreign

    def widen(self, schema: pa.Schema) -> None:
        there = self.schema.names if self.schema is not None else []
        added = [Field.from_json(json.dumps(delta_field(field))) for field in schema if field.name not in there]
        with translated_errors(self._location, lambda reason: self._unknown("was not widened", reason)):
            self._table.alter.add_columns(
                added, commit_properties=self._properties(None, None), post_commithook_properties=NO_HOOKS
            )

    def commit(self, move: TableMove) -> None:
        now_ms = time.time_ns() // 1_000_000
        changes_rows = not move.keeps_rows
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.key, file.size, {}, now_ms, changes_rows, _statistics(file)) for file in move.added
        ]
        actions += [RemoveAction(file.key, changes_rows, now_ms, file.size, {}) for file in move.removed]
        with translated_errors(self._location, lambda reason: self._unknown("may not show what it should", reason)):
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                commit_properties=self._properties(move.number, move.write_id),
                post_commithook_properties=NO_HOOKS,
            )

    @cached_property
    def _since_ours(self) -> SinceOurs:
        return commits_since_ours(self._store, self._table.version(), self.owner)

    def _number(self) -> int:
        """Return the number by the table's transactions, which outlive the objects of its log."""
        if self.owner is None:
            return 0
        with translated_errors(self._location, self._unreadable):
            return self._table.transaction_version(_application(self.owner)) or 0

    def _write_id(self) -> str | None:
        """Return what our newest move says; None: others wrote so much since that the log no longer has it.

        RESTORE takes files back but no transaction: both are of our newest move, whatever was done to it since.
        """
        ours = self._since_ours.ours
        if ours is not None and ours.number != self.number:
            raise StateCorrupt(
                f"sink {self._sink}: the Delta table {self._store.config.url} contradicts itself: the newest commit of "
                f"this sink has the number {ours.number}, its transaction {self.number}. Nothing was published.",
                hint="find out who wrote to its log, and restore it",
                sink=self._sink,
            )
        return ours.write_id if ours is not None else None

    def _properties(self, number: int | None, write_id: str | None) -> CommitProperties:
        """Return what a commit carries: whose it is, and of a move its number, as a transaction too; no retries.

        A retry would put the commit on top of what others did meanwhile, unseen.
        """
        if self.owner is None:
            return CommitProperties(max_commit_retries=0)
        ours = OurCommit(self.owner.identity, self.owner.sink, number, write_id)
        transactions = [Transaction(_application(self.owner), number)] if number is not None else None
        return CommitProperties(ours.as_metadata(), max_commit_retries=0, app_transactions=transactions)

    def _unknown(self, what: str, reason: str) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"sink {self._sink}: the Delta table {self._store.config.url} {what}: {reason}. Whether the commit landed "
            "is not known before the table is opened again.",
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


def _application(owner: TableOwner) -> str:
    """Return what a table's transactions call a sink."""
    return f"milepost/{owner.identity}/{owner.sink}"


def _statistics(file: StagedFile) -> str:
    return file.statistics or json.dumps({"numRecords": file.rows})
