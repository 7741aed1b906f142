"""The figures of a job over its epochs are drawn from its series, each as a bar that leads to its checkpoint."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page.drawings.bar_chart import Bar, Chart, bar_chart, ceiling
from milepost.airflow.page.frame.filters import duration
from milepost.airflow.page.routes.charts import phases_in_groups
from milepost.jobmaster.figures.timings import PHASE_GROUPS, PHASES
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import page_client
from milepost_testkit.airflow.page_text import FIGURES, page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob

CHARTS = "/jobs/small__epoch/charts"


def first_chart(page: str) -> str:
    """Return the chart of the time by phase."""
    return page[page.index('<section class="card">') : page.index("</section>")]


def test_every_phase_of_an_epoch_is_in_one_group() -> None:
    assert sorted(phase for phases in PHASE_GROUPS.values() for phase in phases) == sorted({*PHASES} - {"subsume"})


def test_the_page_draws_each_figure_and_has_it_as_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an epoch without measurements the whole time alone is known, and is drawn as such."""
    job = CountedJob.with_epochs(tmp_path / "job", 4, {"last: 20": "last: 2"})
    forget_figures(job)
    client = page_client(monkeypatch, *job_dags(job.small.folder / "config").values())
    page = client.get(CHARTS).text
    wording.matches("page_charts", page_text(page, "h2", ".legend"), replace=FIGURES)
    assert page.count('role="group"') == 5, "it has no event time"
    series = job.master.reports.series(60).epochs
    kept = [one for one in series if one.phases is not None]
    assert 0 < len(kept) < len(series)
    first = first_chart(page)
    whole = [one for one in series if one.phases is None and one.duration_ms is not None]
    assert first.count('<rect class="whole"') == len(whole) + 1, "and once in the legend"
    for one in kept:
        groups = phases_in_groups(one)
        assert sum(groups.values()) == sum(
            ms or 0 for name, ms in one.phases.items() if name not in ("total_ms", "subsume_ms")
        )  # type: ignore[union-attr]
    assert f'href="{CHARTS.removesuffix("/charts")}/checkpoints/{series[-1].checkpoint_id}?job=small"' in first
    assert page.count("<tr><td") == len(series)
    assert client.get(f"{CHARTS}?epochs=2").text.count("<tr><td") == 2
    assert client.get(f"{CHARTS}?epochs=0").status_code == 422


