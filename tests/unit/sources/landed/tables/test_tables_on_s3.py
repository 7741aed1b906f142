"""Tables on S3 are read with the connection of the job's store, and what is wrong with it is named without secrets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from milepost.errors import CheckpointError, EnvironmentUnusable, InvalidRequest, SourceChanged, SourceUnreachable
from milepost.jobmaster import JobMaster, Session
from milepost.jobmaster.landing.open_sources import open_source
from milepost.jobspec.job import CatalogSpec
from milepost.jobspec.load.load import load_job
from milepost.language import parse_type
from milepost.protocol.records.object_store import Credentials, StoreConfig
from milepost.sources.landed import TableReading, open_delta_source, open_iceberg_source
from milepost.sources.landed.delta.delta_source import DeltaSource
from milepost.sources.landed.iceberg.iceberg_source import IcebergSource
from milepost.storage.open import open_store
from milepost_testkit.formats.delta_table import DeltaTableUnderTest
from milepost_testkit.formats.iceberg_lake import lake_on_server
from milepost_testkit.jobs.landed_table import TableLog
from milepost_testkit.jobs.sparkless.chained_jobs import ChainedJobs
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.s3_servers import Seaweed, SeaweedTables

pytestmark = pytest.mark.long

READING = TableReading("orders", {"k": parse_type("int64")}, None, "earliest", 1 << 30)
WRONG = Credentials("nobody", "s3cret-of-nobody")


def config_of(server: Seaweed, url: str) -> StoreConfig:
    return StoreConfig(
        url, endpoint_url=server.endpoint_url, credentials=Credentials(server.access_key, server.secret_key)
    )


def open_delta(config: StoreConfig) -> DeltaSource:
    return open_delta_source(READING, config.url, open_store(config))


@pytest.mark.parametrize("by_reference", [False, True])
def test_a_delta_table_on_s3_is_landed_commit_by_commit(
    seaweed: Seaweed, by_reference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableLog, "by_reference", by_reference)
    config = config_of(seaweed, f"s3://{seaweed.shared_bucket}/tables/{uuid4().hex}")
    log = TableLog(lambda: open_delta(config), lambda url: replace(config, url=url))
    table = DeltaTableUnderTest(open_store(config))
    table.append_by_others(1, 2)
    log.land()
    for key in (3, 4, 5):
        table.append_by_others(key)
    table.others.optimize.compact()
    log.land()
    assert log.column("k") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"url": "s3://no-such-bucket/orders"}, EnvironmentUnusable),
        ({"credentials": WRONG}, EnvironmentUnusable),
        ({"endpoint_url": "http://127.0.0.1:9"}, SourceUnreachable),
        ({}, InvalidRequest),
    ],
)
def test_a_delta_table_that_cannot_be_read_is_an_error_that_names_the_cause(
    seaweed: Seaweed, change: dict[str, object], error: type[CheckpointError]
) -> None:
    config = replace(config_of(seaweed, f"s3://{seaweed.shared_bucket}/nothing/{uuid4().hex}"), **change)  # type: ignore[arg-type]
    with pytest.raises(error) as raised:
        open_delta(config).identity()
    assert raised.value.hint and WRONG.secret_key not in raised.value.full_message()


JOB = """\
name: sales
storage: URL/store
store: {endpoint_url: ENDPOINT, region: us-east-1}
sources:
  orders: {format: delta, path: URL/orders, schema: {k: int64}, land: {by: reference}}
operators:
  - {uid: totals, kind: aggregate, inputs: [orders], key: [k], aggregates: {rows: count(*)}}
sinks:
  - {name: totals, input: totals, format: parquet, path: URL/totals, mode: upsert}
"""


def test_a_job_reads_the_files_of_a_table_on_s3_until_one_is_deleted(
    seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweed.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.secret_key)
    url = f"s3://{seaweed.shared_bucket}/referenced/{uuid4().hex}"
    spec = tmp_path / "sales.yaml"
    spec.write_text(JOB.replace("URL", url).replace("ENDPOINT", repr(seaweed.endpoint_url)))
    store = open_store(config_of(seaweed, f"{url}/orders"))
    table, master = DeltaTableUnderTest(store), JobMaster(load_job(str(spec)))
    for keys in ((1, 2, 2), (3,)):
        table.append_by_others(*keys)
        assert [landing.rows for landing in master.landings.land().landed] == [len(keys)]
        master.epochs.run(Session.cli(), SparklessRunner())
    assert sorted(master.reports.read("totals").select(["k", "rows"]).to_pydict()["rows"]) == [1, 1, 2]
    consumed = {stat.key for stat in store.list("")}
    table.append_by_others(4)
    master.landings.land()
    (pending,) = (stat.key for stat in store.list("") if stat.key not in consumed and stat.key.endswith(".parquet"))
    store.delete([pending])
    with pytest.raises(SourceChanged, match=pending):
        master.epochs.run(Session.cli(), SparklessRunner())


@pytest.mark.deep
@pytest.mark.parametrize("by_reference", [False, True])
@pytest.mark.parametrize("credentials", [None, WRONG])
def test_an_iceberg_table_of_a_rest_catalog_on_s3_is_landed_snapshot_by_snapshot(
    seaweed_tables: SeaweedTables,
    credentials: Credentials | None,
    by_reference: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TableLog, "by_reference", by_reference)
    lake = lake_on_server(seaweed_tables).made()
    lake.move(1, (lake.staged(1, 2),))
    catalog = CatalogSpec(type="rest", uri=lake.config.uri, options=dict(lake.config.options))
    used = lake.store.config if credentials is None else replace(lake.store.config, credentials=credentials)

    def open_orders() -> IcebergSource:
        return open_iceberg_source(
            READING, catalog, lake.config.table_name, "main", lambda url: open_store(replace(used, url=url)), used
        )

    log = TableLog(open_orders, lambda url: replace(used, url=url))
    if credentials is not None:
        with pytest.raises(EnvironmentUnusable) as raised:
            log.land()
        assert WRONG.secret_key not in raised.value.full_message()
        return
    log.land()
    lake.move(2, (lake.staged(3),))
    log.land()
    assert log.column("k") == [1, 2, 3]


@pytest.mark.deep
def test_the_published_table_of_another_job_on_s3_is_landed(
    seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweed.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.secret_key)
    url = f"s3://{seaweed.shared_bucket}/chained/{uuid4().hex}"
    store = f"{url}/store\nstore: {{endpoint_url: {seaweed.endpoint_url!r}, region: us-east-1}}"
    places = {"../store": store, "../lake/": f"{url}/lake/"}
    jobs = ChainedJobs.create(tmp_path / "jobs", up=places, down={**places, "../sales/": f"{url}/sales/"})
    for key in (1, 2):
        jobs.publish(key, key)
        assert jobs.land().rows == 2
    jobs.epoch("sales")
    jobs.assert_tables(jobs.rows)
    spec = jobs.folder / "config" / "sales.yaml"
    spec.write_text(spec.read_text().replace(seaweed.endpoint_url, "http://127.0.0.1:9"))
    context = jobs.context("sales")
    source = open_source(context, "orders", context.spec.landed["orders"])
    with pytest.raises(SourceUnreachable, match="did not answer") as raised:
        source.identity()
    assert seaweed.secret_key not in raised.value.full_message()
