"""The page of a job: its state and why, how fresh it is, what to do, its newest epochs, its graph and its tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from milepost.airflow.page.frame.freshness import since_ms
from milepost.airflow.page.jobs.acts import acts_of
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.airflow.page.jobs.standing import Tone, standing_of
from milepost.jobmaster.jobmaster import Status
from milepost.protocol.codec.records import to_json
from milepost.protocol.records.errors import InvalidRequest
from milepost.spec.job.spec import SinkSpec
from milepost.spec.load.lint import lint_report
from milepost.spec.load.load import LoadedJob
from milepost.spec.picture.graph_picture import graph_picture

SHOWN_CHECKPOINTS = 8

router = APIRouter()


@dataclass(frozen=True, slots=True)
class SinkLine:
    """A table of the job: where it is, and what it shows."""

    sink: SinkSpec
    place: str
    tone: Tone
    shows: str


@router.get("")
def overview(at: OpenedJob) -> HTMLResponse:
    """The job as a whole."""
    master = at.master()
    status = master.status()
    return at.render(
        "overview.html",
        "",
        status=status,
        standing=standing_of(status),
        since_success_ms=since_ms(status.last_success),
        acts=acts_of(at, status),
        tables=list(_tables(at.loaded, status)),
        checkpoints=to_json(master.list_checkpoints(limit=SHOWN_CHECKPOINTS)),
        picture=_picture(at.loaded),
    )


def _tables(job: LoadedJob, status: Status) -> Iterator[SinkLine]:
    for sink in job.spec.sinks:
        place = sink.path or sink.table or ""
        if sink.name in status.reconciling:
            yield SinkLine(sink, place, Tone.WARN, f"has yet to follow timeline {status.timeline}")
        elif sink.name in status.unconfirmed:
            yield SinkLine(sink, place, Tone.WARN, "waits for completed checkpoints to be published")
        elif status.head is None:
            yield SinkLine(sink, place, Tone.CALM, "nothing yet")
        else:
            yield SinkLine(sink, place, Tone.GOOD, f"checkpoint {status.head}")


def _picture(job: LoadedJob) -> str:
    """Return the SVG of the job's graph, in which names are escaped; "" of a graph that is refused by now."""
    try:
        return graph_picture(lint_report(job))
    except InvalidRequest:
        return ""
