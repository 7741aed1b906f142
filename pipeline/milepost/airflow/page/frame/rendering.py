"""The frame of all pages: their templates, their headers, the addresses in them.

A page is HTML and one stylesheet. Its only script leads links to Airflow's own pages out of the frame that a tab is;
without it they open inside. What comes from data, from the store or from people is escaped by the templates.
"""

from __future__ import annotations

import hashlib
import pathlib
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from milepost.airflow.page.frame.commands import names_command
from milepost.airflow.page.frame.figures import FILTERS
from milepost.airflow.page.frame.prose import prose
from milepost.airflow.page_urls import URL_PREFIX, form_path
from milepost.jobspec.picture.graph_picture import STYLE as GRAPH_STYLE

HERE = pathlib.Path(__file__).resolve().parent.parent
STATIC = HERE / "static"

templates = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters.update(FILTERS, prose=prose)
templates.globals["names_command"] = names_command
templates.globals["m"] = templates.get_template("macros.html").module  # what all pages are built of

_GRAPH_STYLE = b64encode(hashlib.sha256(GRAPH_STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'self' 'sha256-{_GRAPH_STYLE}'; script-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every page. The one style inside a page is that of a job's graph, which is the same in all."""


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses of pages, as the browser sees them: Airflow may lie below a path of its own.

    Attributes:
        root: where our pages begin. airflow: where Airflow's begin; no slash at the end.
    """

    root: str
    airflow: str

    @classmethod
    def of(cls, request: Request) -> Links:
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return cls(root, root.removesuffix(URL_PREFIX))

    def static(self, name: str) -> str:
        """Return a file's address, which changes with what is in it: a browser may keep it."""
        return f"{self.root}/static/{name}?v={_digest(name)}"

    def jobs(self) -> str:
        return f"{self.root}/jobs"

    def job(self, dag_id: str, name: str, *parts: str | int, **query: str | int) -> str:
        """Return a page of a job; `parts` lie below its own one."""
        path = "/".join(quote(str(part), safe="") for part in (dag_id, *parts))
        return f"{self.root}/jobs/{path}?{urlencode({'job': name, **query})}"

    def runbook(self, name: str) -> str:
        """Return the page of an error or of a state, by its name in the runbook."""
        return f"{self.root}/runbook/{name}"

    def form(self, job: str, what: str, **fields: object) -> str:
        """Return the page of a job's form, filled in; arguments as of `form_path`."""
        return f"{self.root}{form_path(job, what, **fields)}"

    def dag(self, dag_id: str) -> str:
        """Return Airflow's own page of a DAG."""
        return f"{self.airflow}/dags/{quote(dag_id, safe='')}"

    def run(self, dag_id: str, run_id: str) -> str:
        """Return Airflow's own page of a run."""
        return f"{self.dag(dag_id)}/runs/{quote(run_id, safe='')}"


@cache
def _digest(name: str) -> str:
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def page(request: Request, template: str, status_code: int = 200, **values: Any) -> HTMLResponse:
    """Return a page: a template with what it shows; `links` is there in each."""
    html = templates.get_template(template).render(links=Links.of(request), **values)
    return HTMLResponse(html, status_code=status_code, headers=HEADERS)
