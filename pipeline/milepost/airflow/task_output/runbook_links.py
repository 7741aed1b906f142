"""Runbook links of tasks. They point to our pages in Airflow's API server, so that no shell is needed."""

from __future__ import annotations

import os

from milepost.airflow.compat import conf
from milepost.airflow.page_urls import runbook_url
from milepost.runbook import VARIABLE, address, page_of


def runbook_link(error: BaseException) -> str:
    """Return the URL of an error's runbook page, at `MILEPOST_RUNBOOK_URL` or else in this Airflow.

    If neither that nor `[api] base_url` is set, return the command that prints the page.
    """
    name = page_of(error)
    base = conf.get("api", "base_url", fallback="") or ""
    if os.environ.get(VARIABLE) or not base:
        return address(name)
    return f"{base.rstrip('/')}{runbook_url(name)}"
