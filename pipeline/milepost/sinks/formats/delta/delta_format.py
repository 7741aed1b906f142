"""Open, create, probe and maintain a Delta table with the `deltalake` library."""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError

from milepost.errors import CommitOutcomeUnknown, InvalidRequest, StoreUnavailable
from milepost.protocol.records import ObjectStore
from milepost.sinks.formats.delta.delta_log import JobCommit, last_checkpoint
from milepost.sinks.formats.delta.delta_log_faults import LogFault, log_fault, realign_hint
from milepost.sinks.formats.delta.delta_metadata import VARIANT, Protocol
from milepost.sinks.formats.delta.delta_probe import probe_commits
from milepost.sinks.formats.delta.delta_types import check_columns, delta_schema
from milepost.sinks.formats.delta.locations import delta_location
from milepost.sinks.formats.delta.open_delta_table import NO_HOOKS, OpenDeltaTable, properties_of
from milepost.tables.delta import (
    FAULTS,
    FILE_RETENTION,
    LOG,
    LOG_RETENTION,
    DeltaLocation,
    duration_ms,
    interval,
    parse_reason,
    translated_errors,
)
from milepost.tables.records import OWN, TableOwner

COMMITS_PER_CHECKPOINT = 10
"""Number of commits after which a checkpoint of the log is written. A reader fetches at most as many one by one."""


class DeltaFormat:
    """One Delta table; see `table_format.TableFormat`.

    Args:
        sink: its name, for messages. store: rooted at the table. partition_by: columns.
        retention_ms: how long removed files must remain: the age of retained checkpoints, plus grace.
    """

    keeps_statistics = True
    is_database = False
    caches_reads = False
    log_prefix = LOG
    stores_owner = True

    def __init__(self, sink: str, store: ObjectStore, retention_ms: int, partition_by: tuple[str, ...] = ()) -> None:
        self._sink = sink
        self._store = store
        self._retention_ms = retention_ms
        self._partition_by = partition_by

    def check_columns(self, schema: pa.Schema) -> None:
        check_columns(self._sink, schema)

    def open(self) -> OpenDeltaTable | None:
        location = delta_location(self._sink, self._store.config)
        table = self._table(location)
        return None if table is None else self._opened(location, table)

    def recent(self) -> None:
        """Return None: every commit opens the table first."""

    def create(self, owner: TableOwner, schema: pa.Schema) -> None:
        check_columns(self._sink, schema)
        location = delta_location(self._sink, self._store.config)
        retention = interval(self._retention_ms)
        properties = CommitProperties(JobCommit(owner.identity, owner.sink).as_metadata(), max_commit_retries=0)
        reason = None
        try:
            DeltaTable.create(
                location.uri,
                Schema.from_json(delta_schema(schema)),
                partition_by=list(self._partition_by) or None,
                configuration={FILE_RETENTION: retention, LOG_RETENTION: retention, **properties_of(owner)},
                storage_options=location.options,
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
                raise_if_key_not_exists=False,
            )
        except FAULTS as error:
            reason = parse_reason(location, error)
        if reason is not None and self._table(location) is None:
            raise CommitOutcomeUnknown(
                f"sink {self._sink}: the Delta table {self._store.config.url} could not be created: {reason}. "
                "Nothing was published.",
                hint="try again",
                sink=self._sink,
            )

    def check_rows(self, rows: pa.Table) -> None:
        """Accept all rows: if the format can store the columns, it can store every value."""

    def probe(self) -> str:
        findings = probe_commits(self._sink, self._store)
        return (
            f"{findings}; Milepost cannot prevent a VACUUM by an engine that does not skip folders with `_`, nor, on "
            "S3, commits of another library without conditional writes: allow neither"
        )

    def maintain(self, retention_ms: int) -> None:
        location = delta_location(self._sink, self._store.config)
        table = self._table(location)
        if table is None:
            return
        if VARIANT in Protocol.of(table).writer_features:
            self._opened(location, table).drop_variant_feature()
        if table.version() - last_checkpoint(self._store) < COMMITS_PER_CHECKPOINT:
            return
        with translated_errors(location, lambda reason: self._unavailable("its log could not be shortened", reason)):
            table.create_checkpoint()
            if (duration_ms(table.metadata().configuration, LOG_RETENTION) or 0) >= retention_ms:
                table.cleanup_metadata()

    def _opened(self, location: DeltaLocation, table: DeltaTable) -> OpenDeltaTable:
        return OpenDeltaTable(self._sink, self._store, location, table, self._retention_ms, self._partition_by)

    def _table(self, location: DeltaLocation) -> DeltaTable | None:
        """Return the library's handle on the table as it is now; None if there is none.

        The object store is queried first, because its errors name the bucket, endpoint or credentials to correct.
        """
        if next(iter(self._store.list(LOG, limit=1)), None) is None:
            self._check_empty()
            return None
        with translated_errors(location, lambda reason: self._unavailable("it could not be opened", reason)):
            try:
                return DeltaTable(location.uri, storage_options=location.options)
            except DeltaError as error:
                fault = parse_reason(location, error)
        log_problem = log_fault(self._sink, self._store) or LogFault(
            fault,
            "give the sink a new path, or repair the table with the engine that wrote it"
            + realign_hint(self._sink, self._store),
        )
        raise InvalidRequest(
            f"sink {self._sink}: {self._store.config.url} cannot be opened as a Delta table: "
            f"{log_problem.what}. Nothing was published.",
            hint=log_problem.remedy,
            sink=self._sink,
        )

    def _check_empty(self) -> None:
        for stat in self._store.list(""):
            if not stat.key.startswith(OWN):
                raise InvalidRequest(
                    f"sink {self._sink}: {self._store.config.url} has no Delta table, but another object: "
                    f"{stat.key}. Nothing was published.",
                    hint="give the sink an empty path",
                    sink=self._sink,
                )

    def _unavailable(self, what: str, reason: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"sink {self._sink}: the Delta table {self._store.config.url}: {what}: {reason}. Nothing was changed.",
            hint="try again",
            sink=self._sink,
        )
