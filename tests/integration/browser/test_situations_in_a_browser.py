"""Nine situations of a job, staged in a real Airflow: the top of each page names the problem and the next click."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milepost.airflow.operators.dag_ids import epoch_dag_id
from milepost.airflow.page_urls import job_url
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.airflow.page_text import page_text
from milepost_testkit.browser.situations import JOBS, staged_airflow
from milepost_testkit.browser.tours import tour_of
from scripts.browser.visits import Seen

pytestmark = pytest.mark.deep

SHOWN = {
    "healthy": ("healthy", "300 rows in the newest epoch, none late or unreadable", "Nothing: all input is read."),
    "late_flood": ("rows missing", "288 of 300 rows late (usually ", "Find out why rows are late or unreadable"),
    "empty_source": ("stale", "over the limit of 30 min", "Check what writes the sources"),
    "veto": ("failed", "amount) refused 1 of 300 rows", "-700", "Resume a FAILED job"),
    "paused": ("paused", f"{epoch_dag_id(JOBS['paused'])} is paused: no run starts. paused by admin,", "Unpause"),
    "waiting_approval": (
        "needs approval",
        "roll back to checkpoint 5: the plan waits",
        "Review the plan",
    ),
    "running_long": ("running", "Checkpoint 13", "longer than usual", "Abort the running epoch"),
    "broken_head": ("unreadable", "The head cannot be read", "Roll back to checkpoint 11"),
    "store_away": ("unreachable", "The store does not answer", "bucket 'lake'", "check that the endpoint is up"),
}
"""Situation -> what its page says, in this order or another, above the epochs by time."""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowInstance]:
    with staged_airflow(tmp_path_factory.mktemp("situations")) as airflow:
        yield airflow


@pytest.fixture(scope="module")
def seen(airflow: AirflowInstance) -> tuple[Seen, ...]:
    """The pages as a browser has them, without those that they link to."""
    addresses = tuple(job_url(epoch_dag_id(job)) for job in JOBS.values())
    return tour_of(airflow, roots=addresses, follow=False).pages


@pytest.mark.parametrize("name", JOBS)
def test_the_top_of_the_page_names_the_situation_and_what_to_do(airflow: AirflowInstance, name: str) -> None:
    answer = airflow.page(job_url(epoch_dag_id(JOBS[name])))
    top = page_text(answer.text.partition('<h2 id="epochs">')[0], ".title", "main")
    assert [words for words in SHOWN[name] if words not in " ".join(top.split())] == []


def test_every_situation_is_shown_without_a_problem_in_both_themes_and_all_widths(seen: tuple[Seen, ...]) -> None:
    away = job_url(epoch_dag_id(JOBS["store_away"]))
    problems = [problem for page in seen if away not in page.address for problem in page.problems]
    assert not problems, "\n".join(problems)
    assert len(seen) == len(JOBS) * len({(page.theme, page.width) for page in seen})
