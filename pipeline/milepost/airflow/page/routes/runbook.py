"""The runbook's pages; they contain nothing about any job."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markdown_it import MarkdownIt

from milepost.airflow.page.frame.access import READS_DOCS
from milepost.airflow.page.frame.rendering import page
from milepost.runbook import read_page

router = APIRouter(prefix="/runbook", dependencies=[READS_DOCS], default_response_class=HTMLResponse)
_MARKDOWN = MarkdownIt("commonmark", {"html": False})


@router.get("/{name}")
def runbook_page(request: Request, name: str) -> HTMLResponse:
    """Show a page of the runbook."""
    content = read_page(name)
    return page(request, "runbook.html", heading=content.title, text=_MARKDOWN.render(content.text))
