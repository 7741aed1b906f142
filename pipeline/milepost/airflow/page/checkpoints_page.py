"""The Checkpoints page of a job, as a plugin: what every process of Airflow loads.

The pages themselves need FastAPI, which takes longer to import than all of that; they are loaded by the first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from milepost.airflow.page_urls import PAGES, checkpoints_url

Message = MutableMapping[str, Any]


class Pages:
    """The pages as an ASGI application, which Airflow's server mounts."""

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Answer one request."""
        from milepost.airflow.page.pages import pages

        await pages(scope, receive, send)


class CheckpointsPage(AirflowPlugin):
    name = "milepost_checkpoints"
    fastapi_apps = [{"app": Pages(), "url_prefix": PAGES, "name": "Milepost"}]  # noqa: RUF012 - Airflow's own shape
    external_views = [  # noqa: RUF012 - Airflow's own shape
        {
            "name": "Checkpoints",
            "href": checkpoints_url("{DAG_ID}"),
            "destination": "dag",
            "url_route": "checkpoints",
        }
    ]
