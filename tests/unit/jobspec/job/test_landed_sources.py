"""Specs of landed sources: what they accept, what they refuse, and what their properties say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.errors import InvalidRequest
from milepost.jobspec.job.sources.iceberg_source import IcebergSourceSpec
from milepost.jobspec.job.sources.landed_source import LandedSourceSpec
from milepost.jobspec.job.sources.nexmark_source import NEXMARK_COLUMNS, NexmarkSourceSpec
from milepost.jobspec.job.sources.source_kinds import SOURCE_KINDS, UNAVAILABLE_FORMATS
from milepost.jobspec.load.lint import lint_report
from milepost.jobspec.load.load import LoadedJob, from_text
from milepost_testkit import wording

SPEC = """\
name: clicks
storage: ../lake
sources:
  clicks: {SOURCE}
operators:
  - {uid: events, kind: sql, inputs: [clicks], sql: "SELECT * FROM clicks"}
sinks:
  - {name: events, input: INPUT, format: parquet, path: out/events, mode: append}
"""
PYTHON = 'format: python, source: "feeds:Clicks", schema: {user: string, at: "timestamp[us, UTC]"}'
BIDS = "format: nexmark, events: bid"
POSTGRES = (
    'format: postgres, dsn: "${env:PG_DSN}", table: public.t, publication: p, key: [id], schema: {id: int64}, '
    "metadata: {op: op, lsn: lsn, number: number}"
)
DELTA = "format: delta, path: s3://lake/clicks, schema: {user: string, at: 'timestamp[us, UTC]'}"

ICEBERG = "format: iceberg, table: shop.clicks, catalog: {type: sql, uri: sqlite:///c.db}, schema: {user: string}"
MILEPOST = "format: milepost, path: s3://lake/clicks, schema: {user: string}"
DLT = 'format: dlt, resource: "feeds:clicks", schema: {user: string, at: "timestamp[us, UTC]"}'
VALID = {
    "PYTHON": PYTHON,
    "BIDS": BIDS,
    "DELTA": DELTA,
    "ICEBERG": ICEBERG,
    "DLT": DLT,
    "POSTGRES": POSTGRES,
    "MILEPOST": MILEPOST,
}

REFUSALS = yaml.safe_load((Path(__file__).parent / "golden" / "landed_sources.yaml").read_text(encoding="utf-8"))


def load(source: str, read: str = "events") -> LoadedJob:
    return from_text(SPEC.replace("SOURCE", source).replace("INPUT", read), Path("/jobs/config/clicks.yaml"))


def landed(source: str) -> LandedSourceSpec:
    return load(source).spec.landed["clicks"]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (PYTHON, {"source": "feeds:Clicks", "options": {}, "time_column": None, "expect_every": None}),
        (f"{PYTHON}, event_time: at, watermark_delay: 1h", {"time_column": "at"}),
        (f"{PYTHON}, options: {{url: 'https://x', empty: ''}}", {"options": {"url": "https://x", "empty": ""}}),
        (BIDS, {"events": "bid", "seed": 0, "events_per_second": 10_000, "total": None}),
        (f"{BIDS}, seed: 7, events_per_second: 5, total: 9", {"seed": 7, "events_per_second": 5, "total": 9}),
        ("format: nexmark, events: person, event_time: event_time", {"time_column": "event_time"}),
        (f"{BIDS}, land: {{max_rows: 5, max_bytes: 1KB}}", {"events": "bid"}),
        (f"{PYTHON}, land: {{max_bytes: 1MB}}", {"source": "feeds:Clicks"}),
        (DELTA, {"path": "s3://lake/clicks", "start": "earliest", "location": "s3://lake/clicks", "dataset": None}),
        (ICEBERG, {"table": "shop.clicks", "branch": "main", "start": "earliest", "location": "iceberg:shop.clicks"}),
        (MILEPOST, {"path": "s3://lake/clicks", "storage": None, "start": "earliest", "location": "s3://lake/clicks"}),
        (f"{MILEPOST}, storage: s3://other/jobs, start: latest", {"storage": "s3://other/jobs", "start": "latest"}),
        (f"{DELTA}, start: 12, land: {{by: copy, max_bytes: 1MB}}", {"start": 12}),
        (f"{DELTA}, start: 2026-01-31T00:00:00Z, event_time: at", {"start": "2026-01-31T00:00:00Z"}),
    ],
)
def test_a_landed_source_is_valid(source: str, expected: dict[str, Any]) -> None:
    job = load(source)
    spec = job.spec.landed["clicks"]
    assert {name: getattr(spec, name) for name in expected} == expected
    assert lint_report(job)["nodes"][0]["columns"] == {name: str(type_) for name, type_ in spec.columns.items()}
    assert job.spec.streams == {"clicks": spec}
    assert (job.spec.files, job.spec.dimensions) == ({}, {})


@pytest.mark.long
@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case["source"])
def test_an_invalid_landed_source_is_refused_with_its_place(case: dict[str, str]) -> None:
    with wording.raises(InvalidRequest) as refused:
        load(VALID[case["of"]] + case["source"], case.get("read", "events")).graph()
    assert refused.value.message.splitlines()[1:] == case["says"].splitlines()


@pytest.mark.parametrize("format_", sorted(UNAVAILABLE_FORMATS))
def test_a_planned_format_is_not_available(format_: str) -> None:
    with pytest.raises(InvalidRequest, match=f"`format: {format_}` is not available in this version; available: csv"):
        load(f"format: {format_}, topics: [clicks]")


def test_each_format_has_a_kind_of_source() -> None:
    landed = ["python", "dlt", "nexmark", "kafka", "delta", "iceberg", "milepost", "postgres"]
    assert [*SOURCE_KINDS] == ["csv", "json", "parquet", *landed]
    assert not UNAVAILABLE_FORMATS & SOURCE_KINDS.keys()
    assert [format_ for format_, kind in SOURCE_KINDS.items() if kind.is_landed] == landed


def test_the_limits_of_a_landed_source_count_records_and_rows() -> None:
    limits = "land: {max_rows: 10}, limits_per_epoch: {max_records: 3, max_rows: 20, max_bytes: 1MB}"
    spec, default = landed(f"{BIDS}, {limits}"), landed(BIDS)
    assert isinstance(spec, NexmarkSourceSpec) and isinstance(default, NexmarkSourceSpec)
    assert spec.land.max_rows == 10
    assert [*spec.limits_per_epoch.model_dump().values()] == [3, 20, 1_000_000]
    assert default.land.max_rows == 1_000_000
    assert [*default.limits_per_epoch.model_dump().values()] == [1000, None, None]


def test_a_landed_source_is_read_as_parquet_without_bad_records() -> None:
    spec = landed(PYTHON)
    assert (spec.layout.format, spec.layout.options, spec.layout.partitions) == ("parquet", {}, {})
    assert (spec.bad_record_rules, spec.indivisible_reason, spec.skips_missing) == (None, None, False)
    assert not spec.starts_at_latest


def test_each_kind_of_nexmark_event_has_an_event_time() -> None:
    for events, columns in NEXMARK_COLUMNS.items():
        spec = landed(f"format: nexmark, events: {events}, event_time: event_time")
        assert spec.columns == columns
        assert str(spec.row_types["event_time"]) == "timestamp[us, UTC]"


def test_the_columns_of_nexmark_are_not_part_of_the_spec() -> None:
    job = load(BIDS)
    assert "columns" not in job.spec.sources["clicks"].model_dump()
    assert load(f"{BIDS}, seed: 0").spec_hash == job.spec_hash != load(f"{BIDS}, seed: 1").spec_hash


@pytest.mark.parametrize(
    ("source", "changed", "same"),
    [
        (PYTHON, PYTHON.replace("feeds", "other"), f"{PYTHON}, options: {{url: x}}, expect_every: 1h"),
        (BIDS, f"{BIDS}, seed: 1", f"{BIDS}, total: 5"),
        (BIDS, "format: nexmark, events: person", f"{BIDS}, event_time: event_time"),
        (BIDS, f"{BIDS}, events_per_second: 1", BIDS),
        (ICEBERG, f"{ICEBERG}, branch: audit", ICEBERG.replace("c.db", "moved.db")),
        (DELTA, f"{DELTA}, start: 7", DELTA.replace("lake", "other")),
    ],
)
def test_the_identity_of_a_source_is_what_its_positions_refer_to(source: str, changed: str, same: str) -> None:
    assert landed(source).identity == landed(same).identity != landed(changed).identity


def test_options_are_resolved_from_the_environment() -> None:
    job = load(f'{PYTHON}, options: {{token: "${{env:TOKEN}}", url: "https://${{env:HOST:-local}}/"}}')
    resolved = job.resolved({"TOKEN": "hunter2"}).sources["clicks"]
    assert resolved.connection_texts == {("options", "token"): "hunter2", ("options", "url"): "https://local/"}
    assert job.spec.landed["clicks"].connection_texts["options", "token"] == "${env:TOKEN}"
    with wording.raises(InvalidRequest) as refused:
        job.resolved({})
    assert refused.value.message.startswith("sources.clicks.options.token: the environment variable TOKEN is not set")


def test_the_catalog_of_an_iceberg_table_is_resolved_from_the_environment_and_the_folder_of_the_spec() -> None:
    job = load(ICEBERG.replace("uri: sqlite:///c.db", 'uri: "${env:CATALOG}", options: {warehouse: "${env:W:-w}"}'))
    source = job.resolved({"CATALOG": "sqlite:///c.db"}).sources["clicks"]
    assert isinstance(source, IcebergSourceSpec)
    assert (source.catalog.uri, source.catalog.options) == ("sqlite:////jobs/config/c.db", {"warehouse": "w"})
    with pytest.raises(InvalidRequest, match="must not contain a secret"):
        load(ICEBERG.replace("c.db}", "c.db, options: {token: s3cret}}"))


def test_a_lookup_cannot_read_a_landed_source() -> None:
    lookup = "{uid: events, kind: lookup, inputs: [clicks, names], key: [user], how: left, columns: {n: right.at}}"
    text = SPEC.replace("SOURCE", PYTHON).replace("INPUT", "events")
    text = text.replace("operators:", f"  names: {{{PYTHON}}}\noperators:")
    text = text.replace('{uid: events, kind: sql, inputs: [clicks], sql: "SELECT * FROM clicks"}', lookup)
    with wording.raises(InvalidRequest) as refused:
        from_text(text, Path("/jobs/config/clicks.yaml")).graph()
    assert "only files can be static, and sources.names has format: python" in refused.value.message
