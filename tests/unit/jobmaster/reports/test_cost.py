"""The cost of a job is estimated from the prices in its spec and the measurements of its epochs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.epoch.metadata import decode_metadata
from milepost.jobmaster.reports.cost.epoch_cost import EpochCost, epoch_cost
from milepost.jobspec.job.prices_spec import PricesSpec
from milepost.language.times.cron import DAYS_OF_MONTH
from milepost.storage.requests import StoreRequests
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from tests.unit.jobmaster.job.test_metadata import golden

ASKED = {"plan": StoreRequests(puts=2, gets=1), "tasks": StoreRequests(1000, 4000, 3, 10**9, 3 * 10**9)}
TASKS = decode_metadata(golden(), "golden").tasks
HOUR = replace(TASKS[0], total_ms=3_600_000)
EPOCHS = 3
AMOUNTS = {r"\bUSD [\d.,]*\d": "USD {cost}", **wording.SHORT_SIZES, **wording.LAG}


@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        (PricesSpec(put_per_1000=5.0), EpochCost("USD", 5.01, None, None, 5.01)),
        (PricesSpec(get_per_1000=1.0, currency="EUR"), EpochCost("EUR", 4.001, None, None, 4.001)),
        (PricesSpec(out_per_gb=0.09), EpochCost("USD", None, 0.27, None, 0.27)),
        (PricesSpec(core_hour=0.05), EpochCost("USD", None, None, 0.1, 0.1)),
        (PricesSpec(storage_per_gb_month=1.0), EpochCost("USD", None, None, None, 0.0)),
    ],
)
def test_the_cost_of_an_epoch_includes_exactly_the_parts_with_a_price(prices: PricesSpec, expected: EpochCost) -> None:
    found = epoch_cost(prices, ASKED, [HOUR, HOUR])
    assert found is not None
    for name in ("requests", "transfer", "compute", "total"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name))
    assert found.currency == expected.currency


def test_without_prices_nothing_is_estimated() -> None:
    """There is no default price list, because regions, contracts and providers differ."""
    assert epoch_cost(None, ASKED, [HOUR]) is None


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Three epochs. Only to be copied."""
    return CountedJob.with_epochs(tmp_path_factory.mktemp("cost") / "job", EPOCHS)


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    """The same, with prices and a schedule."""
    job = prepared.copy_to(tmp_path / "job")
    prices = "prices: {core_hour: 36.0, storage_per_gb_month: 1000000}\nschedule: {cron: '@hourly'}\n"
    job.edit("sinks:\n", f"{prices}sinks:\n")
    return job


@pytest.mark.deep
def test_the_cost_of_a_month_is_that_of_scheduled_epochs_and_of_storage(job: CountedJob) -> None:
    month = job.master.reports.month_cost()
    assert month is not None and month.by_schedule and month.measured == EPOCHS
    assert month.epochs == pytest.approx(24 * DAYS_OF_MONTH)
    figures = job.master.reports.series(10).epochs
    mean = sum(one.cost.compute for one in figures if one.cost is not None and one.cost.compute) / EPOCHS
    assert month.compute == pytest.approx(mean * month.epochs)
    assert (month.requests, month.transfer) == (None, None), "they have no price"
    assert month.storage == pytest.approx(month.stored_bytes / 1000)
    assert month.total == pytest.approx((month.compute or 0) + (month.storage or 0))


def test_stored_bytes_count_each_object_of_retained_checkpoints_once(job: CountedJob) -> None:
    context = job.small.context
    state, table = set[tuple[str, int]](), set[tuple[str, str, int]]()
    for checkpoint in context.head().state.checkpoints:
        metadata = context.metadata(checkpoint)
        state |= {(handle.key, handle.size) for handle in metadata.handles()}
        for name, contents in metadata.tables.items():
            table |= {(name, file.key, file.size) for file in context.sink(name).files(contents)}
    month = job.master.reports.month_cost()
    assert month is not None
    assert month.stored_bytes == sum(size for _, size in state) + sum(size for *_, size in table)


def test_the_cost_of_a_month_is_only_storage_if_the_pace_is_unknown(job: CountedJob) -> None:
    job.edit("schedule: {cron: '@hourly'}\n", "")
    month = job.master.reports.month_cost()
    assert month is not None
    assert (month.epochs, month.compute, month.total) == (None, None, month.storage)
    told = milepost("status", job.spec_path).stdout
    wording.matches("status", wording.paragraphs(told, "USD"), replace=AMOUNTS)


def test_show_status_and_plot_report_costs_as_text_and_json(job: CountedJob) -> None:
    spec = job.spec_path
    month = json.loads(milepost("status", spec, "--json").stdout)["data"]["month"]
    document = json.loads(milepost("show", spec, "--json").stdout)["data"]
    assert document["month"] == month and document["cost"]["compute"] > 0
    assert "month" not in json.loads(milepost("show", spec, "1", "--json").stdout)["data"], "it is told of the head"
    shown = milepost("show", spec).stdout
    wording.matches("show", wording.paragraphs(shown, "USD"), replace=AMOUNTS)
    status = milepost("status", spec).stdout
    assert f"USD {month['total']:,.2f}" in status
    wording.matches("status", wording.paragraphs(status, "USD"), replace=AMOUNTS)
    series = json.loads(milepost("plot", spec, "--json").stdout)["data"]["epochs"]
    assert [one["cost"]["total"] > 0 for one in series] == [True] * EPOCHS
    costs = [line for line in milepost("plot", spec).stdout.splitlines() if "cost" in line]
    wording.matches("plot", costs, replace={r"\b\d\.\d+\b": "{cost}"})


def test_a_job_without_prices_reports_no_costs(prepared: CountedJob) -> None:
    assert prepared.master.reports.month_cost() is None
    assert not {"cost", "month"} & json.loads(milepost("show", prepared.spec_path, "--json").stdout)["data"].keys()
    assert "month" not in json.loads(milepost("status", prepared.spec_path, "--json").stdout)["data"]
