"""The pages as a person has them: in Airflow, behind its login, in both themes, in small, usual and wide windows.

One tour of a headless Chromium looks at every page that links lead to; each test reads what it saw.
"""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute

from milepost.airflow.operators.dag_ids import epoch_dag_id, operate_dag_id
from milepost.airflow.page.checkpoints_page import CheckpointsPage
from milepost.airflow.page_urls import URL_PREFIX, job_url, jobs_url, runbook_url
from milepost_testkit.browser.shown_jobs import FAILED, FRESH, WELL, shown_airflow
from milepost_testkit.browser.tours import tour_of
from scripts.browser.visits import Report

pytestmark = pytest.mark.deep
VIEWS = CheckpointsPage.external_views
TABS = [view for view in VIEWS if view["destination"] == "dag"]
ENTRIES = tuple(view["name"] for view in VIEWS if view["destination"] == "nav")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What the browser saw."""
    dags = [epoch_dag_id(name) for name in (WELL, FAILED, FRESH)]
    with shown_airflow(tmp_path_factory.mktemp("browser")) as airflow:
        operate = operate_dag_id(WELL)
        run_id = airflow.rest.trigger(operate, {"what": "verify"}, dag_run_id="manual__seen")
        return tour_of(
            airflow,
            roots=(
                jobs_url(),
                *map(job_url, dags),
                runbook_url("failed"),
                f"{job_url(operate)}/run?job={WELL}&run={run_id}",
            ),
            framed=tuple(f"/dags/{dags[0]}/plugin/{tab['url_route']}" for tab in TABS),
            entries=ENTRIES,
            most=2,
        )


def test_the_login_form_leads_to_airflow_which_has_our_entries(report: Report) -> None:
    assert "Airflow" in report.logged_in
    assert report.missing == ()


def test_every_page_is_seen_in_both_themes_and_widths(report: Report) -> None:
    """And every route of ours is one of them: a page that no link leads to is no page."""
    from milepost.airflow.page.pages import pages

    ways = {(one.theme, one.width) for one in report.pages}
    assert ways == {(theme, width) for theme in ("light", "dark") for width in (900, 1280, 1920)}
    seen = [one.address.partition("?")[0] for one in report.pages if (one.theme, one.width) == ("light", 1280)]
    assert len(report.pages) == len(seen) * len(ways)
    routes = [route for route in pages.routes if isinstance(route, APIRoute) and not route.path.endswith(".json")]
    ways_in = [route.path_regex for route in routes]
    assert [r.pattern for r in ways_in if not any(r.match(one.removeprefix(URL_PREFIX)) for one in seen)] == []


def test_nothing_is_wrong_with_any_page(report: Report) -> None:
    """No error in the console, none as wide as to scroll sideways, none that breaks a rule of axe-core (WCAG 2 AA)."""
    problems = [problem for one in report.pages for problem in one.problems]
    assert not problems, "\n".join(problems)


def test_a_tab_of_airflow_shows_the_page_in_the_theme_that_is_chosen_there(report: Report) -> None:
    """Whatever theme the screen has."""
    assert len(report.framed) == len(TABS) * 2
    for one in report.framed:
        assert one.dark == (one.theme == "dark"), one
        assert one.heading and one.overflow <= 0 and not one.cut, one
