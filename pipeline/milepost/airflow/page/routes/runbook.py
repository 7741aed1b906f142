"""The runbook's pages; they contain nothing about any job."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response
from markdown_it import MarkdownIt

from milepost.airflow.page.frame.access import READS_DOCS
from milepost.airflow.page.frame.rendering import is_for_json, json_document, page
from milepost.runbook import read_page

router = APIRouter(prefix="/runbook", dependencies=[READS_DOCS])
_MARKDOWN = MarkdownIt("commonmark", {"html": False})


@router.get("/{name}")
@router.get("/{name}.json")
def runbook_page(request: Request, name: str) -> Response:
    """Show a page of the runbook."""
    content = read_page(name)
    if is_for_json(request):
        return json_document(content)
    return page(request, "runbook.html", heading=content.title, text=_MARKDOWN.render(content.text))
