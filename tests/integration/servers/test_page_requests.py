"""How many requests a page makes of an old job, and how many wait for one another: far from a store, its time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page.jobs.series import MAX_EPOCHS_READ
from milepost.airflow.page.routes.charts import SHOWN_EPOCHS
from milepost.storage.object_cache import OBJECT_CACHE
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.long_history import prolong_history
from milepost_testkit.servers.s3_servers import Ministack
from milepost_testkit.stores.request_chain import RequestChain, longest_chain

RETAINED = 1000
PRICES = {"checkpointing:": "prices: {currency: EUR, core_hour: 36}\ncheckpointing:"}
"""For a month they would be computed from every retained checkpoint, which no page shows."""

JOB = "/jobs/small__epoch"


@dataclass(frozen=True)
class Asked:
    """What a page cost: requests, and how many of them stood in line."""

    requests: int
    in_line: int


@pytest.fixture(scope="module")
def client(ministack: Ministack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageClient]:
    """The pages of a job with a thousand retained checkpoints in S3."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ministack.environment().items():
            patch.setenv(name, value)
        patch.setenv("MILEPOST_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        storage = f"s3://{ministack.new_bucket()}"
        store = f"store: {{endpoint_url: '{ministack.endpoint_url}', region: us-east-1}}\noperators:\n"
        edit = {"../store": f"{storage}/store", "../lake": f"{storage}/lake", "operators:\n": store} | PRICES
        job = CountedJob.with_epochs(tmp_path_factory.mktemp("old") / "job", 2, edit)
        prolong_history(job.small.context, RETAINED)
        yield page_client(patch, *job_dags(job.small.folder / "config").values())


def ask(client: PageClient, address: str) -> tuple[str, Asked]:
    chain = RequestChain()
    with chain.recording():
        chain.clear()
        answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return answer.text, Asked(len(chain.requests), len(longest_chain(chain.requests)))


@pytest.mark.parametrize(
    ("address", "first", "again"),
    [
        ("/jobs", Asked(12, 9), Asked(12, 8)),
        (JOB, Asked(80, 9), Asked(32, 9)),  # figures of the data flow and of the axis, and the log
        (f"{JOB}/checkpoints", Asked(80, 14), Asked(5, 5)),
        (f"{JOB}/checkpoints?status=completed", Asked(4, 4), Asked(4, 4)),
        (f"{JOB}/checkpoints?status=aborted", Asked(230, 24), Asked(6, 6)),
        (f"{JOB}/checkpoints/{RETAINED}", Asked(12, 6), Asked(12, 6)),
        (f"{JOB}/checkpoints/{RETAINED // 2}", Asked(18, 6), Asked(18, 6)),
        (f"{JOB}/charts", Asked(2 * SHOWN_EPOCHS + 4, 6), Asked(6, 5)),
        (f"{JOB}/charts?epochs=240", Asked(2 * MAX_EPOCHS_READ + 6, 6), Asked(2 * MAX_EPOCHS_READ + 6, 6)),
        (f"{JOB}/summary", Asked(2 * MAX_EPOCHS_READ + 6, 6), Asked(2 * MAX_EPOCHS_READ + 6, 6)),
        (f"{JOB}/rewind", Asked(60, 10), Asked(60, 10)),
        (f"{JOB}/configuration", Asked(2, 2), Asked(2, 2)),
        (f"{JOB}/log", Asked(125, 14), Asked(3, 3)),
        ("/jobs/small__operate/form?job=small&what=rollback", Asked(0, 0), Asked(0, 0)),
    ],
)
def test_a_page_of_a_thousand_retained_checkpoints_makes_so_many_requests_at_most(
    client: PageClient, address: str, first: Asked, again: Asked
) -> None:
    """Counted by what waits for what in the process, not by a clock; `again`: what the server has read is kept."""
    OBJECT_CACHE.clear()
    for bound in (first, again):
        _, asked = ask(client, address)
        assert asked.requests <= bound.requests and asked.in_line <= bound.in_line, asked


def test_omitted_figures_are_reported_and_read_gradually(client: PageClient) -> None:
    """No page reads more than a person can wait for; what one has read, the next one has, but for the head's."""
    OBJECT_CACHE.clear()
    assert SHOWN_EPOCHS <= MAX_EPOCHS_READ, "what a person sees first lacks nothing"
    shown = 2 * MAX_EPOCHS_READ + 1
    for left_out in (MAX_EPOCHS_READ + 1, 2, 0):
        text, _ = ask(client, f"{JOB}/charts?epochs={shown}")
        banner = page_text(text, ".banner")
        assert bool(banner) is bool(left_out)
        if left_out:
            wording.matches("page_charts", banner)
        assert text.count("<tr><td") == shown, "what the head says of them is there all the same"