def test_a_checkpoint_that_cannot_be_read_is_named_with_why_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of it the figures of the log are shown; so too in the summary, whose percentiles are of the others."""
    job = CountedJob.with_epochs(tmp_path / "job", 4)
    next((job.small.folder / "store").rglob("chk-*2/t*/_metadata")).write_bytes(b"{")
    client = page_client(monkeypatch, *job_dags(job.small.folder / "config").values())
    for address in (CHARTS, CHARTS.replace("charts", "summary")):
        answer = client.get(address)
        assert answer.status_code == 200 and answer.text.count('checkpoints/2?job=small">') >= 1
        wording.matches("page_charts", page_text(answer.text, ".banner"))
        assert 'href="/runbook/state-corrupt"' in answer.text
    page = client.get(CHARTS).text
    assert page.count("<tr><td") == 4
    assert first_chart(page).count('<rect class="whole"') == 1 + 1, "of the damaged one, and once in the legend"
    over = page_text(client.get(CHARTS.replace("charts", "summary")).text, "p.soft")
    assert re.findall(r"\d+", over) == ["4"]
    wording.matches("page_summary", over)


@pytest.mark.deep
def test_epochs_whose_log_is_compacted_are_drawn_from_their_rows_and_without_rows_both_pages_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2, {"last: 20": "last: 2"})
    client = page_client(monkeypatch, *job_dags(job.small.folder / "config").values())
    addresses = (CHARTS, CHARTS.replace("charts", "summary"))
    before = [page_text(client.get(address).text, "p.soft").splitlines() for address in addresses]
    job.land(range(3, 8))
    job.run(5)
    assert job.small.context.head().state.compacted > 0
    charts, summary = (client.get(address).text for address in addresses)
    after = [page_text(page, "p.soft").splitlines() for page in (charts, summary)]
    assert [len(lines) for lines in after] == [len(lines) for lines in before]
    assert charts.count("<tr><td") == 7 and re.findall(r"\d+", after[1][0]) == ["7"]
    forget_figures(job)
    charts, summary = (client.get(address).text for address in addresses)
    after = [page_text(page, "p.soft").splitlines() for page in (charts, summary)]
    assert [len(lines) for lines in after] == [len(lines) + 1 for lines in before]
    wording.matches("page_charts", after[0])
    wording.matches("page_summary", after[1])
    known = len(job.master.reports.series(60).epochs)
    assert 2 <= known < 7 and charts.count("<tr><td") == known
    assert re.findall(r"\d+", after[1][0]) == [str(known)]


def forget_figures(job: CountedJob) -> None:
    """As of a job that ran before figures were stored."""
    shutil.rmtree(job.small.folder / "store" / "small" / "figures")


def test_stored_figures_that_cannot_be_read_are_named_on_both_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 7, {"last: 20": "last: 2"})
    client = page_client(monkeypatch, *job_dags(job.small.folder / "config").values())
    for damaged in (job.small.folder / "store" / "small" / "figures").rglob("*.parquet"):
        damaged.write_bytes(b"<script>")
    for address in (CHARTS, CHARTS.replace("charts", "summary")):
        answer = client.get(address)
        assert answer.status_code == 200 and damaged.name in page_text(answer.text, ".banner")


def test_before_the_first_epoch_there_is_nothing_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = page_client(monkeypatch, *job_dags(SparklessJob.create(tmp_path).folder / "config").values())
    wording.matches("page_charts", page_text(client.get(CHARTS).text, "#main"))


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (-3, 1), (0.3, 0.5), (1, 1), (1.1, 2), (3, 5), (7, 10), (10, 10), (2_400, 5_000)]
)
def test_the_axis_ends_at_a_round_number_above_every_bar(value: float, top: float) -> None:
    assert ceiling(value) == pytest.approx(top)


def test_parts_of_a_bar_stand_on_each_other_and_fill_what_their_sum_says() -> None:
    bars = [Bar("a", {"plan": 30, "read": 0, "other": 20}, "<b>", '/"><b>'), Bar("b", {}, "not known", "/b")]
    svg = bar_chart(Chart("Time <b>", bars, str), "c")
    assert "<b>" not in svg
    boxes = {
        name: (float(y), float(height))
        for name, y, height in re.findall(
            r'class="(plan|other)" x="[^"]+" y="([^"]+)" width="[^"]+" height="([^"]+)"', svg
        )
    }
    plan, other = boxes["plan"], boxes["other"]
    assert other[0] + other[1] == pytest.approx(plan[0], abs=0.02) and 'class="read"' not in svg
    full = float(re.findall(r'class="column" x="[^"]+" y="[^"]+" width="[^"]+" height="([^"]+)"', svg)[0])
    assert plan[1] + other[1] == pytest.approx(full, abs=0.02), "50 of 50"


@pytest.mark.parametrize("behind_ms", [90_000, 0.9 * 2893.5 * 86_400_000, 40_000 * 86_400_000])
def test_a_label_of_the_axis_has_room_left_of_the_chart_however_long_it_is(behind_ms: float) -> None:
    """Of 11 units per character's height none is wider than 6.5."""
    chart = Chart("Watermark behind the trigger", [Bar("a", {"whole": behind_ms}, "", "/a")], duration)
    svg = bar_chart(chart, "c")
    labels = re.findall(r'<text x="([^"]+)" y="[^"]+" text-anchor="end">([^<]+)</text>', svg)[:3]
    (ground, *_) = re.findall(r'class="grid" d="M ([0-9.]+) ', svg)
    (bar,) = re.findall(r'class="column" x="([^"]+)"', svg)
    assert len(labels) == 3 and all(float(x) - 6.5 * len(told) >= 0 for x, told in labels)
    assert float(bar) == pytest.approx(float(ground), abs=0.01) and all(float(x) < float(bar) for x, _ in labels)


def test_what_an_epoch_cost_is_drawn_where_the_spec_has_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(
        tmp_path / "job", 1, {"checkpointing:": "prices: {currency: EUR, core_hour: 36}\ncheckpointing:"}
    )
    page = page_client(monkeypatch, *job_dags(job.small.folder / "config").values()).get(CHARTS).text
    titles = page_text(page, "h2").splitlines()
    assert len(titles) == 6 and re.search(r" [0-9.e-]+ EUR$", titles[-1]), "a directory receives no requests"
    wording.matches("page_charts", titles[-1], replace={r"[0-9.e-]+ EUR": "{cost} EUR"})
