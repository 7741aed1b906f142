"""The spec of Postgres sources: what it accepts, what it refuses, and what it hides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.jobspec.graph.compatibility import COMPATIBLE, NEW_UID, compare_signatures
from milepost.jobspec.graph.table_checks import table_problems
from milepost.jobspec.job.sources.postgres_source import PostgresSourceSpec
from milepost.jobspec.load.load import from_text
from milepost.openlineage.dataset_names import source_name
from milepost_testkit import wording

SCHEMA = {"id": "int64", "name": "string"}
METADATA = {"op": "op", "lsn": "lsn", "number": "number"}


def source(**keys: Any) -> PostgresSourceSpec:
    return PostgresSourceSpec.model_validate(
        {
            "format": "postgres",
            "dsn": "${env:PG_DSN}",
            "table": "public.t",
            "publication": "p",
            "key": ["id"],
            "schema": SCHEMA,
            "metadata": METADATA,
            **keys,
        }
    )


def test_metadata_follows_the_columns_of_the_table() -> None:
    spec = source(metadata={**METADATA, "at": "commit_time", "tx": "xid"}, event_time="at")
    assert {name: str(type_) for name, type_ in spec.columns.items()} == {
        **SCHEMA, "op": "string", "lsn": "int64", "number": "int64", "at": "timestamp[us, UTC]", "tx": "int64",
    }  # fmt: skip
    assert (spec.time_column, spec.start, spec.land.max_rows) == ("at", "copy", 100_000)
    assert spec.layout.optional_columns == (*SCHEMA, "op", "lsn", "number", "tx")


@pytest.mark.parametrize(
    "keys",
    [
        {"table": "t"},
        {"table": "a.b.c"},
        {"table": 'public."T"'},
        {"table": "public.a b"},
        {"key": []},
        {"schema": {}},
        {"publication": ""},
        {"publication": "p" * 64},
        {"start": "earliest"},
        {"start": "2026-01-01T00:00:00Z"},
        {"metadata": {"x": "origin"}},
        {"land": {"max_rows": 0}},
        {"slot": "mine"},
        {"conn_id": "a b"},
    ],
    ids=str,
)
def test_what_a_source_cannot_have_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        source(**keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"dsn": None},
        {"conn_id": "shop"},
        {"schema": {"id": "int64", "tags": "list<string>"}},
        {"schema": {"id": "int64", "at": "timestamp[ns, UTC]"}},
        {"key": ["idd"]},
        {"key": ["id", "id"]},
        {"metadata": {"lsn": "lsn"}},
    ],
    ids=str,
)
def test_a_problem_of_a_source_says_what_to_do(keys: dict[str, Any]) -> None:
    problems = list(table_problems(("sources", "t"), source(**keys)))
    wording.matches("postgres_sources", [f"{'.'.join(map(str, one.path))}: {one.message}" for one in problems])
    assert problems


@pytest.mark.parametrize(
    ("keys", "verdict"),
    [
        ({"table": "public.u"}, NEW_UID),
        ({"publication": "q"}, NEW_UID),
        ({"key": ["id", "name"]}, NEW_UID),
        ({"start": "latest"}, NEW_UID),
        ({"dsn": "${env:OTHER}"}, COMPATIBLE),
        ({"dsn": None, "conn_id": "shop"}, COMPATIBLE),
        ({"schema": {"id": "int64"}, "land": {"max_rows": 5}}, COMPATIBLE),
    ],
    ids=str,
)
def test_what_a_log_is_a_copy_of_is_fixed(keys: dict[str, Any], verdict: str) -> None:
    old, new = ({"sources": {"t": spec.identity}} for spec in (source(), source(**keys)))
    assert [row["verdict"] for row in compare_signatures(old, new)] == [verdict]


SPEC = """\
name: shop
storage: ../store
sources:
  customers: {ACCESS, format: postgres, table: public.customers, publication: p, key: [id], schema: {id: int64, name: string}, metadata: {op: op, lsn: lsn, number: number}}
sinks:
  - {name: changes, input: customers, format: parquet, path: ../lake/changes, mode: append}
"""  # noqa: E501


def test_the_database_is_named_without_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_DSN", "postgresql://me:hunter2@db.example:6543/shop")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "postgres://me:hunter2@db.example/shop")
    for access, port in (('dsn: "${env:PG_DSN}"', 6543), ("conn_id: shop", 5432)):
        job = from_text(SPEC.replace("ACCESS", access), Path("/jobs/config/shop.yaml"))
        name = source_name(job, "customers")
        assert (name.namespace, name.name) == (f"postgres://db.example:{port}", "shop.public.customers")
        assert "hunter2" not in repr(job.spec) and "hunter2" not in repr(job.source_access("customers"))
    monkeypatch.delenv("AIRFLOW_CONN_SHOP")
    assert source_name(job, "customers").namespace == "milepost://shop"
    with pytest.raises(EnvironmentUnusable):
        job.source_access("customers")


def test_a_password_in_the_spec_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="must not contain a secret"):
        from_text(SPEC.replace("ACCESS", 'dsn: "postgresql://me:hunter2@db/shop"'), Path("/jobs/config/shop.yaml"))
