"""Datasets have the names that OpenLineage's naming gives them, as other tools have; no secret is in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.openlineage.dataset_names import DatasetName, catalog_table, sink_name, source_name

SPEC = """\
name: small
storage: s3://lake/jobs
sources:
  rows: {{format: csv, path: "{path}", schema: {{k: int64}}}}
operators:
  - {{uid: totals, kind: aggregate, inputs: [rows], key: [k], aggregates: {{n: count(*)}}}}
sinks:
  - {{name: table, input: totals, mode: upsert, {sink}}}
"""


def job(
    folder: Path, sink: str = "format: delta, path: s3://lake/tables/t", path: str = "s3://landing/in/*.csv"
) -> LoadedJob:
    (folder / "small.yaml").write_text(SPEC.format(path=path, sink=sink))
    return load_job(str(folder / "small.yaml"))


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("s3://landing/flights/**/*.csv", ("s3://landing", "flights")),
        ("s3://landing/*.csv", ("s3://landing", "/")),
        ("file:///data/in/one.csv", ("file", "/data/in/one.csv")),
        ("file:///data/in/dt=*/x.csv", ("file", "/data/in")),
    ],
)
def test_a_source_is_the_folder_above_the_first_pattern(path: str, named: tuple[str, str], tmp_path: Path) -> None:
    assert source_name(job(tmp_path, path=path), "rows") == DatasetName(*named)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ('format: python, source: "feeds.shop:Clicks", schema: {k: int64}', ("python://feeds.shop", "Clicks")),
        ("format: nexmark, events: bid", ("nexmark", "bid")),
        ("format: delta, path: s3://lake/tables/orders/, schema: {k: int64}", ("s3://lake", "tables/orders")),
        (
            "format: iceberg, table: sales.t, catalog: {type: rest, uri: 'https://c:8181/api'}, schema: {k: int64}",
            ("https://c:8181/api", "sales.t"),
        ),
        (
            'format: iceberg, table: sales.t, catalog: {type: sql, uri: "${env:LAKE}"}, schema: {k: int64}',
            ("milepost://small", "rows"),
        ),
        ('format: delta, path: "${env:LAKE}/orders", schema: {k: int64}', ("milepost://small", "rows")),
    ],
)
def test_a_landed_source_is_the_external_data_set(source: str, named: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "landed.yaml"
    spec = SPEC.format(path="", sink="format: delta, path: s3://lake/tables/t")
    file.write_text(spec.replace('format: csv, path: "", schema: {k: int64}', source))
    assert source_name(load_job(str(file)), "rows") == DatasetName(*named)


@pytest.mark.parametrize(
    ("sink", "named"),
    [
        ("format: delta, path: s3://lake/tables/t/", ("s3://lake", "tables/t")),
        ('format: delta, path: "${env:LAKE}/t"', ("milepost://small", "table")),
        ('format: postgres, dsn: "${env:PG_DSN}", table: public.t', ("postgres://db.internal:5432", "shop.public.t")),
        ("format: postgres, conn_id: warehouse, table: public.t", ("postgres://pg.internal:6432", "dwh.public.t")),
        ("format: postgres, conn_id: unknown, table: public.t", ("milepost://small", "table")),
    ],
)
def test_a_table_is_its_folder_or_its_place_in_a_database_never_who_connects(
    sink: str, named: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE", "s3://tenant-s3cret")
    monkeypatch.setenv("PG_DSN", "postgresql://me:s3cret@db.internal/shop?sslmode=require")
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", "postgres://me:s3cret@pg.internal:6432/dwh")
    assert sink_name(job(tmp_path, sink), "table") == DatasetName(*named)


def test_a_table_of_a_catalog_has_its_name_there_as_well(tmp_path: Path) -> None:
    catalog: dict[str, Any] = {"uri": "https://catalog.internal:8181/api"}
    sink = f"format: iceberg, path: s3://lake/t, table: sales.t, catalog: {{type: rest, uri: '{catalog['uri']}'}}"
    named = job(tmp_path, sink)
    assert sink_name(named, "table") == DatasetName("s3://lake", "t")
    assert catalog_table(named, "table") == DatasetName("https://catalog.internal:8181/api", "sales.t")
    assert catalog_table(job(tmp_path), "table") is None
