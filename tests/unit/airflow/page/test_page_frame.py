"""The frame of the pages: who may read them, what a browser is allowed to do with them, where their links lead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from milepost.airflow.dags.dag_factory import job_dags
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import page_text
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


def test_every_route_is_read_only_and_checks_permissions() -> None:
    from milepost.airflow.page.frame.access import may_read_dag, may_read_docs, readable_dags
    from milepost.airflow.page.pages import pages

    routes = [route for route in pages.routes if isinstance(route, APIRoute)]
    assert routes
    for route in routes:
        asked = {one.call for one in route.dependant.dependencies}
        assert asked & {may_read_dag, readable_dags, may_read_docs}, route.path
        assert route.methods == {"GET"}, route.path


def test_a_user_without_the_right_to_a_dag_sees_nothing_of_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dags = job_dags(SparklessJob.create(tmp_path).folder / "config").values()
    client = page_client(monkeypatch, *dags, readable=["small__operate"])
    assert client.get("/jobs/small__operate/checkpoints").status_code == 200
    refused = client.get("/jobs/small__epoch/checkpoints")
    assert refused.status_code == 403 and "Forbidden" in refused.text and "small" not in refused.text


def test_no_page_opens_without_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from milepost.airflow.page.pages import pages

    client = page_client(monkeypatch, *job_dags(SparklessJob.create(tmp_path).folder / "config").values())
    stranger, forged = client.logged_out(), PageClient(pages, {"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."})
    parts = {"dag_id": "small__epoch", "checkpoint_id": "1", "sink": "table", "name": "not-found"}
    addresses = [route.path.format(**parts) for route in pages.routes if isinstance(route, APIRoute)]
    assert "/jobs" in addresses
    for address in addresses:
        refused = stranger.get(address)
        assert refused.status_code == 401 and "small" not in refused.text, address
        assert forged.get(address).status_code == 403, address
        assert client.get(address).status_code in (200, 404), address


@pytest.mark.deep
def test_a_page_runs_only_our_three_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither inline script nor inline style. Each script is a module: a function of one replaces none of another."""
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    client = page_client(monkeypatch, *job_dags(job.small.folder / "config").values())
    page = client.get("/jobs/small__epoch/checkpoints")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'self'" in policy and "unsafe" not in policy
    assert page.headers["cache-control"] == "no-store" and page.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<[^>]+ (style|on\w+)=", page.text)
    scripts = re.findall(r"<script[^>]*>[^<]*", page.text)
    found = [re.fullmatch(r'<script type="module" src="/static/(\w+)\.js\?v=\w+">\n?', script) for script in scripts]
    assert [one and one[1] for one in found] == ["frame", "act", "live"]
    assert "script-src 'self'; connect-src 'self';" in policy
    for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
        assert client.get(address).status_code == 200, address


def test_no_script_makes_html_of_a_text() -> None:
    """Names of specs and runs are hostile: a script sets them as text, or takes over HTML that our server escaped."""
    from milepost.airflow.page.frame.rendering import STATIC

    scripts = [file.read_text(encoding="utf-8") for file in sorted(STATIC.glob("*.js"))]
    assert len(scripts) == 3 and sum(script.count("\n") for script in scripts) < 200
    for script in scripts:
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|outerHTML\s*=[^=]", script)


@pytest.mark.parametrize("base", ["", "/airflow/one"])
def test_links_include_the_path_prefix_of_airflow(base: str) -> None:
    """Also below a path of its own; names are escaped as a part of an address."""
    from milepost.airflow.page.frame.rendering import Links

    links = Links(f"{base}/milepost", base)
    assert links.jobs() == f"{base}/milepost/jobs"
    assert links.job("a/b", "x y", "checkpoints", 3) == f"{base}/milepost/jobs/a%2Fb/checkpoints/3?job=x+y"
    assert links.run("d", "manual__2026-01-01T00:00:00+00:00") == (
        f"{base}/dags/d/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00"
    )


def test_an_invalid_url_gets_an_error_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = page_client(monkeypatch, *job_dags(SparklessJob.create(tmp_path).folder / "config").values())
    for address, status in (
        ("/nowhere", 404),
        ("/jobs/small__epoch/checkpoints/x", 422),
        ("/jobs/%3Cb%3E/checkpoints", 404),
        ("/jobs/small__epoch/checkpoints?job=%3Cb%3E", 404),
        ("/jobs/small__epoch/checkpoints/1", 404),
    ):
        answer = client.get(address)
        assert answer.status_code == status, address
        assert answer.headers["content-type"].startswith("text/html") and "<b>" not in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.deep
def test_the_runbook_is_read_in_airflow_and_led_to_from_what_goes_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from milepost.runbook.pages import page_files

    client = page_client(monkeypatch, *job_dags(SparklessJob.create(tmp_path).folder / "config").values())
    problem = client.get("/jobs/small__epoch/checkpoints/1")
    assert problem.status_code == 404 and 'href="/runbook/not-found"' in problem.text
    headings = set()
    for name in page_files():
        page = client.get(f"/runbook/{name}")
        assert page.status_code == 200 and "](" not in page.text
        headings.add(page_text(page.text, "h2"))
        for other in re.findall('<a href="([a-z-]+)"', page.text):
            assert client.get(f"/runbook/{other}").status_code == 200
    (same,) = headings
    wording.matches("page_runbook", same)
    assert client.get("/runbook/..%2Fsecret").status_code == client.get("/runbook/nothing").status_code == 404
