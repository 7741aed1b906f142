"""The upsert cost is estimated from the newest epochs, the schedule and the retention."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from milepost.jobmaster.reports.cost import pace, upsert_cost
from milepost.jobmaster.reports.cost.upsert_price import UpsertPrice
from milepost.language.times.cron import runs_per_day
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob

BUCKETS = {"format: parquet, path: ../lake/table": "format: delta, buckets: 4, path: ../lake/table"}
EPOCHS = 5


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Five epochs of a table of four buckets. Only to be copied."""
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("price") / "job", EPOCHS, BUCKETS)
    job.land(range(EPOCHS + 1, EPOCHS + 3))
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def price_of(job: CountedJob) -> UpsertPrice:
    (price,) = job.master.reports.upsert_prices()
    return price


def sizes(job: CountedJob, checkpoint_id: int) -> dict[str, int]:
    """The files of the table at a checkpoint, as its contents have them."""
    context = job.small.context
    (found,) = [one for one in context.head().state.checkpoints if one.checkpoint_id == checkpoint_id]
    files = context.sink("table").files(context.metadata(found).tables["table"])
    return {file.key: file.size for file in files}


@pytest.mark.deep
def test_written_bytes_are_those_of_the_newest_epochs(job: CountedJob) -> None:
    ids = job.live_ids
    written = [
        {key: size for key, size in sizes(job, after).items() if key not in sizes(job, before)}
        for before, after in pairwise(ids)
    ]
    price = price_of(job)
    assert (price.sink, price.epochs, price.files) == ("table", EPOCHS - 1, len(sizes(job, ids[-1])))
    assert price.table_bytes == sum(sizes(job, ids[-1]).values())
    assert price.written_bytes_per_epoch == sum(sum(one.values()) for one in written) // (EPOCHS - 1)
    assert price.changed_bytes_per_epoch == 3 * price.table_bytes // (2 * EPOCHS + 1)


def test_epochs_without_the_sink_do_not_count(job: CountedJob) -> None:
    """A checkpoint still refers to the table of a sink that the spec no longer has."""
    sink = next(line for line in job.spec_path.read_text().splitlines(keepends=True) if "name: table," in line)
    job.edit(sink, "")
    job.run()
    job.edit("sinks:\n", f"sinks:\n{sink}")
    price = price_of(job)
    assert (price.epochs, price.files) == (EPOCHS - 1, len(sizes(job, job.live_ids[-1])))


@pytest.mark.parametrize(("cron", "epochs"), [("*/10 * * * *", 144), ("@hourly", 24), ("0 6 * * 1-5", 5 / 7)])
def test_the_schedule_determines_the_epochs_per_day(job: CountedJob, cron: str, epochs: float) -> None:
    job.edit("sinks:\n", f"schedule: {{cron: '{cron}'}}\nsinks:\n")
    price = price_of(job)
    assert price.epochs_per_day == pytest.approx(epochs)
    assert price.written_bytes_per_day == round(price.written_bytes_per_epoch * price.epochs_per_day)


def test_without_a_schedule_the_triggers_determine_the_epochs_per_day(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only if they span at least an hour: a person who tries a job runs it more often."""
    assert price_of(job).epochs_per_day is None and price_of(job).written_bytes_per_day is None
    monkeypatch.setattr(pace, "MIN_SPAN_MS", 1)
    price = price_of(job)
    assert price.epochs_per_day is not None and price.epochs_per_day > EPOCHS and not price.by_schedule


def test_stored_bytes_grow_with_the_number_of_retained_checkpoints(job: CountedJob) -> None:
    many = price_of(job)
    assert many.kept_bytes == many.table_bytes + 19 * min(many.table_bytes, many.written_bytes_per_epoch)
    job.edit("last: 20", "last: 1")
    assert price_of(job).kept_bytes == many.table_bytes
    job.edit("last: 1", "last: 1, daily: 3")
    assert price_of(job).kept_bytes == 4 * many.table_bytes


def test_changelog_is_suggested_only_beyond_the_limit(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much is written, mostly for unchanged rows."""
    assert price_of(job).advice is None
    monkeypatch.setattr(upsert_cost, "MUCH_BYTES", 1000)
    assert price_of(job).advice is None
    monkeypatch.setattr(upsert_cost, "AMPLIFIED", 1)
    advice = price_of(job).advice
    assert advice is not None and "mode: changelog" in advice
    wording.matches("lint", advice, replace={r"\b\d[\d.]*\b": "{number}"})


COSTS = ("table rows", "of table")


def test_lint_and_show_report_the_upsert_cost_as_text_and_json(job: CountedJob) -> None:
    spec = job.spec_path
    assert "upsert of" not in milepost("lint", spec).stdout, "without a schedule there are no epochs a day"
    job.edit("sinks:\n", "schedule: {cron: '@hourly'}\nsinks:\n")
    for verb, mentions in (("lint", ["table"]), ("show", COSTS)):
        text = milepost(verb, spec).stdout
        wording.matches(verb, wording.paragraphs(text, *mentions), replace=wording.SHORT_SIZES)
        document = json.loads(milepost(verb, spec, "--json").stdout)
        (price,) = document["data"]["upsert"]
        assert price["sink"] == "table" and price["epochs"] == EPOCHS - 1 and price["advice"] is None
    text = milepost("show", spec, "2").stdout
    wording.matches("show", wording.paragraphs(text, *COSTS), replace=wording.SHORT_SIZES)


def test_a_table_of_one_epoch_and_a_job_that_never_ran_have_no_upsert_cost(tmp_path: Path) -> None:
    job = CountedJob.create(tmp_path / "job", BUCKETS)
    job.land([1])
    assert job.master.reports.upsert_prices() == ()
    job.run()
    assert price_of(job).epochs == 0 and price_of(job).written_bytes_per_day is None
    text = milepost("show", job.spec_path).stdout
    wording.matches("show", wording.paragraphs(text, *COSTS), replace=wording.SHORT_SIZES)


def test_show_and_lint_work_with_damaged_table_contents(job: CountedJob) -> None:
    for record in (job.small.folder / "store").rglob("contents/table-*.json"):
        record.unlink()
    for verb in ("lint", "show"):
        assert milepost(verb, job.spec_path).exit_code == 0


@pytest.mark.parametrize(
    ("cron", "runs"),
    [
        ("* * * * *", 1440),
        ("@daily", 1),
        ("0,30 8-17 * * mon-fri", 20 * 5 / 7),
        ("5/20 * * * *", 72),
        ("0 0 1 1 *", 1 / 30.4375 / 12),
        ("0 0 15 * sun", 1 / 30.4375 + 1 / 7 - 1 / 30.4375 / 7),
        ("0 0 L * *", None),
        ("0 0 * * 1#2", None),
        ("61 * * * *", None),
    ],
)
def test_runs_per_day_of_a_cron_expression(cron: str, runs: float | None) -> None:
    assert runs_per_day(cron) == (None if runs is None else pytest.approx(runs))
