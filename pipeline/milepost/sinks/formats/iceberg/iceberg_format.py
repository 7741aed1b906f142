"""Open, create, probe and maintain an Iceberg table through its catalog."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import TableProperties
from pyiceberg.table.name_mapping import create_mapping_from_schema

from milepost.errors import CommitConflict, InvalidRequest
from milepost.protocol.records import ObjectStore
from milepost.sinks.formats.iceberg.mark import owner_properties
from milepost.sinks.formats.iceberg.open_table import IcebergTable, TableContext
from milepost.sinks.formats.iceberg.partitioning import partition_spec
from milepost.sinks.formats.iceberg.refusals import GC_ENABLED
from milepost.sinks.formats.iceberg.schemas import to_iceberg
from milepost.tables.iceberg import CatalogConfig, normal_location, open_catalog, table_location, translated_errors
from milepost.tables.records import TableOwner

_PREVIOUS_METADATA = 20
_MERGED_MANIFESTS = 16
_HISTORY = 1_000
"""Untagged snapshots to retain. Each takes 730 B in the metadata, which every commit writes and every reader reads."""
_MIN_EXPIRED = 16
"""Fewer snapshots are not expired, because that takes a commit of its own."""


class IcebergFormat:
    """One table in Iceberg; see `table_format.TableFormat`.

    A commit deletes the metadata files that it drops from the table's log. Expiring a snapshot deletes its manifests.
    Files of failed commits, and of snapshots that another writer expires, stay below ``metadata/``. Data files are
    never deleted here, and `gc.enabled` = false prevents other engines from deleting them.
    """

    keeps_statistics = True
    is_database = False
    caches_reads = False
    log_prefix = "metadata/"
    stores_owner = True

    def __init__(
        self, sink: str, catalog: CatalogConfig, store: ObjectStore, partition_by: tuple[str, ...] = ()
    ) -> None:
        """Args: sink: the sink's name, for messages. store: rooted at the table; subtasks stage in it.
        partition_by: columns."""
        self._partition_by = partition_by
        self._sink = sink
        self._config = catalog
        self._store = store
        self._opened: tuple[int, Catalog] | None = None

    def __repr__(self) -> str:
        return f"IcebergFormat({self._sink!r}, {self._config!r}, {self._store!r})"

    def check_columns(self, schema: pa.Schema) -> None:
        to_iceberg(self._sink, schema)

    def open(self) -> IcebergTable | None:
        root = table_location(self._store.config)
        with self._errors(f"sink {self._sink}: its table {self._config.table_name} was not opened"):
            try:
                table = self._catalog().load_table(self._config.table)
            except NoSuchTableError:
                return None
        if normal_location(table.location()) != root:
            raise InvalidRequest(
                f"sink {self._sink}: table {self._config.table_name} is at {table.location()}, but the sink's path is "
                f"{root}. Nothing was published.",
                hint="set the sink's path to the table's location, or give it another table",
            )
        return IcebergTable(table, TableContext(self._sink, self._config, root, self._store, self._partition_by))

    def recent(self) -> None:
        """Return None: every commit opens the table first."""

    def create(self, owner: TableOwner, schema: pa.Schema) -> None:
        columns = assign_fresh_schema_ids(to_iceberg(self._sink, schema))
        root = table_location(self._store.config)
        with self._errors(f"sink {self._sink}: its table {self._config.table_name} was not created"):
            catalog = self._catalog()
            namespace = self._config.table[:-1]
            try:
                if not catalog.namespace_exists(namespace):
                    catalog.create_namespace(namespace)
            except NamespaceAlreadyExistsError:
                pass
            try:
                parts = partition_spec(columns, self._partition_by)
                catalog.create_table(self._config.table, columns, root, parts, properties=_properties(owner, columns))
            except TableAlreadyExistsError:
                return

    def check_rows(self, rows: pa.Table) -> None:
        """Accept all rows: if the format can store the columns, it can store every value."""

    def probe(self) -> str:
        namespace = self._config.table[:-1]
        with self._errors(f"sink {self._sink}: {self._config.where} was not probed"):
            exists = self._catalog().namespace_exists(namespace)
        name = ".".join(namespace)
        answer = (
            f"has namespace {name}"
            if exists
            else f"answers; the first epoch creates namespace {name}, if it is allowed to"
        )
        limits = "only a commit shows if it accepts commits; Milepost cannot stop an engine that ignores gc.enabled"
        return f"{self._config.where} {answer}; {limits}"

    def maintain(self, retention_ms: int) -> None:
        """Expire the job's old snapshots. If another commit comes first, the next call tries again."""
        table = self.open()
        if table is None:
            return
        try:
            before_ms = time.time_ns() // 1_000_000 - retention_ms
            table.expire(before_ms, at_most=_HISTORY, at_least=_MIN_EXPIRED)
        except CommitConflict:
            return

    def _errors(self, failure: str) -> AbstractContextManager[None]:
        return translated_errors(self._config, failure)

    def _catalog(self) -> Catalog:
        """Return the catalog. Each process opens its own, because connections must not cross a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), open_catalog(self._config, self._store))
        return self._opened[1]


def _properties(owner: TableOwner, columns: Schema) -> dict[str, str]:
    """Return the properties of a new table: its owner, its name mapping, and limits on its metadata."""
    return {
        **owner_properties(owner),
        TableProperties.DEFAULT_NAME_MAPPING: create_mapping_from_schema(columns).model_dump_json(),
        TableProperties.MANIFEST_MERGE_ENABLED: "true",
        TableProperties.MANIFEST_MIN_MERGE_COUNT: str(_MERGED_MANIFESTS),
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
        TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: str(_PREVIOUS_METADATA),
        GC_ENABLED: "false",
    }
