"""`lint` refuses literal secrets in every spelling, and accepts references."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.load.load import from_text
from milepost_testkit import wording

SPEC = """\
name: visits
storage: lake
sources:
  visits: {format: csv, path: landing/*.csv, schema: {city: string}}
operators:
  - {uid: cities, kind: aggregate, inputs: [visits], key: [city], aggregates: {n: count(*)}}
sinks:
  - {name: out, input: cities, mode: upsert, SINK}
MORE
"""
ICEBERG = 'format: iceberg, table: a.b, path: lake/out, catalog: {type: rest, uri: "URI", options: {OPTIONS}}'
POSTGRES = 'format: postgres, table: a.b, dsn: "DSN"'
PARQUET = "format: parquet, path: lake/out"


def lint(sink: str = PARQUET, more: str = "") -> None:
    from_text(SPEC.replace("SINK", sink).replace("MORE", more), Path("/jobs/visits.yaml"))


def iceberg(uri: str = "https://host", options: str = "") -> str:
    return ICEBERG.replace("URI", uri).replace("OPTIONS", options)


@pytest.mark.parametrize(
    ("sink", "place"),
    [
        (iceberg(options='token: "hunter2"'), "sinks[0].catalog.options.token"),
        (iceberg(options='token: "${env:TOKEN:-hunter2}"'), "sinks[0].catalog.options.token"),
        (iceberg(options='token: "${env:EMPTY:-}hunter2"'), "sinks[0].catalog.options.token"),
        (iceberg(options='credential: "me:hunter2${env:EMPTY:-}"'), "sinks[0].catalog.options.credential"),
        (iceberg(options='s3.secret-access-key: "hunter2"'), "sinks[0].catalog.options.s3.secret-access-key"),
        (iceberg("https://me:${env:EMPTY:-}hunter2@host"), "sinks[0].catalog.uri"),
        (iceberg("https://me:${env:PW:-hunter2}@host"), "sinks[0].catalog.uri"),
        (iceberg("postgresql://host/db?user=me&password=hunter2"), "sinks[0].catalog.uri"),
        (iceberg("https://host/?access_token=hunter2"), "sinks[0].catalog.uri"),
        (POSTGRES.replace("DSN", "host=h password=${env:PW:-hunter2}"), "sinks[0].dsn"),
        (POSTGRES.replace("DSN", "postgresql://h/d?sslpassword=${env:EMPTY:-}hunter2"), "sinks[0].dsn"),
    ],
)
def test_a_literal_secret_of_a_sink_is_refused_without_quoting_it(sink: str, place: str) -> None:
    with wording.raises(InvalidRequest) as refused:
        lint(sink)
    assert place in refused.value.message
    assert "hunter2" not in f"{refused.value.message} {refused.value.details}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "hunter2"),
        ("spark.hadoop.fs.s3a.bucket.lake.session.token", "${env:T:-hunter2}"),
        ("spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net", "hunter2"),
        ("spark.hadoop.fs.azure.sas.box.lake.blob.core.windows.net", "hunter2"),
        ("spark.hadoop.fs.azure.account.oauth2.client.secret", "${env:EMPTY:-}hunter2"),
        ("spark.hadoop.javax.jdo.option.ConnectionPassword", "hunter2"),
        ("spark.ssl.keyPassword", "hunter2"),
        ("spark.sql.catalog.lake.credential", "me:hunter2"),
    ],
)
def test_a_literal_secret_in_a_setting_of_spark_is_refused(key: str, value: str) -> None:
    with wording.raises(InvalidRequest) as refused:
        lint(more=f'spark: {{conf: {{{key}: "{value}"}}}}')
    assert key in refused.value.message
    assert "hunter2" not in f"{refused.value.message} {refused.value.details}"


def test_an_endpoint_whose_default_has_a_password_is_refused() -> None:
    with wording.raises(InvalidRequest):
        lint(more='store: {endpoint_url: "${env:ENDPOINT:-http://me:hunter2@host}"}')


@pytest.mark.parametrize(
    "sink",
    [
        iceberg("https://${env:USER}:${env:PW}@host", 'token: "${env:TOKEN}", credential: "me:${env:SECRET}"'),
        iceberg("https://host:8181/catalog?warehouse=w", 'token: "Bearer ${env:TOKEN:-}", scope: "PRINCIPAL_ROLE:ALL"'),
        iceberg("sqlite:///catalog.db", 'credential: "${env:ID}:${env:SECRET}"'),
        POSTGRES.replace("DSN", "host=h password=${env:PW} dbname=d"),
        POSTGRES.replace("DSN", "postgresql://me:${env:PW}@h:5432/d?sslmode=require"),
    ],
)
def test_references_and_values_without_secrets_are_accepted(sink: str) -> None:
    lint(sink)


def test_settings_that_only_sound_like_secrets_are_accepted() -> None:
    settings = {
        "spark.hadoop.fs.s3a.aws.credentials.provider": "com.example.Provider",
        "spark.hadoop.fs.s3a.secret.key": "${env:SECRET}",
        "spark.kubernetes.driver.secretKeyRef.PASSWORD": "name:key",
        "spark.kubernetes.driver.secrets.lake": "/etc/secrets",
        "spark.security.credentials.hive.enabled": "false",
        "spark.io.encryption.keySizeBits": "256",
    }
    lint(more="spark: {conf: {" + ", ".join(f'{key}: "{value}"' for key, value in settings.items()) + "}}")
