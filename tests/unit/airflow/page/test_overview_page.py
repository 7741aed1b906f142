"""The page of a job: its state and why come first, then how fresh it is, what to do, its epochs and its tables."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page.jobs import job_reader
from milepost.errors import InvalidRequest, StoreUnavailable
from milepost.jobmaster import Session
from milepost.jobmaster.job.input import next_input
from milepost.jobmaster.reports.checkpoint.log_search import ending_entry
from milepost.jobspec.load.load import LoadedJob
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import manifest_key
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import FIGURES, page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.hooked_store import HookedStore
from milepost_testkit.stores.job_stores import break_store, hook_stores, later

OVERVIEW = "/jobs/small__epoch"


def client_of(job: SparklessJob, patch: pytest.MonkeyPatch) -> PageClient:
    return page_client(patch, *job_dags(job.folder / "config").values())


def overview(job: SparklessJob, patch: pytest.MonkeyPatch) -> str:
    answer = client_of(job, patch).get(OVERVIEW)
    assert answer.status_code == 200
    return answer.text


def test_a_healthy_job_shows_freshness_epochs_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    job.land([3, 4])
    page = overview(job.small, monkeypatch)
    assert 'class="badge good"' in page and 'class="banner' not in page
    wording.matches("page_overview", page_text(page, "#main"), replace=FIGURES)
    assert f'href="{OVERVIEW}/checkpoints/2?job=small"' in page and "checkpoint 2</a>" in page
    assert "<button>Run an epoch</button>" in page and '<button class="first">Unpause</button>' in page
    assert "resume" not in page
    assert (
        'data-url="/api/v2/dags/small__epoch/dagRuns"' in page and 'href="/jobs/small__epoch/rewind?job=small"' in page
    )


def failed(job: SparklessJob, patch: pytest.MonkeyPatch) -> None:
    job.land("b.csv")
    session = Session.cli()
    pending = job.master.triggers.trigger(session)
    job.master.epochs.abort(session, pending.checkpoint_id, "SUBTASK_DECLINED", "<b>line 2</b>")


def canceled(job: SparklessJob, patch: pytest.MonkeyPatch) -> None:
    job.master.savepoints.cancel()


def fenced(job: SparklessJob, patch: pytest.MonkeyPatch) -> None:
    job.land("b.csv")
    job.master.triggers.trigger(Session.cli())
    later(patch, 3_600_000)


def refused(job: SparklessJob, patch: pytest.MonkeyPatch) -> None:
    (job.folder / "landing" / "a.csv").write_text("k,v\n1,a\n2,changed\n")


def respecified(job: SparklessJob, patch: pytest.MonkeyPatch) -> None:
    spec = job.folder / "config" / "small.yaml"
    edit_spec(spec, {"key: [k]": "key: [v]"})


@pytest.mark.deep
@pytest.mark.parametrize("happens", [refused, respecified])
def test_the_reason_to_refuse_the_next_epoch_is_shown_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[SparklessJob, pytest.MonkeyPatch], None]
) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    happens(job, monkeypatch)
    status = job.master.reports.status()
    reason = status.spec_refused or status.next_step
    page = overview(job, monkeypatch)
    shown = html.unescape(page)
    assert shown.count(reason) == 1 and shown.index('class="banner') < shown.index(reason) < shown.index("<h2>")
    assert (page.count("milepost lint small") == 1) is (happens is respecified)
    wording.matches("page_overview", page_text(page, ".banner", "h2", ".acts", "p", ".shell"), replace=FIGURES)


@pytest.mark.parametrize(
    ("happens", "named"),
    [
        (failed, "CHECKPOINT_DECLINED: <b>line 2</b>"),
        (canceled, "1"),
        (fenced, "checkpoint 2"),
        (refused, "a.csv"),
    ],
)
def test_a_problem_is_shown_at_the_top_with_its_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[SparklessJob, pytest.MonkeyPatch], None],
    named: str,
) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.epoch()
    client = client_of(job, monkeypatch)
    happens(job, monkeypatch)
    page = client.get(OVERVIEW).text
    above = page_text(page[: page.index('<dl class="facts">')], "#main")
    assert named in above and "<b>" not in page
    wording.matches("page_overview", above, replace=FIGURES)
    assert f'href="/runbook/{job.master.reports.status().condition.value}"' in page
    outside = re.sub(r'<details class="shell">.*?</details>', "", page, flags=re.DOTALL)
    assert not re.search(r"milepost \w+ small", outside), "inside Airflow there is no shell"
    assert ('name="what" value="resume"' in page) is (happens is failed)
    led = f'<a href="{OVERVIEW}/checkpoints/2?job=small">' in page[: page.index('<ul class="acts row">')]
    assert led is (happens in (failed, fenced)), "what failed or still runs is one click away"
    assert ('name="what" value="start"' in page) is (happens is canceled)


def test_unreconciled_sinks_are_named_at_the_top_and_in_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    url = job.small.context.sink_config("seen").url
    with pytest.MonkeyPatch.context() as outage:
        break_store(outage, url, Fault(lambda operation, key: True, Effect.UNAVAILABLE, times=10_000))
        with pytest.raises(StoreUnavailable):
            job.rollback(1)
    timeline = job.small.context.head().state.live
    page = overview(job.small, monkeypatch)
    banner = page_text(page, ".banner")
    badges = page_text(page, ".badge").splitlines()
    lines = [line for line in page_text(page, "#main").splitlines() if line.startswith(("seen |", "table |"))]
    assert "seen" in banner and timeline in banner and [timeline in line for line in lines] == [True, False]
    wording.matches("page_overview", [banner, *badges, *lines], replace=wording.CLOCK_TIMES)


def test_the_latest_act_is_above_the_newest_epochs_with_its_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an undo, the head is the first of the epochs, though newer checkpoints exist."""
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    job.rollback(1)
    job.run(1)
    job.rollback(2)
    page = overview(job.small, monkeypatch)
    shown = page[page.index('<p class="latest">') : page.index('<h2 id="log">')]
    assert [int(one) for one in re.findall(r"/checkpoints/(\d+)\?job=small\">\d", shown)] == [2, 1]
    latest = page_text(shown, ".latest")
    assert re.search(r", [\d.]+ (ms|s) ago$", latest)
    wording.matches("page_overview", latest, replace={r", [\d.]+ (ms|s) ago": ", {time} ago"})


