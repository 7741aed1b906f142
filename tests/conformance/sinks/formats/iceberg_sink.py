"""A table in Iceberg in the tests of sinks, on a local store with SQLite as its catalog."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.formats.iceberg.iceberg_format import IcebergFormat
from milepost.tables.iceberg.catalogs import CatalogConfig, CatalogKind
from milepost.tables.iceberg.locations import table_location
from milepost.tables.records.reservation import RESERVATION
from tests.conformance.sinks.contract.case import Pairs, SinkCase, pairs

TABLE = ("shop", "table")


class IcebergCase(SinkCase):
    """Mixed into what a subclass tests."""

    format_name = "iceberg"

    def table_format(self, store: ObjectStore) -> IcebergFormat:
        config = CatalogConfig(CatalogKind.SQL, self.catalog_uri(store), TABLE)
        return IcebergFormat("table", config, store, self.partition_by)

    def catalog_uri(self, store: ObjectStore) -> str:
        """Return the catalog of the table at a store's root."""
        folder = Path(unquote(store.config.url.removeprefix("file://")))
        folder.parent.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{folder.with_name(f'{folder.name} catalog.db')}"

    def drop(self, root: Path) -> None:
        store = self.table_store(root)
        store.delete([RESERVATION])
        try:
            SqlCatalog("milepost", uri=self.catalog_uri(store)).drop_table(TABLE)
        except NoSuchTableError:
            return

    def loaded(self, root: Path) -> Table:
        """Return the table as it is now, for another client of its catalog."""
        return SqlCatalog("milepost", uri=self.catalog_uri(self.table_store(root))).load_table(TABLE)


class ForeignIceberg(IcebergCase):
    """With an external writer that creates the table and adds rows."""

    def make_foreign(self, root: Path, table: pa.Table) -> None:
        store = self.table_store(root)
        catalog = SqlCatalog("milepost", uri=self.catalog_uri(store))
        catalog.create_namespace_if_not_exists(TABLE[:-1])
        location = table_location(store.config)
        catalog.create_table(TABLE, table.schema, location)
        if table.num_rows:
            self.append_foreign(root, table)

    def append_foreign(self, root: Path, table: pa.Table) -> None:
        self.loaded(root).append(table)

    def engine_rows(self, root: Path) -> Pairs:
        return pairs(self.loaded(root).scan().to_arrow())
