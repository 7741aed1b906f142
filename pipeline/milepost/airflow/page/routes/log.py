"""The page of the manifest log, filtered by kind of event, table, checkpoint and text."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from milepost.airflow.page.frame.access import READS_LOG
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.jobmaster import EventKind, LogFilter
from milepost.views import log_table

SHOWN_ENTRIES = 100

router = APIRouter(dependencies=[READS_LOG])

Kind = EventKind | Literal[""]
Checkpoint = Annotated[str, Query(pattern="^[0-9]{0,18}$")]
Number = Annotated[int | None, Query(ge=1, le=10**18)]
Text = Annotated[str, Query(max_length=200)]


@router.get("/log")
@router.get("/log.json")
def log(
    job_page: OpenedJob,
    kind: Kind = "",
    table: Text = "",
    checkpoint: Checkpoint = "",
    text: Text = "",
    before: Number = None,
) -> Response:
    """Show the newest entries that the filter selects. A field of the form that is left empty selects all.

    Args:
        before: show older versions only.
    """
    only_kind, only_checkpoint = EventKind(kind) if kind else None, int(checkpoint) if checkpoint else None
    selected = LogFilter(only_kind, table or None, only_checkpoint, text)
    with_values = job_page.shows_values
    page = job_page.query(
        lambda master: master.reports.log_page(selected, SHOWN_ENTRIES, before, with_values=with_values)
    )
    filters = {"kind": kind, "table": table, "checkpoint": checkpoint, "text": text}
    return job_page.render(
        "log.html",
        "log",
        document=page,
        table=log_table(page.events),
        page=page,
        filters={name: value for name, value in filters.items() if value},
        before=before,
    )
