"""Runbook links of tasks lead to a page that Airflow's own server has, so that nobody needs a shell to read it."""

from __future__ import annotations

import os

from airflow.sdk.configuration import conf

from milepost.airflow.page_urls import runbook_url
from milepost.runbook.addresses import VARIABLE, address, page_of


def runbook_link(error: BaseException) -> str:
    """Return where the page of an error is: as `MILEPOST_RUNBOOK_URL` says, else at this Airflow's address.

    Where `[api] base_url` does not say that address, it is the command that prints the page.
    """
    name = page_of(error)
    base = conf.get("api", "base_url", fallback="") or ""
    if os.environ.get(VARIABLE) or not base:
        return address(name)
    return f"{base.rstrip('/')}{runbook_url(name)}"
