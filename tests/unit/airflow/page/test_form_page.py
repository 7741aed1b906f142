"""The page of a form, filled in: what a link of ours leads to, since Airflow's dialog has no address."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.page_urls import URL_PREFIX, form_url
from milepost_testkit import wording
from milepost_testkit.airflow.page_client import PageClient, page_client
from milepost_testkit.airflow.page_text import page_text
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PageClient:
    SparklessJob.create(tmp_path)
    return page_client(monkeypatch, *job_dags(tmp_path / "config").values())


def at(url: str) -> str:
    assert url.startswith(URL_PREFIX)
    return url.removeprefix(URL_PREFIX)


BANNER = 'class="banner bad"'


def page_links(text: str) -> str:
    """Return the part of the page below its tabs, which lead to rewind points as well."""
    return text[text.index('<main id="main">') :]


def configuration(text: str) -> object:
    found = re.search(r"<pre>(.*?)</pre>", text, re.DOTALL)
    assert found is not None
    return json.loads(html.unescape(found[1]))


def test_a_link_carries_the_values_that_airflow_takes_as_they_are(pages: PageClient) -> None:
    page = pages.get(at(form_url("small", "rollback", to="41", take_over=True)))
    assert page.status_code == 200
    assert configuration(page.text) == {"what": "rollback", "rollback_to": "41", "rollback_take_over": True}
    assert "small__operate" in page.text and BANNER not in page.text
    wording.matches("page_form", page_text(page.text, "h2", "p", "table", "li"))
    page = pages.get(at(form_url("small", "savepoint_create", at=3)))
    assert configuration(page.text) == {"what": "savepoint_create", "savepoint_create_at": 3}
    wording.matches("page_form", page_text(page.text, "h2", "p", "table", "li"))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("url", "field"),
    [
        (form_url("small", "rollback", take_over=True), "rollback_to"),
        (form_url("small", "rollback", to="latest"), "rollback_to"),
        (form_url("small", "savepoint_create", name="sp one!"), "savepoint_create_name"),
        (form_url("small", "savepoint_create", at="head"), "savepoint_create_at"),
        (form_url("small", "verify") + "&rollback_to=41", "rollback_to (41)"),
        (form_url("small", "undo"), "what"),
    ],
    ids=["missing", "no id", "no name", "wrong type", "of another act", "no act"],
)
def test_the_page_warns_of_values_that_the_first_task_would_refuse(pages: PageClient, url: str, field: str) -> None:
    page = pages.get(at(url))
    banner = page_text(page.text, ".banner")
    assert field in banner
    wording.matches("page_form", banner)


def test_an_act_without_values_shows_its_fields_and_no_warning(pages: PageClient) -> None:
    page = pages.get(at(form_url("small", "rollback")))
    assert BANNER not in page.text and "/rewind?job=small" in page_links(page.text)
    wording.matches("page_form", page_text(page.text, "h2", "p", "table"))
    assert configuration(page.text) == {"what": "rollback", "rollback_to": None, "rollback_take_over": False}
    page = pages.get(at(form_url("small", "savepoint_create")))
    assert "/rewind?job=small" not in page_links(page.text)
    wording.matches("page_form", page_text(page.text, "h2", "p"))
    page = pages.get(at(form_url("small", "gc")))
    assert configuration(page.text) == {"what": "gc"}
    wording.matches("page_form", page_text(page.text, "h2", "p"))


def test_text_from_the_url_is_escaped(pages: PageClient) -> None:
    page = pages.get(at(form_url("small", "rollback", to="<b>41</b>")))
    assert "<b>41" not in page.text and "&lt;b&gt;41" in page.text


@pytest.mark.parametrize("digits", ["9" * 5_000, "9" * 4_000, "٣" * 5_000])
def test_a_number_of_thousands_of_digits_is_refused_without_a_server_error(pages: PageClient, digits: str) -> None:
    form = pages.get(at(form_url("small", "savepoint_create", at=digits)))
    assert form.status_code == 200 and BANNER in form.text
    for address in ("/checkpoints/{}", "/checkpoints?before={}", "/rewind?to={}", "/form?what=rollback&rollback_to={}"):
        assert pages.get(f"/jobs/small__epoch{address.format(digits)}").status_code in (200, 404, 422)


def test_the_form_has_an_input_for_each_field_of_the_act_and_sends_it_to_airflows_api(pages: PageClient) -> None:
    page = pages.get(at(form_url("small", "rollback", to="41", take_over=True))).text
    assert 'data-method="POST" data-url="/api/v2/dags/small__operate/dagRuns"' in page
    (body,) = re.findall(r'data-body="([^"]+)"', page)
    assert json.loads(html.unescape(body)) == {"logical_date": None, "conf": {"what": "rollback"}}
    typed = re.findall(r'<(?:input|select)[^>]* name="(\w+)"[^>]* data-type="(\w+)"[^>]*?( checked)?>', page)
    assert typed == [
        ("rollback_to", "string", ""),
        ("rollback_take_over", "boolean", " checked"),
        ("approve", "boolean", " checked"),
        ("dry_run", "boolean", ""),
    ]
    assert re.search(r'name="rollback_to" value="41" [^>]* required>', page)
    verify = pages.get(at(form_url("small", "verify", checkpoint=3))).text
    assert 'name="verify_checkpoint" value="3" data-type="integer"' in verify and 'name="approve"' not in verify
    assert "<option>seen</option>" not in verify and ">Run</button>" in verify
    realign = pages.get(at(form_url("small", "realign", sink="table"))).text
    assert "<option selected>table</option>" in realign


def test_without_the_script_the_button_loads_the_values_as_json(pages: PageClient) -> None:
    """An empty field is none, and an unchecked box is false: a hidden input before it says so."""
    typed = "&rollback_to=&rollback_take_over=false&approve=false&approve=true&dry_run=false"
    page = pages.get(at(form_url("small", "rollback")) + typed).text
    assert configuration(page) == {
        "what": "rollback",
        "rollback_take_over": False,
        "approve": True,
        "dry_run": False,
    }


def test_a_viewer_gets_no_button_and_a_form_without_an_act_lists_all(pages: PageClient) -> None:
    viewer = pages.with_role("viewer").get(at(form_url("small", "rollback", to="41"))).text
    assert "<button" not in viewer and "data-url" not in viewer
    wording.matches("page_form", page_text(viewer, "#main p"))
    listed = pages.get("/jobs/small__operate/form?job=small")
    assert listed.status_code == 200 and BANNER not in listed.text
    wording.matches("page_form", page_text(listed.text, ".acts"))
