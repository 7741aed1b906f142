"""The pages of Milepost as a browser gets them, from Airflow's own checks of login and rights, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import httpx
import pytest
from airflow.sdk import DAG
from fastapi import FastAPI

from milepost_testkit.airflow.kept_dags import OPEN, keep_dags


@dataclass(frozen=True)
class PageClient:
    """A browser without a screen: it requests one page after the other.

    Attributes:
        headers: of each request; the login.
    """

    app: FastAPI
    headers: Mapping[str, str] = field(default_factory=dict)

    def get(self, address: str) -> httpx.Response:
        async def answer() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
                return await client.get(address, headers=self.headers)

        return asyncio.run(answer())

    def logged_out(self) -> PageClient:
        return PageClient(self.app)

    def with_role(self, role: str) -> PageClient:
        """Return a client of the same pages for a user with another role."""
        return PageClient(self.app, login_of(role))


def page_client(
    patch: pytest.MonkeyPatch, *dags: DAG, readable: Iterable[str] | None = None, role: str = "user"
) -> PageClient:
    """Return a client of the pages, logged in with a role, in an Airflow that has these DAGs.

    Args:
        readable: ids of the DAGs of the user's team, the only ones that the user may read; all by default.
    """
    from milepost.airflow.page.pages import pages

    keep_dags(patch, *dags, readable=readable)
    patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "only for tests: " + "0" * 64)
    return PageClient(pages, login_of(role))


def login_of(role: str) -> dict[str, str]:
    """Return the header that carries the login of a user with a role of the simple auth manager."""
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    user = SimpleAuthManagerUser(username=role, role=role, teams=[OPEN])
    return {"Authorization": f"Bearer {create_auth_manager().generate_jwt(user)}"}
