"""One table in Iceberg as tests have it: our format, files as subtasks stage them, and a writer that is not ours."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import Credentials, ObjectStore, StoreConfig
from milepost.sinks.formats.iceberg.iceberg_format import IcebergFormat
from milepost.sinks.formats.iceberg.open_table import IcebergTable
from milepost.sinks.parquet_files.table_files import TableFiles
from milepost.sinks.table_format import TableMove
from milepost.storage.open import open_store
from milepost.tables.iceberg.catalogs import CatalogConfig, CatalogKind
from milepost.tables.records.committables import StagedFile, StagingContext
from milepost.tables.records.reservation import TableOwner
from milepost_testkit.servers.s3_servers import Ministack, SeaweedTables

OWNER = TableOwner("orders", "0001", "totals")
_CLIENTS = {CatalogKind.SQL: SqlCatalog, CatalogKind.REST: RestCatalog, CatalogKind.GLUE: GlueCatalog}
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@dataclass(frozen=True)
class IcebergLake:
    """A table's place.

    Attributes:
        foreign_options: of another client of the same catalog, which is not ours.
    """

    config: CatalogConfig
    store: ObjectStore
    foreign_options: dict[str, str]

    @cached_property
    def format(self) -> IcebergFormat:
        """Our format at that place."""
        return IcebergFormat(OWNER.sink, self.config, self.store)

    def made(self, schema: pa.Schema = SCHEMA) -> IcebergLake:
        """Make the table, and return this lake."""
        self.format.create(OWNER, schema)
        return self

    def opened(self) -> IcebergTable:
        """Return a new handle of the table, which is there."""
        table = self.format.open()
        assert table is not None
        return table

    def foreign_table(self) -> Table:
        """Return the table as another client has it."""
        kind = _CLIENTS[self.config.kind]
        return kind(self.config.name, **{"uri": self.config.uri, **self.foreign_options}).load_table(self.config.table)

    def stage(self, rows: pa.Table, *, name: str = "0") -> StagedFile:
        """Put a file as a subtask does."""
        files = TableFiles(OWNER.sink, self.store, statistics=True)
        staged = files.stage([rows], StagingContext(1, 1, 0, held_bytes=1 << 20), name)
        assert staged is not None
        return staged

    def staged(self, *keys: int) -> StagedFile:
        """Put a file of rows with these keys."""
        return self.stage(pa.table({"k": keys, "v": [f"v{key}" for key in keys]}, SCHEMA))

    def move(
        self, number: int, added: tuple[StagedFile, ...] = (), removed: tuple[StagedFile, ...] = (), **more: Any
    ) -> IcebergTable:
        """Commit on a new handle, and return the table after it."""
        self.opened().commit(move(number, added, removed, **more))
        return self.opened()

    def keys(self) -> list[int]:
        """Return the column `k` as another client reads it, in order."""
        found: list[int] = self.foreign_table().scan().to_arrow().column("k").to_pylist()
        return sorted(found)


def move(
    number: int, added: tuple[StagedFile, ...] = (), removed: tuple[StagedFile, ...] = (), **more: Any
) -> TableMove:
    """Return a move with a write id of its own."""
    return replace(TableMove(number, f"write-{number}-{uuid4().hex[:6]}", added, removed, SCHEMA), **more)


def lake_on_disk(folder: Path) -> IcebergLake:
    """Return a table's place in a folder, with SQLite as its catalog."""
    config = CatalogConfig(CatalogKind.SQL, f"sqlite:///{folder}/catalog.db", ("shop", "totals"))
    return IcebergLake(config, open_store(StoreConfig(file_url(folder / "all tötals"))), {})


def lake_on_server(server: SeaweedTables, *, catalog_url: str | None = None) -> IcebergLake:
    """Return a table's place on a server, in a namespace that all tests share; another URL may lead to its catalog."""
    name = f"totals{uuid4().hex[:12]}"
    credential = f"{server.access_key}:{server.secret_key}"
    config = CatalogConfig(
        CatalogKind.REST,
        catalog_url or server.catalog_url,
        ("shop", name),
        options={"warehouse": f"s3://{server.bucket}", "credential": credential},
    )
    store = open_store(
        StoreConfig(
            f"s3://{server.bucket}/shop/{name}",
            endpoint_url=server.endpoint_url,
            credentials=Credentials(server.access_key, server.secret_key),
        )
    )
    foreign = {
        **config.options,
        "uri": server.catalog_url,
        "oauth2-server-uri": f"{server.catalog_url}/v1/oauth/tokens",
        "s3.endpoint": server.endpoint_url,
        "s3.access-key-id": server.access_key,
        "s3.secret-access-key": server.secret_key,
        "s3.region": "us-east-1",
    }
    return IcebergLake(config, store, foreign)


def lake_in_glue(server: Ministack, *, endpoint_url: str | None = None) -> IcebergLake:
    """Return a table's place in a bucket, with AWS Glue as its catalog; another URL may lead to Glue."""
    name = f"totals{uuid4().hex[:12]}"
    config = CatalogConfig(CatalogKind.GLUE, endpoint_url or server.endpoint_url, ("shop", name))
    store = open_store(
        StoreConfig(
            f"s3://{server.shared_bucket}/shop/{name}",
            endpoint_url=server.endpoint_url,
            credentials=Credentials(server.access_key, server.secret_key),
        )
    )
    keys = {"access-key-id": server.access_key, "secret-access-key": server.secret_key, "region": "us-east-1"}
    foreign = {f"{service}.{option}": value for service in ("glue", "s3") for option, value in keys.items()}
    return IcebergLake(
        config, store, {**foreign, "glue.endpoint": server.endpoint_url, "s3.endpoint": server.endpoint_url}
    )


def same_rows(found: pa.Table, expected: pa.Table) -> bool:
    """Return whether two tables have the same rows, in whatever order; NaN is itself."""
    return sorted(map(_comparable, found.to_pylist())) == sorted(map(_comparable, expected.to_pylist()))


def _comparable(row: dict[str, Any]) -> str:
    return repr([(name, "nan" if _is_nan(value) else value) for name, value in row.items()])


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
