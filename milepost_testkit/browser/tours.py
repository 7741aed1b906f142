"""Tours of an Airflow that a test or a script has started: where it is, and how one gets in."""

from __future__ import annotations

from typing import Any

from milepost.airflow.page_urls import URL_PREFIX
from milepost_testkit.airflow.airflow_instance import AirflowInstance
from scripts import airflow_home
from scripts.browser.environment import chromium
from scripts.browser.touring import toured
from scripts.browser.visits import Report, Tour


def tour_of(airflow: AirflowInstance, **wanted: Any) -> Report:
    """Return what a browser saw there.

    Args:
        wanted: what it looks at, by the names of `Tour`.
    """
    program = chromium()
    assert program is not None, "there is no Chromium: python -m scripts.browser"
    return toured(
        Tour(
            url=airflow.stack.airflow_url,
            login=airflow_home.LOGIN,
            password=airflow_home.password(airflow.stack.home),
            chromium=str(program),
            prefix=URL_PREFIX,
            **wanted,
        )
    )
