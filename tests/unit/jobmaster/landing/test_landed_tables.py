"""A job over an open table: land, epochs, rollback and backfill read each row once, as DuckDB counts them."""

from __future__ import annotations

import re
import shutil
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from milepost.errors import CheckpointError, InvalidRequest
from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.landing.source_probe import probe_landed_sources
from milepost.jobspec.load.load import load_job
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.table_job import SCHEMA, SPEC, START, DeltaOrders, IcebergOrders, OrdersTable, SalesJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.sparkless_runner import SparklessRunner


@pytest.fixture(
    params=[
        (DeltaOrders, "reference"),
        (IcebergOrders, "copy"),
        pytest.param((DeltaOrders, "copy"), marks=pytest.mark.deep),
        pytest.param((IcebergOrders, "reference"), marks=pytest.mark.deep),
    ],
    ids=lambda params: f"{params[0].__name__}-{params[1]}",
)
def job(tmp_path: Path, request: pytest.FixtureRequest) -> SalesJob:
    table, by = request.param
    return SalesJob(tmp_path, table(tmp_path), by)


@pytest.mark.deep
def test_a_job_reads_each_row_of_a_table_once_and_again_after_a_rollback_and_a_backfill(job: SalesJob) -> None:
    counts = {}
    for keys in ((1, 2, 1), (2, 3), (1, 3, 3, 4)):
        job.append(*keys)
        job.table.compact()
        assert job.land() == len(keys)
        counts[job.epoch()] = job.appended.num_rows
        job.assert_tables(job.appended.num_rows)
    for checkpoint in (*counts, *reversed(counts)):
        roll_back(job.master, checkpoint)
        job.assert_tables(counts[checkpoint])
    job.epoch()
    job.assert_tables(9)
    back_fill(job.master, SparklessRunner(), from_checkpoint=min(counts))
    job.assert_tables(9)
    job.append(7)
    job.land()
    job.epoch()
    job.assert_tables(10)


@pytest.mark.long
@pytest.mark.parametrize(("resume_from", "read"), [("earliest", [1, 3, 4]), ("latest", [1]), ("2100-01-01", [1])])
def test_a_log_goes_on_after_commits_that_expired(job: SalesJob, resume_from: str, read: list[int]) -> None:
    job.append(1)
    job.land()
    for key in (2, 3, 4):
        job.append(key)
    job.table.lose_oldest()
    (failed,) = job.master.landings.land().failed
    assert failed.error == "PositionExpired" and "--resume-from earliest" in failed.hint
    plan = job.master.gaps.plan("orders", resume_from)
    job.master.gaps.approve(plan.approved, "ada")
    job.land()
    job.append(5)
    job.land()
    while not isinstance(job.master.epochs.run(Session.cli(), SparklessRunner()), NothingToDo):
        pass
    rows = job.master.reports.read("rows").column("k").to_pylist()
    assert sorted(rows) == [*read, 5]


def test_a_start_that_is_changed_before_the_first_epoch_is_refused(job: SalesJob) -> None:
    job.append(1)
    job.land()
    spec = job.folder / "config" / "sales.yaml"
    begun = spec.read_text()
    spec.write_text(begun.replace("event_time: at", "event_time: at\n    start: latest"))
    (failed,) = job.master.landings.land().failed
    assert (failed.error, failed.may_pass) == ("InvalidRequest", False)
    assert "its log began at start earliest, and the spec says latest now" in failed.message
    with pytest.raises(InvalidRequest, match="began at start earliest"):
        job.master.epochs.run(Session.cli(), SparklessRunner())
    spec.write_text(begun)
    job.epoch()
    job.assert_tables(1)


