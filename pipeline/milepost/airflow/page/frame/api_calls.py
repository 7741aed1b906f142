"""Requests to Airflow's REST API that buttons of the pages send.

The browser sends them with the cookie of the user, so Airflow checks the user's permission and logs the user's name.
The pages themselves have only GET routes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from milepost.airflow.page.frame.rendering import Links


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request to Airflow's REST API.

    Attributes:
        about: the DAG that the request is about, for messages.
        fields: the JSON body; the script adds values of a form to its `conf`.
        run_page: URL of the page of a triggered run, without its run id; "" if the request triggers no run.
    """

    method: str
    url: str
    about: str
    fields: Mapping[str, object] = field(default_factory=dict)
    run_page: str = ""

    @property
    def body(self) -> str:
        return json.dumps(self.fields)


def trigger_call(links: Links, dag_id: str, job: str, conf: Mapping[str, object]) -> ApiCall:
    """Return the request that triggers a run. Fields that `conf` lacks have the defaults of the DAG's form."""
    fields = {"logical_date": None, "conf": {name: value for name, value in conf.items() if value is not None}}
    return ApiCall("POST", f"{_dag_url(links, dag_id)}/dagRuns", dag_id, fields, links.job(dag_id, job, "run"))


def answer_call(links: Links, dag_id: str, run_id: str, task_id: str, option: str) -> ApiCall:
    """Return the request that answers a task that waits for a person with one of its options."""
    run = f"{_dag_url(links, dag_id)}/dagRuns/{quote(run_id, safe='')}"
    url = f"{run}/taskInstances/{quote(task_id, safe='')}/-1/hitlDetails"
    return ApiCall("PATCH", url, dag_id, {"chosen_options": [option], "params_input": {}})


def unpause_call(links: Links, dag_id: str) -> ApiCall:
    return ApiCall("PATCH", f"{_dag_url(links, dag_id)}?update_mask=is_paused", dag_id, {"is_paused": False})


def _dag_url(links: Links, dag_id: str) -> str:
    return f"{links.airflow}/api/v2/dags/{quote(dag_id, safe='')}"
