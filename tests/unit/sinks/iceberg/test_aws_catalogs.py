"""Catalogs on AWS: Glue, and REST with signed requests. Their credentials are those of the table's store."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)
from pyiceberg.catalog.glue import GlueCatalog

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    StoreUnavailable,
)
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import Credentials, StoreConfig
from milepost.storage.open import open_store
from milepost.tables.iceberg.catalog_errors import translated_errors
from milepost.tables.iceberg.catalogs import CatalogConfig, CatalogKind, open_catalog
from milepost_testkit import wording
from milepost_testkit.formats.iceberg_lake import lake_in_glue, lake_on_server, move
from milepost_testkit.processes.processes import free_ports
from milepost_testkit.proxies.recording_proxy import RecordingProxy
from milepost_testkit.servers.s3_servers import Ministack, SeaweedTables

GLUE = CatalogConfig(CatalogKind.GLUE, "", ("shop", "totals"))
URL = "https://glue.eu-central-1.amazonaws.com"


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "not now"}}, "UpdateTable")


@pytest.mark.deep
@pytest.mark.parametrize("resets", [1, 99])
def test_a_commit_whose_answer_was_lost_is_known_by_its_write_id(ministack: Ministack, resets: int) -> None:
    """The client repeats the request. Glue then finds another version of the table: that of the first request."""
    with RecordingProxy(ministack.port) as proxy:
        lake = lake_in_glue(ministack, endpoint_url=proxy.endpoint_url).made()
        handle, file, times = lake.opened(), lake.staged(1), count()
        proxy.reset_when = lambda method, path, headers: (
            headers.get("x-amz-target", "").endswith("UpdateTable") and next(times) < resets
        )

        with pytest.raises(CommitConflict if resets == 1 else CommitOutcomeUnknown):
            handle.commit(move(1, (file,), write_id="ours"))

        after = lake.opened()
        assert (after.write_id, after.live_files(), lake.keys()) == ("ours", {file.key: file.size}, [1])


def test_of_two_commits_to_one_version_the_second_finds_a_conflict(ministack: Ministack) -> None:
    lake = lake_in_glue(ministack).made()
    first, second = lake.opened(), replace(lake).opened()
    one, other = lake.staged(1), lake.staged(2)

    first.commit(move(1, (one,)))
    with pytest.raises(CommitConflict):
        second.commit(move(1, (other,)))

    assert lake.keys() == [1]


@pytest.mark.deep
def test_a_server_of_glue_that_is_down_is_unavailable(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    store = StoreConfig(file_url(tmp_path), credentials=Credentials("a", "b"))
    config = replace(GLUE, uri=f"http://127.0.0.1:{port}")
    with wording.raises(StoreUnavailable), translated_errors(config, "the table was not opened", may_land=True):
        open_catalog(config, open_store(store)).load_table(config.table)


def test_without_credentials_the_error_says_whose_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with wording.raises(EnvironmentUnusable), translated_errors(GLUE, "the table was not opened"):
        open_catalog(GLUE, open_store(StoreConfig(file_url(tmp_path)))).load_table(GLUE.table)


@pytest.mark.parametrize(
    ("error", "translated"),
    [
        (refused("AccessDeniedException"), EnvironmentUnusable),
        (refused("UnrecognizedClientException"), EnvironmentUnusable),
        (refused("InvalidInputException"), EnvironmentUnusable),
        (refused("ThrottlingException"), CommitOutcomeUnknown),
        (refused("InternalServiceException"), CommitOutcomeUnknown),
        (ReadTimeoutError(endpoint_url=URL), CommitOutcomeUnknown),
        (ConnectionClosedError(endpoint_url=URL), CommitOutcomeUnknown),
        (ConnectTimeoutError(endpoint_url=URL), StoreUnavailable),
        (EndpointConnectionError(endpoint_url=URL), StoreUnavailable),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__) if not isinstance(value, ClientError) else None,
)
def test_errors_of_a_commit_say_whether_it_may_have_landed(error: Exception, translated: type[CheckpointError]) -> None:
    with pytest.raises(CheckpointError) as caught, translated_errors(GLUE, "the commit failed", may_land=True):
        raise error
    assert type(caught.value) is translated


def test_neither_environment_nor_home_folder_name_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:2")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-1")
    store = open_store(StoreConfig(file_url(tmp_path), region="eu-central-1", credentials=Credentials("a", "b")))
    catalog = open_catalog(GLUE, store)
    assert isinstance(catalog, GlueCatalog) and catalog.glue.meta.endpoint_url == URL
    other = open_catalog(replace(GLUE, options={"client.region": "eu-west-3"}), store)
    assert isinstance(other, GlueCatalog) and other.glue.meta.region_name == "eu-west-3"


def test_a_database_of_several_parts_is_refused() -> None:
    with wording.raises(InvalidRequest):
        replace(GLUE, table=("shop", "daily", "totals"))


def test_another_spelling_of_true_is_refused_since_it_would_sign_with_keys_of_the_environment() -> None:
    with pytest.raises(InvalidRequest, match="expected 'true' or 'false'"):
        CatalogConfig(CatalogKind.REST, URL, ("shop", "totals"), options={"rest.sigv4-enabled": "True"})


def test_requests_to_a_rest_catalog_are_signed_with_the_keys_of_the_store(seaweed_tables: SeaweedTables) -> None:
    server = lake_on_server(seaweed_tables)
    options = {"warehouse": server.config.options["warehouse"], "rest.sigv4-enabled": "true"}
    signed = replace(server, config=replace(server.config, options={**options, "rest.signing-name": "s3tables"}))
    signed.made().move(1, (signed.staged(1, 2),))
    assert signed.keys() == [1, 2]

    wrong = replace(signed.store.config, credentials=Credentials(seaweed_tables.access_key, "pw-7e1d0c"))
    with pytest.raises(EnvironmentUnusable) as caught:
        replace(signed, store=open_store(wrong)).format.open()
    assert "`store`" in caught.value.hint and "pw-7e1d0c" not in f"{caught.value}{caught.value.__cause__}"