@pytest.mark.long
def test_the_time_of_a_start_may_be_written_differently_before_and_after_the_first_epoch(job: SalesJob) -> None:
    spec = job.folder / "config" / "sales.yaml"
    text = spec.read_text()
    for key, start in enumerate(("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "2026-01-01")):
        spec.write_text(text.replace("event_time: at", f"event_time: at\n    start: {start}"))
        job.append(key)
        job.land()
        if key > 0:
            job.epoch()
    job.assert_tables(3)
    spec.write_text(text.replace("event_time: at", "event_time: at\n    start: 2026-01-02"))
    with pytest.raises(CheckpointError, match="start was 2026-01-01, is 2026-01-02"):
        job.master.epochs.run(Session.cli(), SparklessRunner())


def test_a_change_of_rows_stops_landing_but_not_epochs_over_landed_rows(job: SalesJob) -> None:
    job.append(1, 2)
    job.land()
    job.table.delete_first()
    job.append(3)
    (failed,) = job.master.landings.land().failed
    assert (failed.error, failed.may_pass) == ("InvalidRequest", False)
    assert "a landed log is only appended to" in failed.message
    job.epoch()
    job.assert_tables(2)


@pytest.mark.deep
def test_the_watermark_waits_for_the_whole_of_the_initial_copy(job: SalesJob) -> None:
    for _ in range(4):
        job.append(*range(40))
    spec = job.folder / "config" / "sales.yaml"
    spec.write_text(
        spec.read_text().replace("event_time: at", "event_time: at\n    limits_per_epoch: {max_records: 2}")
    )
    assert job.land() == 160
    watermarks = []
    for _ in range(3):
        job.epoch()
        context = JobContext(load_job(str(spec)))
        state = context.head().state
        metadata = context.base_metadata(state, state.timeline().head)
        assert metadata is not None
        watermarks.append(metadata.sources["orders"].watermark_us)
    newest = START + timedelta(hours=159)
    assert watermarks == [None, None, int(newest.timestamp()) * 1_000_000]


def test_doctor_shows_the_next_record_and_refusals(job: SalesJob) -> None:
    def probe(spec: str = "sales.yaml") -> str:
        (probed,) = probe_landed_sources(JobContext(load_job(str(job.folder / "config" / spec))))
        return probed.detail

    job.append(1, 2)
    assert "nothing was landed yet; not landed yet: 1 " in probe()
    assert not (job.folder / "store").exists()
    job.land()
    assert "landed 2 rows" in probe() and "nothing new after position" in probe()
    job.table.delete_first()
    assert probe().startswith("InvalidRequest: source orders:")


@pytest.mark.parametrize("path", ["../warehouse/orders", "../warehouse/../warehouse/orders/"])
def test_a_delta_table_that_the_job_writes_cannot_be_its_source(tmp_path: Path, path: str) -> None:
    refuse_own_table(tmp_path, DeltaOrders(tmp_path), f"format: delta, path: {path}")


def test_an_iceberg_table_that_the_job_writes_cannot_be_its_source(tmp_path: Path) -> None:
    table = IcebergOrders(tmp_path)
    refuse_own_table(tmp_path, table, f"path: ../lake/rows, {', '.join(map(str.strip, table.source.splitlines()))}")


def refuse_own_table(folder: Path, table: OrdersTable, sink: str) -> None:
    spec = (
        SPEC.replace("SOURCE", table.source).replace("BY", "copy").replace("format: parquet, path: ../lake/rows", sink)
    )
    (folder / "config").mkdir()
    (folder / "config" / "sales.yaml").write_text(spec)
    with pytest.raises(InvalidRequest, match="this is the table of sink rows; read the sink's input"):
        load_job(str(folder / "config" / "sales.yaml")).graph()


AMOUNTS = pa.array([Decimal("1.50"), Decimal("2.25")], pa.decimal128(10, 2))
ORDERS = pa.table({"customer": ["a", "a"], "amount": AMOUNTS, "at": pa.array([START] * 2, SCHEMA.field("at").type)})


def assert_reads_orders(folder: Path, *specs: Path) -> None:
    """Both tables of orders, in the warehouse of the folder, are read by these specs, twice."""
    orders = IcebergOrders(folder, columns=ORDERS.schema)
    for count in (2, 4):
        write_deltalake(folder / "warehouse" / "orders", ORDERS, mode="append")
        orders.append(ORDERS)
        for spec in specs:
            master = JobMaster(load_job(str(spec)))
            assert not master.landings.land().failed
            master.epochs.run(Session.cli(), SparklessRunner())
            (total,) = master.reports.read("totals").to_pylist()
            assert (total["orders"], total["total"]) == (count, Decimal("3.75") * count / 2)


PAGE = (REPOSITORY / "docs" / "how-to" / "read-tables.md").read_text(encoding="utf-8")


@pytest.mark.deep
def test_the_examples_of_the_page_read_a_delta_and_an_iceberg_table(tmp_path: Path) -> None:
    delta, iceberg = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "config").mkdir()
    rest = delta[delta.index("operators:") :].replace("../tables", "../iceberg")
    specs = [tmp_path / "config" / f"{name}.yaml" for name in ("delta", "iceberg")]
    specs[0].write_text(delta)
    specs[1].write_text(f"name: iceberg\nstorage: ../store\n{iceberg}{rest}")
    assert_reads_orders(tmp_path, *specs)


@pytest.mark.deep
def test_the_example_specs_read_a_delta_and_an_iceberg_table(tmp_path: Path) -> None:
    specs = [tmp_path / "config" / "examples" / f"{name}_table.yaml" for name in ("delta", "iceberg")]
    specs[0].parent.mkdir(parents=True)
    for spec in specs:
        shutil.copy(REPOSITORY / "config" / "examples" / spec.name, spec)
    assert_reads_orders(tmp_path, *specs)
