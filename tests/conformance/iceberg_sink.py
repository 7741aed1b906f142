"""A table in Iceberg in the tests of sinks, on a local store beside SQLite as its catalog."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from milepost.dataflow.sinks.iceberg.catalogs import CatalogConfig, CatalogKind
from milepost.dataflow.sinks.iceberg.iceberg_format import IcebergFormat
from milepost.dataflow.sinks.reservation import RESERVATION
from milepost.protocol.records.object_store import ObjectStore
from tests.conformance.sink_case import SinkCase

TABLE = ("shop", "table")


class IcebergCase(SinkCase):
    """Mixed into what a subclass tests."""

    format_name = "iceberg"

    def table_format(self, store: ObjectStore) -> IcebergFormat:
        return IcebergFormat("table", CatalogConfig(CatalogKind.SQL, self.catalog_uri(store), TABLE), store)

    def catalog_uri(self, store: ObjectStore) -> str:
        """Return the catalog of the table at a store's root."""
        folder = Path(store.config.url.removeprefix("file://"))
        return f"sqlite:///{folder.with_name(f'{folder.name} catalog.db')}"

    def drop(self, root: Path) -> None:
        store = self.table_store(root)
        store.delete([RESERVATION])
        try:
            SqlCatalog("milepost", uri=self.catalog_uri(store)).drop_table(TABLE)
        except NoSuchTableError:
            return
