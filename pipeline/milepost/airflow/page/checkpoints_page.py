"""Airflow plugin that registers Milepost's pages and listeners.

Every Airflow process imports this module. FastAPI, which the pages need, is slow to import, so it is
imported on the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from milepost.airflow.page_urls import URL_PREFIX, job_url, jobs_url
from milepost.airflow.preload import Preload
from milepost.airflow.runs import notes

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class LazyPages:
    """The ASGI application that Airflow's server mounts. It imports the pages on the first request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        from milepost.airflow.page.pages import pages

        await pages(scope, receive, send)


class CheckpointsPage(AirflowPlugin):
    name = "milepost_checkpoints"
    fastapi_apps = [{"app": LazyPages(), "url_prefix": URL_PREFIX, "name": "Milepost"}]  # noqa: RUF012 - Airflow's own shape
    external_views = [  # noqa: RUF012 - Airflow's own shape
        {
            "name": "Milepost",
            "href": jobs_url(),
            "destination": "nav",
            "url_route": "milepost",
            "icon": f"{URL_PREFIX}/static/milepost.svg",
        },
        {
            "name": "Checkpoints",
            "href": job_url("{DAG_ID}"),
            "destination": "dag",
            "url_route": "checkpoints",
        },
    ]
    listeners = [Preload(), notes]  # noqa: RUF012 - Airflow's own shape
