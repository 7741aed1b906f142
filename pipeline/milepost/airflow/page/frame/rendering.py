"""Render pages: templates, HTTP headers, documents and links.

A page is HTML, one stylesheet and three small scripts. One opens links to Airflow's own pages outside the iframe of a
tab, one sends requests to Airflow's REST API, and one follows the running epoch. Templates escape everything that comes
from data, the store or users.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.runtime import Markup

from milepost.airflow.page.frame.commands import names_command
from milepost.airflow.page.frame.filters import FILTERS
from milepost.airflow.page_urls import URL_PREFIX, form_path
from milepost.codec import DOCUMENT_SCHEMA, to_json
from milepost.views import checkpoint_table, grade_meaning, grade_word, log_table, since_text

HERE = pathlib.Path(__file__).resolve().parent.parent
STATIC = HERE / "static"

_CODE = re.compile(r"`([^`]+)`")


def prose(text: str) -> Markup:
    """Return the HTML of a text in which backticks mark code, as in Markdown. Everything else is escaped.

    "set `a<b` or `c" -> "set <code>a&lt;b</code> or `c": an unpaired backtick stays.
    """
    between, *rest = _CODE.split(text)
    html = Markup.escape(between)
    for code, after in zip(rest[::2], rest[1::2], strict=True):
        html += Markup("<code>{}</code>{}").format(code, after)
    return html


templates = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters.update(FILTERS, prose=prose)
templates.globals.update(
    names_command=names_command,
    checkpoint_table=checkpoint_table,
    grade_meaning=grade_meaning,
    grade_word=grade_word,
    log_table=log_table,
    since_text=since_text,
)
templates.globals["m"] = templates.get_template("macros.html").module  # the shared macros
templates.globals["v"] = templates.get_template("views.html").module  # parts of documents

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every page. No page has an inline style or script."""


@dataclass(frozen=True, slots=True)
class Links:
    """URLs of pages as the browser sees them: Airflow may be served under a path prefix.

    Attributes:
        root: URL of our pages. airflow: URL of Airflow's pages. Neither has a trailing slash.
    """

    root: str
    airflow: str

    @classmethod
    def of(cls, request: Request) -> Links:
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return cls(root, root.removesuffix(URL_PREFIX))

    def static(self, name: str) -> str:
        """Return the URL of a static file. It contains the file's digest, so that browsers can cache it."""
        return f"{self.root}/static/{name}?v={_digest(name)}"

    def jobs(self) -> str:
        return f"{self.root}/jobs"

    def job(self, dag_id: str, name: str, *parts: str | int, **query: str | int) -> str:
        """Return the URL of a job's page; `parts` are the path segments below the job's overview."""
        path = "/".join(quote(str(part), safe="") for part in (dag_id, *parts))
        return f"{self.root}/jobs/{path}?{urlencode({'job': name, **query})}"

    def runbook(self, name: str) -> str:
        """Return the URL of a runbook page, by its name."""
        return f"{self.root}/runbook/{name}"

    def form(self, job: str, what: str, **fields: object) -> str:
        """Return the URL of a job's pre-filled form. The arguments are those of `form_path`."""
        return f"{self.root}{form_path(job, what, **fields)}"

    def tables(self) -> str:
        return f"{self.root}/tables"

    def asset(self, asset_id: int) -> str:
        """Return the URL of Airflow's own page of an asset."""
        return f"{self.airflow}/assets/{asset_id}"

    def dag(self, dag_id: str) -> str:
        """Return the URL of Airflow's own page of a DAG."""
        return f"{self.airflow}/dags/{quote(dag_id, safe='')}"

    def run(self, dag_id: str, run_id: str) -> str:
        """Return the URL of Airflow's own page of a run."""
        return f"{self.dag(dag_id)}/runs/{quote(run_id, safe='')}"


@cache
def _digest(name: str) -> str:
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def is_for_json(request: Request) -> bool:
    """Return whether a request is for the JSON document of a page: its route ends in `.json`."""
    return str(getattr(request.scope.get("route"), "path", "")).endswith(".json")


def json_document(data: object, status_code: int = 200, **error: object) -> JSONResponse:
    """Return a document as `--json` prints it. error: what failed, if `data` is None."""
    content = {"schema": DOCUMENT_SCHEMA, "ok": not error} | ({"error": error} if error else {"data": to_json(data)})
    return JSONResponse(content, status_code=status_code, headers=HEADERS)


def page(request: Request, template: str, status_code: int = 200, **values: Any) -> HTMLResponse:
    """Render a template as a page. Every template has `links`."""
    html = templates.get_template(template).render(links=Links.of(request), **values)
    return HTMLResponse(html, status_code=status_code, headers=HEADERS)
