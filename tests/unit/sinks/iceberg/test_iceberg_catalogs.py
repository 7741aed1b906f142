"""A catalog is reached by what the spec says alone; its faults are ours, typed, and name no secret (contract 15)."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.errors import CheckpointError, EnvironmentUnusable, InvalidRequest, StoreUnavailable
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.sinks.formats.iceberg.iceberg_format import IcebergFormat
from milepost.storage.open import open_store
from milepost.tables.iceberg.catalogs import CatalogConfig, CatalogKind
from milepost_testkit import wording
from milepost_testkit.formats.iceberg_lake import IcebergLake, lake_on_disk, lake_on_server, move
from milepost_testkit.processes.processes import free_ports, run_python
from milepost_testkit.proxies.recording_proxy import RecordingProxy
from milepost_testkit.servers.s3_servers import SeaweedTables

_SECRET = "pw-7e1d0c"
_OPENS = """
import sys
from milepost.tables.iceberg.catalogs import CatalogConfig, CatalogKind
from milepost.sinks.formats.iceberg.iceberg_format import IcebergFormat
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store

config = CatalogConfig(CatalogKind.SQL, sys.argv[1], ("shop", "totals"))
table = IcebergFormat("totals", config, open_store(StoreConfig(sys.argv[2]))).open()
print(table.number, len(table.live_files()))
"""


@contextmanager
def _one_line_without(secret: str, kind: type[CheckpointError]) -> Iterator[list[CheckpointError]]:
    """Expect an error that says what to type, and that names the secret nowhere, not even in what it was made from."""
    raised: list[CheckpointError] = []
    with pytest.raises(kind) as caught:
        yield raised
    error = caught.value
    raised.append(error)
    assert error.hint and "\n" not in error.message
    assert secret not in "".join([*traceback.format_exception(error), error.hint, json.dumps(error.details)])


@pytest.mark.deep
def test_neither_the_home_folder_nor_the_environment_says_where_a_catalog_is(tmp_path: Path) -> None:
    """Contract 15: catalog options come from the spec alone."""
    lake = lake_on_disk(tmp_path).made()
    lake.move(4, (lake.staged(1),))
    home = tmp_path / "home"
    home.mkdir()
    (home / ".pyiceberg.yaml").write_text(
        "catalog:\n  milepost:\n    type: rest\n    uri: http://127.0.0.1:1\n    py-io-impl: no.such.Files\n"
    )
    variables = {
        "HOME": str(home),
        "PYICEBERG_HOME": str(home),
        "PYICEBERG_CATALOG__MILEPOST__URI": "http://127.0.0.1:2",
        "PYICEBERG_CATALOG__MILEPOST__PY_IO_IMPL": "no.such.Files",
    }

    done = run_python(_OPENS, lake.config.uri, lake.store.config.url, environment=variables)

    assert done.stdout == "4 1\n", done.stderr


def test_a_server_that_is_down_is_unavailable_and_names_what_to_check(tmp_path: Path) -> None:
    """Contract 15: the message has its address, and not its credentials."""
    (port,) = free_ports(1)
    config = CatalogConfig(
        CatalogKind.REST, f"http://u:{_SECRET}@127.0.0.1:{port}/lake", ("shop", "totals"), options={"token": _SECRET}
    )
    with _one_line_without(_SECRET, StoreUnavailable) as raised:
        IcebergFormat("totals", config, open_store(StoreConfig(file_url(tmp_path)))).open()

    wording.describes(raised[0])
    assert f"http://127.0.0.1:{port}/lake" in raised[0].message
    assert "sinks[].catalog.uri" in raised[0].hint


def test_a_commit_that_was_never_sent_is_distinguished_from_an_unanswered_one(seaweed_tables: SeaweedTables) -> None:
    """Contract 5: what found no server did not land."""
    with RecordingProxy(int(seaweed_tables.catalog_url.rpartition(":")[2])) as proxy:
        lake = lake_on_server(seaweed_tables, catalog_url=proxy.endpoint_url).made()
        handle, file = lake.opened(), lake.staged(1)
    handle._table.catalog.close()  # its connections outlive the proxy

    with wording.raises(StoreUnavailable):
        handle.commit(move(1, (file,)))

    assert lake.foreign_table().current_snapshot() is None


def test_a_wrong_secret_is_refused_by_name_and_never_shown(seaweed_tables: SeaweedTables) -> None:
    """Contract 15: no secret in an error, in what it was made from, or in a representation."""
    lake = lake_on_server(seaweed_tables)
    credential = f"{seaweed_tables.access_key}:{_SECRET}"
    wrong = replace(lake, config=replace(lake.config, options={**lake.config.options, "credential": credential}))

    with _one_line_without(_SECRET, EnvironmentUnusable) as raised:
        wrong.format.open()

    assert "sinks[].catalog.credential" in raised[0].hint
    assert _SECRET not in repr(wrong.format) + repr(wrong.config)


def test_who_may_only_read_cannot_make_a_table(seaweed_tables: SeaweedTables) -> None:
    """Contract 15: missing rights are no reason to try again."""
    lake = lake_on_server(seaweed_tables)
    credential = f"{seaweed_tables.reader_key}:{seaweed_tables.reader_secret}"
    reader = replace(lake, config=replace(lake.config, options={**lake.config.options, "credential": credential}))

    with _one_line_without(seaweed_tables.reader_secret, EnvironmentUnusable) as raised:
        reader.made()

    assert "denied access" in raised[0].message
    assert lake.format.open() is None


def test_a_database_that_cannot_be_written_is_unusable(lake: IcebergLake) -> None:
    """Contract 15: an SQL catalog without rights says so."""
    path = lake.made().config.uri.removeprefix("sqlite:///")
    reader = replace(lake, config=replace(lake.config, uri=f"sqlite:///file:{path}?mode=ro&uri=true"))

    with _one_line_without(_SECRET, EnvironmentUnusable) as raised:
        reader.opened().commit(move(1, (lake.staged(1),)))

    assert "denied access" in raised[0].message and "sinks[].catalog.uri" in raised[0].hint
    assert lake.opened().number == 0


@pytest.mark.parametrize(
    "uri",
    [f"sqlite:////no/such/folder/{_SECRET}/c.db", f"nosuch://u:{_SECRET}@h/d", "no uri at all"],
    ids=["folder", "driver", "text"],
)
def test_a_uri_that_leads_nowhere_is_unusable(tmp_path: Path, uri: str) -> None:
    """Contract 15: the message states the fault without its password."""
    config = CatalogConfig(CatalogKind.SQL, uri, ("shop", "totals"))
    secret = _SECRET if "@" in uri else "nothing of the kind"

    with _one_line_without(secret, EnvironmentUnusable):
        IcebergFormat("totals", config, open_store(StoreConfig(file_url(tmp_path)))).open()


def test_a_file_whose_folder_is_missing_says_that_it_is_to_be_made(tmp_path: Path) -> None:
    config = CatalogConfig(CatalogKind.SQL, f"sqlite:///{tmp_path}/none/c.db", ("shop", "totals"))

    with _one_line_without(_SECRET, EnvironmentUnusable) as raised:
        IcebergFormat("totals", config, open_store(StoreConfig(file_url(tmp_path)))).open()

    wording.describes(raised[0])


def test_a_database_without_its_driver_says_what_to_install(tmp_path: Path) -> None:
    """Only SQLite's driver comes with the extra."""
    config = CatalogConfig(CatalogKind.SQL, f"mysql+pymysql://u:{_SECRET}@127.0.0.1/d", ("shop", "totals"))

    with _one_line_without(_SECRET, EnvironmentUnusable) as raised:
        IcebergFormat("totals", config, open_store(StoreConfig(file_url(tmp_path)))).open()

    assert raised[0].hint == "pip install pymysql"


