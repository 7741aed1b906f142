"""Connections as Airflow has them: read as Airflow reads them, and masked from then on."""

from __future__ import annotations

import asyncio
import json
import string
from collections.abc import Callable

import pytest
from airflow.sdk import Connection as AirflowConnection
from airflow.sdk._shared.secrets_masker import redact
from hypothesis import given
from hypothesis import strategies as st

from milepost.airflow.connections import airflow_connection, async_airflow_connection, from_airflow
from milepost.errors import EnvironmentUnusable
from milepost.jobspec.job.connections import Connection, parse_connection
from milepost_testkit import wording

TEXTS = st.none() | st.text(string.printable.strip() + " éß", min_size=1, max_size=12)
HOSTS = st.none() | st.sampled_from(["store", "Store.example", "sc://host", "http://host"])
EXTRAS = st.none() | st.dictionaries(st.text(min_size=1, max_size=5), TEXTS | st.integers() | st.lists(st.integers()))


@given(login=TEXTS, password=TEXTS, schema=TEXTS, host=HOSTS, port=st.none() | st.integers(1, 65535), extra=EXTRAS)
def test_a_connection_is_read_as_airflow_reads_it(
    login: str | None, password: str | None, schema: str | None, host: str | None, port: int | None, extra: object
) -> None:
    """Both of what Airflow writes of one: the JSON, and the URI, as far as Airflow itself reads it back."""
    theirs = AirflowConnection(
        conn_id="lake",
        conn_type="spark_connect",
        login=login,
        password=password,
        schema=schema,
        host=host,
        port=port,
        extra=None if extra is None else json.dumps(extra),
    )
    assert parse_connection("lake", theirs.as_json()) == from_airflow(theirs)
    again = AirflowConnection.from_uri(theirs.get_uri(), "lake")
    assert parse_connection("lake", theirs.get_uri()) == from_airflow(again)


def test_airflow_s_connection_is_found_and_its_password_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OF_AIRFLOW", "aws://AKIA2:the-secret-of-a-connection@/?region_name=eu-1")
    assert airflow_connection("of_airflow").password == "the-secret-of-a-connection"
    assert redact("key=the-secret-of-a-connection") == "key=***"


def in_triggerer(conn_id: str) -> Connection:
    return asyncio.run(async_airflow_connection(conn_id))


@pytest.mark.parametrize("look_up", [airflow_connection, in_triggerer])
def test_a_connection_that_airflow_does_not_have_is_named(look_up: Callable[[str], Connection]) -> None:
    with wording.raises(EnvironmentUnusable):
        look_up("nowhere")


@pytest.mark.parametrize("look_up", [airflow_connection, in_triggerer])
def test_a_connection_that_cannot_be_read_is_named_to_tasks_and_to_the_triggerer(
    look_up: Callable[[str], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watcher that ended by anything else would not be started again."""
    monkeypatch.setenv("AIRFLOW_CONN_TORN", json.dumps({"conn_type": "aws", "extra": "[1]"}))
    with wording.raises(EnvironmentUnusable):
        look_up("torn")
