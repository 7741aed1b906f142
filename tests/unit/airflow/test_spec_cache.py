"""A spec that Airflow keeps is the spec of its file, down to the order of its columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milepost.airflow.spec_cache import cached_job_name, parsed_spec
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.load import load_job

SPEC = """\
name: small
storage: ../store
sources:
  rows: {format: csv, path: ../landing/*.csv, schema: {k: int32, z: int32, a: int32, t: int64}}
operators:
  - {uid: newest, kind: latest, inputs: [rows], key: [k], sequence_by: [t]}
sinks:
  - {name: newest, input: newest, format: parquet, path: ../lake/newest, mode: upsert}
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "small.yaml"
    file.write_text(SPEC)
    return file


def as_text(spec: JobSpec) -> str:
    """Every value in its place: two specs that are equal may differ in the order of a mapping."""
    return json.dumps(spec.model_dump(mode="json", by_alias=True, exclude_unset=True))


def test_a_cached_spec_has_its_columns_in_the_order_of_the_file(path: Path) -> None:
    for job in (parsed_spec(path), parsed_spec(path)):
        assert list(job.spec.sources["rows"].columns) == ["k", "z", "a", "t"]
        assert as_text(job.spec) == as_text(load_job(path).spec)
    assert cached_job_name(path) == "small"


def test_another_text_of_the_sql_file_or_of_the_compiled_spec_is_parsed_again(path: Path) -> None:
    head = SPEC.partition("operators:")[0] + "sql: small.sql\ntables: {format: parquet, path: 'lake/{name}'}\n"
    sql = "CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n FROM rows GROUP BY k"
    path.write_text(head)
    path.with_name("small.sql").write_text(sql)
    recorded = parsed_spec(path).text
    pinned = path.with_name("small.compiled")
    path.write_text(f"{head}compiled: small.compiled\n")
    for name in ("number", "another"):
        pinned.write_text(recorded.replace("count: count(*)", f"{name}: count(*)").replace("`count`", f"`{name}`"))
        for _ in range(2):
            assert parsed_spec(path).text == load_job(path).text == pinned.read_text()
    path.with_name("small.sql").write_text(sql.replace("count(*) AS n", "max(a) AS n"))
    assert "max_a" in parsed_spec(path).text
