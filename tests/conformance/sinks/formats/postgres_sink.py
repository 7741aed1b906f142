"""A table in Postgres in the tests of sinks, on a real server; its rows are read by SQL alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from milepost.jobspec.job.connections import PostgresAccess
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sinks.contract import SinkMode
from milepost.sinks.formats.postgres.postgres_format import PostgresFormat
from milepost.tables.records.reservation import RESERVATION
from milepost_testkit.servers.postgres_server import Database, PostgresServer
from tests.conformance.sinks.contract.case import Pairs, SinkCase, pairs


class PostgresCase(SinkCase):
    """Mixed into what a subclass tests.

    Attributes:
        database: of this test's process; each root has a table of its own in it.
    """

    mode = SinkMode.UPSERT
    format_name = "postgres"
    database: Database

    @pytest.fixture(autouse=True)
    def _in_a_database(self, postgres: PostgresServer) -> None:
        self.database = shared_database(postgres)

    def store_config(self, root: Path, part: str) -> StoreConfig:
        return StoreConfig(file_url(root / f"a {part}"))

    def table_format(self, store: ObjectStore) -> PostgresFormat:
        return self.format_through(self.database, store)

    def format_through(self, database: Database, store: ObjectStore) -> PostgresFormat:
        """Return the format as a process that reaches the database in some way has it."""
        return PostgresFormat(
            "table",
            key=("k",),
            find_access=lambda: PostgresAccess("the test", dsn=database.dsn),
            table=("public", table_name(store)),
            store=store,
        )

    def table(self, root: Path) -> str:
        """Return the table's name, as SQL has it."""
        return f'public."{table_name(self.table_store(root))}"'

    def drop(self, root: Path) -> None:
        self.table_store(root).delete([RESERVATION])
        self.database.run(f"DROP TABLE IF EXISTS {self.table(root)}")

    def sql_rows(self, root: Path, columns: str = "k, v") -> list[tuple[object, ...]]:
        """Return the table's rows by key, as any client reads them; [] where there is no table."""
        table = self.table(root)
        if self.database.run("SELECT to_regclass(%s) IS NULL", table) == [(True,)]:
            return []
        return self.database.run(f"SELECT {columns} FROM {table} ORDER BY k")

    def published(self, root: Path) -> Pairs:
        """Return what SQL reads, and compare it with what the checkpoint says."""
        sink = self.open_sink(root)
        position = sink.position()
        assert position.is_known
        found = [(key, value) for key, value in self.sql_rows(root)]
        said = [] if position.contents is None else pairs(sink.read(position.contents, verify=True))
        assert found == said
        return said


_DATABASES: dict[int, Database] = {}


def shared_database(server: PostgresServer) -> Database:
    """Return the database that this process' tests of tables share."""
    if server.port not in _DATABASES:
        _DATABASES[server.port] = server.new_database()
    return _DATABASES[server.port]


def table_name(store: ObjectStore) -> str:
    """Return a name of the table at a store's root; it is to be quoted."""
    return f"T {hashlib.sha256(store.config.url.encode()).hexdigest()[:16]}"
