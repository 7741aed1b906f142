"""Connections outside Airflow: parsing AIRFLOW_CONN_<ID>, and the settings of stores, databases and Spark servers."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import CheckpointError, EnvironmentUnusable, InvalidRequest
from milepost.jobspec.job.connections import (
    RegistryAccess,
    S3Access,
    environment_connection,
    parse_connection,
    postgres_access,
    registry_access,
    s3_access,
    spark_server,
)
from milepost.jobspec.load.load import LoadedJob, from_text
from milepost.language.spark_remote import SparkRemote
from milepost.protocol.records.object_store import Credentials
from milepost_testkit import wording

LAKE = {"conn_type": "aws", "login": "AKIA1", "password": "a/secret+key", "extra": {"endpoint_url": "http://store:1"}}
SPEC = """\
name: visits
storage: s3://jobs
store: {conn_id: lake}
sources: {visits: {format: csv, path: s3://landing/*.csv, schema: {page: string}}}
operators: [{uid: pages, kind: aggregate, inputs: [visits], key: [page], aggregates: {visits: count(*)}}]
sinks: [{name: pages, input: pages, format: parquet, path: s3://lake/pages, mode: upsert}]
spark: {conn_id: spark-here}
"""


def job(text: str = SPEC) -> LoadedJob:
    return from_text(text, Path("/jobs/visits.yaml"))


def given(monkeypatch: pytest.MonkeyPatch, conn_id: str, value: str | dict[str, Any]) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", value if isinstance(value, str) else json.dumps(value))


def test_a_store_uses_endpoint_region_and_credentials_of_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "lake", LAKE)
    store = job().job_store
    assert (store.url, store.endpoint_url, store.region) == ("s3://jobs/visits", "http://store:1", "us-east-1")
    assert store.credentials == Credentials("AKIA1", "a/secret+key")
    assert store.endpoint == "http://store:1 (from Connection lake)"


def test_a_connection_is_looked_up_only_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = job()
    with wording.raises(EnvironmentUnusable):
        _ = loaded.job_store
    given(monkeypatch, "lake", LAKE)
    first = loaded.job_store.credentials
    given(monkeypatch, "lake", LAKE | {"password": "another"})
    assert (first, loaded.job_store.credentials) == (
        Credentials("AKIA1", "a/secret+key"),
        Credentials("AKIA1", "another"),
    )


def test_a_local_store_looks_up_no_connection() -> None:
    assert job(SPEC.replace("s3://jobs", "jobs")).job_store.url == "file:///jobs/jobs/visits"


def test_secrets_of_a_connection_do_not_appear_in_any_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a pickled store configuration contains them, because tasks receive it pickled."""
    given(monkeypatch, "lake", LAKE | {"extra": {"aws_session_token": "a-session-token"}})
    given(monkeypatch, "spark-here", {"conn_type": "spark_connect", "host": "here", "password": "a-spark-token"})
    loaded = job()
    store, server = loaded.job_store, loaded.spark_server()
    assert server is not None
    connections = [environment_connection("lake"), environment_connection("spark-here")]
    shown = f"{loaded!r} {store!r} {store.credentials!r} {server!r} {connections!r} {s3_access(connections[0])!r}"
    for secret in ("a/secret+key", "AKIA1", "a-session-token", "a-spark-token"):
        assert secret not in shown
        assert secret.encode() not in pickle.dumps(loaded)
    assert b"a/secret+key" in pickle.dumps(store)
    assert pickle.loads(pickle.dumps(loaded)).job_store.credentials == store.credentials


@pytest.mark.parametrize(
    ("text", "access"),
    [
        ("aws://AKIA1:a%2Fsecret%2Bkey@", S3Access(None, "us-east-1", Credentials("AKIA1", "a/secret+key"))),
        ("aws://?region_name=eu-west-1", S3Access(None, "eu-west-1", None)),
        ("aws:///?endpoint_url=http%3A%2F%2Fs%3A1", S3Access("http://s:1", "us-east-1", None)),
        (
            'aws://a:b@/?__extra__=%7B%22aws_session_token%22%3A+%22t%22%7D',
            S3Access(None, "us-east-1", Credentials("a", "b", "t")),
        ),
        ('{"conn_type": "aws", "extra": "{\\"region_name\\": \\"eu-1\\"}"}', S3Access(None, "eu-1", None)),
    ],
)  # fmt: skip
def test_a_store_s_connection_is_a_uri_or_json(text: str, access: S3Access) -> None:
    access_settings = s3_access(parse_connection("lake", text))
    assert access_settings == access
    assert access_settings.credentials == access.credentials


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("spark-connect://:a%3Atoken@host:7", SparkRemote("host", 7, False, "s", "a:token")),
        ("spark-connect://sc://host:7", SparkRemote("host", 7, False, "s")),
        ("spark-connect://host/?use_ssl=true", SparkRemote("host", 15002, True, "s")),
        (
            '{"conn_type": "spark_connect", "host": "sc://Host", "port": 9, "extra": {"use_ssl": true}}',
            SparkRemote("host", 9, True, "s"),
        ),
    ],
)
def test_a_spark_server_s_connection_has_its_address_and_token(text: str, server: SparkRemote) -> None:
    assert spark_server(parse_connection("s", text)) == server


@pytest.mark.parametrize(
    "value",
    [
        "{",
        "[]",
        '{"conn_type": "aws", "extra": "{"}',
        '{"conn_type": "aws", "extra": [1]}',
        '{"conn_type": "aws", "port": "none"}',
        "aws://a:b@host:port",
        '{"conn_type": "postgres"}',
        "{}",
        '{"conn_type": "aws", "login": "a"}',
        '{"conn_type": "aws", "login": "a", "password": "b\\n"}',
        '{"conn_type": "aws", "login": "a", "password": "b", "extra": {"aws_session_token": "t\\n"}}',
        '{"conn_type": "aws", "extra": {"aws_session_token": "t"}}',
        '{"conn_type": "aws", "host": "store", "extra": {"role_arn": "arn"}}',
        '{"conn_type": "aws", "extra": {"endpoint_url": "store:1"}}',
    ],
)
def test_settings_of_a_connection_that_would_be_ignored_are_refused_by_name(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, "lake", value)
    with wording.raises(EnvironmentUnusable):
        _ = job().job_store


@pytest.mark.parametrize(
    "value",
    [
        '{"conn_type": "spark", "host": "local"}',
        '{"conn_type": "spark_connect"}',
        '{"conn_type": "spark_connect", "host": "h", "login": "ann"}',
        '{"conn_type": "spark_connect", "host": "h", "extra": {"use_ssl": "perhaps"}}',
    ],
)
def test_settings_of_a_spark_connection_that_would_be_ignored_are_refused_by_name(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, "spark-here", value)
    with wording.raises(EnvironmentUnusable):
        job().spark_server()


@pytest.mark.parametrize(
    ("text", "access"),
    [
        ("http://ann:a%40b@registry:8081", RegistryAccess("http://registry:8081", "ann", "a@b")),
        ("https://registry", RegistryAccess("https://registry")),
        ("http://registry:1/https?ca_location=/ca.pem", RegistryAccess("https://registry:1", ca_location="/ca.pem")),
        ('{"conn_type": "http", "host": "https://r/path/"}', RegistryAccess("https://r/path")),
    ],
)
def test_a_registry_s_connection_has_its_address_and_login(text: str, access: RegistryAccess) -> None:
    assert registry_access(parse_connection("registry", text)) == access


@pytest.mark.parametrize(
    "value",
    [
        '{"conn_type": "aws", "host": "r"}',
        '{"conn_type": "http"}',
        '{"conn_type": "http", "host": "r", "login": "ann"}',
        '{"conn_type": "http", "host": "ann:word@r"}',
        '{"conn_type": "http", "host": "https://r", "schema": "https"}',
        '{"conn_type": "http", "host": "r", "schema": "ftp"}',
        '{"conn_type": "http", "host": "r", "extra": {"verify": "no"}}',
    ],
)
def test_settings_of_a_registry_s_connection_that_would_be_ignored_are_refused_by_name(value: str) -> None:
    with wording.raises(EnvironmentUnusable):
        registry_access(parse_connection("registry", value))


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("postgres://ann:a%40b@db:7/shop", {"host": "db", "port": "7", "user": "ann", "password": "a@b"}),
        ("postgresql://ann@db/shop?sslmode=verify-full", {"host": "db", "user": "ann", "sslmode": "verify-full"}),
        (
            '{"conn_type": "postgres", "host": "db", "login": "ann", "schema": "shop", "extra": {"sslkey": "/k"}}',
            {"host": "db", "user": "ann", "sslkey": "/k"},
        ),
    ],
)
def test_a_database_s_connection_has_its_address_and_password(text: str, parameters: dict[str, str]) -> None:
    """As in Airflow, `schema` is the name of the database."""
    database = postgres_access(parse_connection("pg", text))
    assert (database.parameters, database.dsn) == ({**parameters, "dbname": "shop"}, "")
    assert "a@b" not in repr(database)