def test_what_is_no_iceberg_catalog_is_unusable(seaweed_tables: SeaweedTables, tmp_path: Path) -> None:
    """A URL of something else is distinguished from a server that is down."""
    config = CatalogConfig(CatalogKind.REST, seaweed_tables.endpoint_url, ("shop", "totals"))

    with _one_line_without(_SECRET, EnvironmentUnusable):
        IcebergFormat("totals", config, open_store(StoreConfig(file_url(tmp_path)))).open()


@pytest.mark.parametrize("option", ["py-io-impl", "py-catalog-impl", "s3.secret-access-key", "auth", "uri"])
def test_options_that_are_not_known_are_refused(option: str) -> None:
    """An option may name code to run, or a secret that has a place of its own."""
    with wording.raises(InvalidRequest) as refused:
        CatalogConfig(CatalogKind.REST, "http://h", ("shop", "totals"), options={option: "x"})
    assert option in str(refused.value)


def test_a_password_is_known_in_every_place_that_a_uri_has_for_one() -> None:
    """Contract 15: what is taken out of messages is what is secret, and not what else is configured."""
    uri = "postgresql+psycopg://u:p%40ss@h/d?sslmode=require&sslpassword=other"
    config = CatalogConfig(CatalogKind.SQL, uri, ("shop", "totals"))

    assert config.secrets == {"p%40ss", "p@ss", "other"}
    assert config.where == "the SQL catalog at postgresql+psycopg://h/d"


def test_a_table_needs_a_namespace() -> None:
    """Every catalog puts a table into one."""
    with wording.raises(InvalidRequest):
        CatalogConfig(CatalogKind.SQL, "sqlite://", ("totals",))


def test_what_a_catalog_has_but_cannot_be_read_is_no_table(lake: IcebergLake) -> None:
    """A later version of the format, or a damaged file, is not taken for a table that is not there."""
    table = lake.made().foreign_table()
    key = table.metadata_location.removeprefix(f"{table.location()}/")
    lake.store.put(key, b'{"format-version": 9}')

    with wording.raises(InvalidRequest):
        lake.format.open()


@pytest.mark.parametrize("name", ["50%", "a?b", "a#b"])
def test_a_path_that_engines_read_differently_is_refused(tmp_path: Path, name: str) -> None:
    """A location in Iceberg is plain text, and some engines take it for an escaped URL."""
    place = replace(lake_on_disk(tmp_path), store=open_store(StoreConfig(file_url(tmp_path / name))))

    with wording.raises(InvalidRequest):
        place.format.open()
