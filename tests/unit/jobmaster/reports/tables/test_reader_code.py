"""The code that a table's page shows reads the table, in the engine that it is for, and contains no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from milepost.jobmaster.reports.tables.reader_code import reader_code
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.processes.processes import LOOPBACK, REPOSITORY
from milepost_testkit.servers.s3_servers import S3Server

SEEN = "format: parquet, path: ../lake/seen"
EXPECTED = [{"k": -1, "v": "1"}, {"k": 0, "v": "1"}, {"k": 1, "v": "1"}]
ENGINES = ("DuckDB", "Polars", "pandas")
"""Spark's code is compared with its golden text: its packages come from Maven."""


def run_code(engine: str, code: str, folder: Path, env: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Run a reader's code where its libraries are: pandas is in Milepost's own environment."""
    python = sys.executable if engine == "pandas" else str(REPOSITORY / ".venv-readers" / "bin" / "python")
    program = REPOSITORY / "milepost_testkit" / "readers" / "code_process.py"
    around = {"PATH": os.environ["PATH"], "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK, "HOME": str(folder)}
    request = json.dumps({"engine": engine, "code": code, "more": sysconfig.get_path("purelib")})
    done = subprocess.run(
        [python, program], input=request, capture_output=True, text=True,
        timeout=60, cwd=folder, env={**around, **(env or {})}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return sorted(json.loads(done.stdout), key=lambda row: int(row["k"]))


@pytest.fixture
def keys(ministack: S3Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The reader's own credentials, in the environment of the job too."""
    found = {"AWS_ACCESS_KEY_ID": ministack.access_key, "AWS_SECRET_ACCESS_KEY": ministack.secret_key}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


def job_on(server: S3Server, folder: Path, sink: str, epochs: int) -> CountedJob:
    """Return a job whose store has the server's endpoint. Args: sink: in place of the path and format of `seen`."""
    store = f"storage: ../store\nstore: {{endpoint_url: {server.endpoint_url}}}"
    return CountedJob.with_epochs(folder, epochs, {SEEN: sink, "storage: ../store": store})


def codes(job: CountedJob, sink: str = "seen") -> Mapping[str, str]:
    return job.master.reports.table(sink).code


@pytest.mark.deep
@pytest.mark.parametrize("engine", ENGINES)
def test_a_local_delta_table(tmp_path: Path, engine: str) -> None:
    job = CountedJob.with_epochs(tmp_path / "it's", 1, {SEEN: "format: delta, path: ../lake/seen"})
    assert run_code(engine, codes(job)[engine], tmp_path) == EXPECTED


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_an_iceberg_table_of_an_sql_catalog(tmp_path: Path, engine: str) -> None:
    there = 'format: iceberg, path: ../lake/seen, table: small.seen, catalog: {type: sql, uri: "sqlite:///../cat.db"}'
    job = CountedJob.with_epochs(tmp_path / "job", 1, {SEEN: there})
    assert run_code(engine, codes(job)[engine], tmp_path) == EXPECTED


@pytest.mark.deep
@pytest.mark.parametrize("engine", ["Polars", "pandas"])
def test_an_iceberg_table_in_glue(tmp_path: Path, engine: str, ministack: S3Server, keys: dict[str, str]) -> None:
    """With the reader's own credentials; the first epoch makes the database."""
    place = f"path: s3://{ministack.shared_bucket}/{tmp_path.name}, table: small.{tmp_path.name.replace('-', '_')}"
    there = f"format: iceberg, {place}, catalog: {{type: glue, uri: {ministack.endpoint_url}}}"
    job = job_on(ministack, tmp_path / "job", there, 2)
    job.rollback(to=1)
    code = codes(job)[engine]
    assert ministack.secret_key not in code
    assert run_code(engine, code, tmp_path, keys) == EXPECTED


@pytest.mark.deep
def test_a_managed_table_is_read_from_a_copy(tmp_path: Path) -> None:
    from milepost_testkit.commands.milepost_cli import milepost

    job = CountedJob.with_epochs(tmp_path / "job", 1)
    command = f"milepost read small seen --output {tmp_path}/seen.parquet"
    assert all("milepost read small seen --output seen.parquet" in code for code in codes(job).values())
    words = command.replace("small", str(job.spec_path), 1).split()[1:]
    assert milepost(*words).exit_code == 0
    for engine in ENGINES:
        assert run_code(engine, codes(job)[engine], tmp_path) == EXPECTED


@pytest.mark.deep
@pytest.mark.parametrize("engine", ENGINES)
def test_a_delta_table_on_an_endpoint(tmp_path: Path, engine: str, ministack: S3Server, keys: dict[str, str]) -> None:
    """With the reader's own credentials; the extension that finds them is not installed for DuckDB, so it is given."""
    there = f"format: delta, path: s3://{ministack.shared_bucket}/{tmp_path.name}"
    job = job_on(ministack, tmp_path / "job", there, 1)
    code = codes(job)[engine]
    assert ministack.secret_key not in code
    given = f"KEY_ID '{ministack.access_key}', SECRET '{ministack.secret_key}'"
    code = code.replace("PROVIDER credential_chain", given)
    assert run_code(engine, code, tmp_path, keys) == EXPECTED


SINKS = {
    "delta": "{name: t, input: rows, format: delta, path: 's3://lake/${env:STAGE}/t', mode: append}",
    "rest": "{name: t, input: rows, format: iceberg, path: s3://lake/t, mode: append, table: shop.o'k, "
    "catalog: {type: rest, uri: 'https://catalog', options: {warehouse: lake, token: '${env:TOKEN}'}}}",
    "glue": "{name: t, input: rows, format: iceberg, path: s3://lake/t, mode: append, table: shop.totals, "
    "catalog: {type: glue, options: {client.region: eu-central-1}}}",
    "signed": "{name: t, input: rows, format: iceberg, path: s3://lake/t, mode: append, table: shop.totals, "
    "catalog: {type: rest, uri: 'https://glue.eu-central-1.amazonaws.com/iceberg', "
    "options: {rest.sigv4-enabled: 'true', rest.signing-name: glue}}}",
    "postgres": "{name: t, input: latest, format: postgres, table: 'public.to\"tals', mode: upsert, "
    "dsn: 'postgresql://app:${env:PW}@db:5433/shop?sslmode=require'}",
    "connection": "{name: t, input: latest, format: postgres, table: public.totals, mode: upsert, conn_id: warehouse}",
}
STORES = {"delta": "{endpoint_url: 'http://minio:9000', region: eu}", "rest": "{conn_id: lake_s3}"}


@pytest.mark.parametrize("name", SINKS)
def test_texts_of_the_spec_are_quoted_and_its_secrets_are_not_resolved(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("STAGE", "TOKEN", "PW"):
        monkeypatch.setenv(variable, "secret-of-the-environment")
    text = (
        "name: shop\nstorage: ../store\nsources:\n  rows: {format: csv, path: ../in/*.csv, schema: {k: int64}}\n"
        "operators:\n  - {uid: latest, kind: aggregate, inputs: [rows], key: [k], aggregates: {n: count(*)}}\n"
        f"sinks:\n  - {SINKS[name]}\nstore: {STORES.get(name, '{}')}\n"
    )
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    job = load_job(path)
    found = reader_code(job, job.spec.sinks[0])
    shown = "\n\n".join(f"== {engine}\n{code}" for engine, code in found.items())
    assert "secret-of-the-environment" not in shown and "app:" not in shown
    wording.matches("reader_code", shown)
