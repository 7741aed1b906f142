"""The pages of Milepost as a browser gets them, with Airflow's database and its user in the place of a test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import httpx
import pytest
from airflow.sdk import DAG
from fastapi import FastAPI, HTTPException, Request

from tests.harness.servers.airflow.kept_dags import keep_dags


@dataclass(frozen=True)
class PageClient:
    """A browser without a screen: it asks for one page after the other, in this process."""

    app: FastAPI

    def get(self, address: str) -> httpx.Response:
        async def answer() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://airflow") as client:
                return await client.get(address)

        return asyncio.run(answer())


def page_client(patch: pytest.MonkeyPatch, *dags: DAG, readable: Iterable[str] | None = None) -> PageClient:
    """Return a client of the pages, in an Airflow that has these DAGs and whose user may read some of them.

    Args:
        readable: ids of those that the user may read; all by default.
    """
    from milepost.airflow.page.frame.access import may_read_dag, may_read_docs, readable_dags
    from milepost.airflow.page.pages import pages

    keep_dags(patch, *dags)
    allowed = frozenset(dag.dag_id for dag in dags) if readable is None else frozenset(readable)

    def check(request: Request) -> None:
        if readable is not None and request.path_params["dag_id"] not in allowed:
            raise HTTPException(403, "Forbidden")

    patch.setattr(
        pages,
        "dependency_overrides",
        {may_read_dag: check, may_read_docs: lambda: None, readable_dags: lambda: allowed},
    )
    return PageClient(pages)
