"""The page of a form, filled in: what a link of ours leads to, since Airflow's dialog has no address."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page_urls import URL_PREFIX, form_url
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PageClient:
    SparklessJob.create(tmp_path)
    return page_client(monkeypatch, *job_dags(tmp_path / "config").values())


def at(url: str) -> str:
    assert url.startswith(URL_PREFIX)
    return url.removeprefix(URL_PREFIX)


def configuration(text: str) -> object:
    found = re.search(r"<pre>(.*?)</pre>", text, re.DOTALL)
    assert found is not None
    return json.loads(html.unescape(found[1]))


def test_a_link_carries_the_values_that_airflow_takes_as_they_are(pages: PageClient) -> None:
    page = pages.get(at(form_url("small", "rollback", to="41", take_over=True)))
    assert page.status_code == 200
    assert configuration(page.text) == {"what": "rollback", "rollback_to": "41", "rollback_take_over": True}
    assert "Roll back to a checkpoint" in page.text and "small__operate" in page.text
    assert "would be refused" not in page.text
    page = pages.get(at(form_url("small", "savepoint_create", at=3)))
    assert configuration(page.text) == {"what": "savepoint_create", "savepoint_create_at": 3}
    assert "asks nobody" in page.text


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (form_url("small", "rollback", take_over=True), "field rollback_to (Back to) is not filled in"),
        (form_url("small", "rollback", to="latest"), "field rollback_to (Back to): expected a checkpoint id, or"),
        (form_url("small", "savepoint_create", name="sp one!"), "field savepoint_create_name (Name): expected 1 to 63"),
        (form_url("small", "savepoint_create", at="head"), "savepoint_create_at: 'head' is not what it takes: It is"),
        (form_url("small", "verify") + "&rollback_to=41", "that are not of verify were filled in: rollback_to (41)"),
        (form_url("small", "undo"), "field what (What to do): expected one of rollback"),
    ],
)
def test_what_the_first_task_would_refuse_is_said_beforehand(pages: PageClient, url: str, why: str) -> None:
    page = pages.get(at(url))
    assert "This form would be refused" in page.text and why in html.unescape(page.text)


def test_an_act_alone_shows_its_fields_to_fill_in_and_no_alarm(pages: PageClient) -> None:
    page = pages.get(at(form_url("small", "rollback")))
    assert "Still to be filled in" in page.text and "would be refused" not in page.text
    assert "A checkpoint id (0: the empty state)" in page.text and "/rewind?job=small" in page.text
    assert configuration(page.text) == {"what": "rollback", "rollback_to": None, "rollback_take_over": False}
    page = pages.get(at(form_url("small", "savepoint_create")))
    assert "May be filled in" in page.text and '/rewind?job=small">Rewind points</a> lists' not in page.text
    page = pages.get(at(form_url("small", "gc")))
    assert "filled in:" not in page.text and configuration(page.text) == {"what": "gc"}


def test_what_stands_in_an_address_is_never_markup(pages: PageClient) -> None:
    page = pages.get(at(form_url("small", "rollback", to="<b>41</b>")))
    assert "<b>41" not in page.text and "&lt;b&gt;41" in page.text


@pytest.mark.parametrize("digits", ["9" * 5_000, "9" * 4_000, "٣" * 5_000])
def test_a_number_of_thousands_of_digits_is_refused_and_no_failure_of_the_server(
    pages: PageClient, digits: str
) -> None:
    form = pages.get(at(form_url("small", "savepoint_create", at=digits)))
    assert form.status_code == 200 and "This form would be refused" in form.text
    for address in ("/checkpoints/{}", "/checkpoints?before={}", "/rewind?to={}", "/form?what=rollback&rollback_to={}"):
        assert pages.get(f"/jobs/small__epoch{address.format(digits)}").status_code in (200, 404, 422)
