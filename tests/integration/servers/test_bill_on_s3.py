"""The bill of an epoch, by hand: the requests in the server's own log, times the prices, are what `show` prints.

Requests of the epoch's tasks and of Airflow's are on it, every page of a listing, and every byte that left the storage.
It is computed here without the product's own classes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from milepost.jobmaster import CheckpointDetails, Session
from milepost_testkit.airflow.task_runs import run_epoch_tasks
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.proxies.recording_proxy import RecordingProxy
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.s3_servers import Ministack

pytestmark = pytest.mark.deep

LANDED = 1_001
"""More than a page of a listing has: each listing of the source is two requests."""

PUT_PER_1000, GET_PER_1000, OUT_PER_GB = 0.005, 0.0004, 0.09
PRICES = f"prices: {{put_per_1000: {PUT_PER_1000}, get_per_1000: {GET_PER_1000}, out_per_gb: {OUT_PER_GB}}}\n"


@pytest.fixture
def job(ministack: Ministack, proxy: RecordingProxy, tmp_path: Path) -> SparklessJob:
    """All of it in a bucket; its second epoch is the one that counts."""
    bucket, client = ministack.new_bucket(), ministack.client
    endpoint = f"store: {{endpoint_url: '{proxy.endpoint_url}'}}\n"
    edit = {
        "storage: ../store\n": f"storage: s3://{bucket}/jobs\n{endpoint}{PRICES}",
        "../landing/": f"s3://{bucket}/landing/",
        "../lake/table": f"s3://{bucket}/lake/table",
    }
    job = SparklessJob.create(tmp_path, edit)
    with ThreadPoolExecutor(8) as pool:
        for number in range(LANDED):
            pool.submit(client.put_object, Bucket=bucket, Key=f"landing/{number:04}.csv", Body=b"k,v\n1,a\n2,b\n")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    proxy.requests.clear()
    proxy.replied_bytes.clear()
    return job


def is_listing(path: str) -> bool:
    return "list-type=2" in path


def bill(requests: Iterable[tuple[str, str]]) -> float:
    """As a price list has it: PUT, COPY, POST and LIST at one price, GET and HEAD at another, DELETE free."""
    money = 0.0
    for method, path in requests:
        deletes = method == "DELETE" or (method == "POST" and "delete" in parse_qs(urlsplit(path).query, True))
        if deletes:
            continue
        dear = method in ("PUT", "POST") or is_listing(path)
        money += (PUT_PER_1000 if dear else GET_PER_1000) / 1000
    return money


def of_the_epoch(proxy: RecordingProxy) -> int:
    """How many requests the epoch has made: until its last measurement and its row of figures were put."""
    last = ("/metrics/after-", "/figures/")
    puts = [
        at for at, (method, path) in enumerate(proxy.requests) if method == "PUT" and any(part in path for part in last)
    ]
    return 1 + puts[-1]


def assert_is_the_bill(report: CheckpointDetails, proxy: RecordingProxy) -> None:
    made = of_the_epoch(proxy)
    asked = proxy.requests[:made]
    assert report.cost is not None and report.cost.requests == pytest.approx(bill(asked), rel=1e-9)
    assert report.cost.transfer == pytest.approx(sum(proxy.replied_bytes[:made]) * OUT_PER_GB / 10**9, rel=1e-9)
    assert report.cost.total == pytest.approx((report.cost.requests or 0) + (report.cost.transfer or 0))
    assert sum("continuation-token" in path for _, path in asked) >= 1, "a listing has a second page"
    assert not [path for _, path in asked if "uploads" in path or "uploadId" in path], "no object goes in parts"


def test_an_epoch_of_airflow_s_tasks_costs_what_the_server_s_log_says(
    job: SparklessJob, proxy: RecordingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its operators with a job master of its own."""
    run = SimpleNamespace(dag_id="small__epoch", run_id="manual__1", run_type="manual", logical_date=None)
    run_epoch_tasks(job.folder / "config" / "small.yaml", run, "s3://lake")
    report = job.master.reports.show(2)
    assert isinstance(report, CheckpointDetails) and report.requests["tasks"].total > 0
    assert_is_the_bill(report, proxy)
    shown = json.loads(milepost("show", job.folder / "config" / "small.yaml", "--json").stdout)["data"]
    assert report.cost is not None and shown["cost"]["total"] == pytest.approx(report.cost.total)