def test_a_job_that_never_ran_shows_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = overview(SparklessJob.create(tmp_path), monkeypatch)
    wording.matches("page_overview", page_text(page, ".banner", ".empty", ".badge"))


def test_the_data_flow_is_shown_and_without_it_the_rest_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2).small
    page = overview(job, monkeypatch)
    assert page.count('class="flow"') == 1 and 'aria-labelledby="flow-title' in page
    begin = page.index('class="flow"')
    flow = page_text(page[begin : page.index("</svg>", begin)], "title", "desc", "text")
    wording.matches("page_overview", flow, replace=FIGURES | {r"\d+%": "{share}"})

    def refuse(loaded: LoadedJob, graph: object) -> None:
        raise InvalidRequest("not any more")

    client = client_of(job, monkeypatch)
    monkeypatch.setattr("milepost.jobmaster.reports.flow.data_flow.lint_report", refuse)
    page = client.get(OVERVIEW).text
    assert 'class="flow"' not in page and "not any more" in page_text(page, ".banner") and "completed" in page


def test_an_unreadable_head_is_shown_with_recovery_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything that is known without it; the recovery form is filled in."""
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    next((job.small.folder / "store").rglob("chk-*2/t*/_metadata")).write_bytes(b"{")
    page = overview(job.small, monkeypatch)
    above, below = page.split('<dl class="facts">')
    wording.matches("page_overview", page_text(above, "#main"))
    assert 'href="/runbook/state-corrupt"' in above
    form = "/jobs/small__operate/form?job=small&amp;what=rollback&amp;rollback_to=1"
    assert f'action="{form}"' in above and '<button class="first">Roll back to checkpoint 1</button>' in above
    assert above.index(form) < above.index("milepost rollback small --to 1")
    assert "checkpoint 2<small>timeline main" in below and f'href="{OVERVIEW}/checkpoints/1?job=small"' in below
    assert 'class="flow"' in above


def test_a_source_that_does_not_answer_hides_nothing_from_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2).small

    def refuse(operation: str, key: str) -> None:
        raise StoreUnavailable("the landing zone is down.", hint="Wait.")

    client = client_of(job, monkeypatch)
    monkeypatch.setattr(next_input, "open_store", lambda config: HookedStore(open_store(config), refuse))
    answer = client.get(OVERVIEW)
    assert answer.status_code == 200 and "the landing zone is down." in answer.text and "<p>Wait.</p>" in answer.text
    assert f'href="{OVERVIEW}/checkpoints/2?job=small"' in answer.text and "Roll back to" in answer.text
    hook_stores(monkeypatch, before=refuse)
    answer = client.get(OVERVIEW)
    assert answer.status_code == 503 and "the landing zone is down." in answer.text and "<h1>small</h1>" in answer.text


@pytest.mark.parametrize("slow", ["store", "sources"])
def test_after_a_timeout_the_page_names_the_slow_system_and_the_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    job, answers = CountedJob.with_epochs(tmp_path / "job", 2).small, Event()

    def hold(operation: str, key: str) -> None:
        assert answers.wait(60)

    client = client_of(job, monkeypatch)
    monkeypatch.setattr(job_reader, "TIMEOUT_S", 0.4 if slow == "store" else 2.0)
    with pytest.MonkeyPatch.context() as held:
        if slow == "store":
            hook_stores(held, before=hold)
        else:
            held.setattr(next_input, "open_store", lambda config: HookedStore(open_store(config), hold))
        answer = client.get(OVERVIEW)
        answers.set()
        for reading in job_reader.JOB_READER._newest_readings.values():
            reading.running.result(timeout=60)
    assert answer.status_code == (503 if slow == "store" else 200)
    wording.matches("page_overview", page_text(answer.text, ".banner"))
    assert "<h1>small</h1>" in answer.text and f'href="{OVERVIEW}/checkpoints?job=small"' in answer.text
    assert "<p></p>" not in answer.text


def test_a_damaged_entry_of_the_log_ends_the_list_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is newer, every page tells all."""
    job = CountedJob.with_epochs(tmp_path / "job", 3)
    entry = ending_entry(job.small.context.log, job.small.context.head().version, CheckpointId(2))
    assert entry is not None
    (job.small.folder / "store" / "small" / manifest_key(entry.version)).write_bytes(b"{")
    client = client_of(job.small, monkeypatch)
    for address in (OVERVIEW, f"{OVERVIEW}/checkpoints"):
        answer = client.get(address)
        assert answer.status_code == 200
        wording.matches("page_checkpoints", page_text(answer.text, ".banner"))
        assert f'{OVERVIEW}/checkpoints/3?job=small">3<' in answer.text and manifest_key(entry.version) in answer.text
        assert f'{OVERVIEW}/checkpoints/1?job=small">1<' not in answer.text