@pytest.mark.parametrize(
    "text",
    [
        '{"conn_type": "mysql", "host": "h"}',
        '{"conn_type": "postgres", "host": "h"}',
        "postgres://ann@h/d?cursor=dictcursor",
        "postgres://ann@h/d?iam=true",
    ],
)
def test_settings_of_a_database_connection_that_would_be_ignored_are_refused_by_name(text: str) -> None:
    with wording.raises(EnvironmentUnusable):
        postgres_access(parse_connection("pg", text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{conn_id: lake}", "{conn_id: lake, region: eu-1}"),
        (
            "{conn_id: lake}",
            "{conn_id: lake, endpoint_url: ''}",
        ),
        ("{conn_id: lake}", "{conn_id: '${env:LAKE}'}"),
        ("{conn_id: spark-here}", "{conn_id: a, remote: 'sc://h'}"),
        (
            "{conn_id: spark-here}",
            "{conn_id: a, master: 'local[2]'}",
        ),
    ],
)
def test_a_connection_cannot_be_combined_with_literal_settings(old: str, new: str) -> None:
    with wording.raises(InvalidRequest):
        job(SPEC.replace(old, new))


def test_a_variable_that_cannot_be_read_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in (
        "{a-secret",
        "a-secret",
        "aws://u:a-secret@host:a-secret",
        '{"conn_type": "a-secret", "extra": "a-secret"}',
    ):
        given(monkeypatch, "lake", secret)
        with pytest.raises(CheckpointError) as refused:
            environment_connection("lake")
        assert "a-secret" not in f"{refused.value.message} {refused.value.hint} {refused.value.details}"
        assert refused.value.__cause__ is None
