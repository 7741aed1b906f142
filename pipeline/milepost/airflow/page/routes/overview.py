"""The overview page of a job: state, suggested action, freshness, live graph, newest epochs and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from milepost.airflow.page.drawings.live_graph import live_graph
from milepost.airflow.page.drawings.time_axis import flag_text, full_bar_ms, time_axis_picture
from milepost.airflow.page.frame.api_calls import ApiCall, unpause_call
from milepost.airflow.page.frame.filters import age_ms
from milepost.airflow.page.frame.rendering import Links, is_for_json, json_document
from milepost.airflow.page.jobs.acts import allowed_acts
from milepost.airflow.page.jobs.incident_panel import incident_panel
from milepost.airflow.page.jobs.job_document import Part, read_job, state_of
from milepost.airflow.page.jobs.job_page import JobPage, OpenedJob
from milepost.airflow.page.jobs.waiting import next_step
from milepost.jobmaster import (
    PHASE_GROUPS,
    CheckpointReport,
    Condition,
    HistoryAct,
    HistoryPage,
    Span,
    Status,
    TableHealth,
)
from milepost.jobspec.job import SinkSpec
from milepost.jobspec.load import LoadedJob
from milepost.protocol.records import CheckpointStatus
from milepost.views import Section, act_text, state_section, status_view

router = APIRouter()

RequestedParts = Annotated[list[Part] | None, Query()]


@dataclass(frozen=True, slots=True)
class SinkLine:
    """A table of the job, and its location."""

    sink: SinkSpec
    location: str
    health: TableHealth


@dataclass(frozen=True, slots=True)
class LatestAct:
    """The newest act of a person, as text, and how long ago it was."""

    act: HistoryAct
    text: str
    age_ms: int


@router.get("")
@router.get("/job.json")
def overview(job_page: OpenedJob, span: Span = Span.DAY, part: RequestedParts = None) -> Response:
    """Show the whole job. If its head or a source is unreadable, show the rest.

    Args:
        span: of the axis of time. part: parts of the document to return, if a program requests it; None: all.

    Raises: the error of reading the manifest, without which there is nothing to show.
    """
    is_document = is_for_json(job_page.request)
    parts = tuple(part or Part) if is_document else tuple(Part)
    document = read_job(job_page.job, job_page.rights, span, parts)
    if is_document:
        return json_document(document.for_programs(parts))
    reading = document.reading
    assert reading is not None
    status, flow, axis = reading.status, document.data_flow, document.time_axis
    history = document.history or HistoryPage((), (), None)
    acts = allowed_acts(reading, job_page.rights)
    return job_page.render(
        "overview.html",
        "",
        shown=document,
        reading=reading,
        incident=incident_panel(
            job_page, reading, acts, document.incident, (document.problems or {}).get(Part.INCIDENT)
        ),
        verdict=status.verdict if status else None,
        health=_health(status) if status else (state_section(state_of(reading)),),
        unpause=lambda dag_id: _unpause(job_page, dag_id),
        backfills=status.unfinished_backfills if status else (),
        acts=acts,
        next_step=next_step(reading.action, document.waiting, reading.job.dag_id),
        failed=_failed_checkpoint(status, history.checkpoints),
        tables=list(_tables(job_page.loaded, status)) if status is not None else [],
        history=history,
        latest=_latest(history.acts),
        graph="" if flow is None else live_graph(flow, lambda sink: job_page.url("tables", sink), document.progress),
        axis_picture="" if axis is None else time_axis_picture(axis, lambda one: job_page.url("checkpoints", one)),
        full_bar_ms=full_bar_ms,
        flag_text=flag_text,
        spans=tuple(Span),
        span=span,
        phase_groups=tuple(PHASE_GROUPS),
        compared=_newest_pair(history.checkpoints),
    )


def _health(status: Status) -> tuple[Section, ...]:
    return status_view(status, age_ms(status.last_success), with_verdict=False).sections


def _unpause(job_page: JobPage, dag_id: str) -> ApiCall | None:
    """Return the request that unpauses a DAG; None if Airflow would refuse it."""
    return unpause_call(Links.of(job_page.request), dag_id) if job_page.rights.may_pause(dag_id) else None


def _newest_pair(newest: Sequence[CheckpointReport]) -> tuple[int, int]:
    """Return the two newest checkpoints, the older one first, to be compared."""
    numbers = [report.checkpoint_id for report in newest if report.status != CheckpointStatus.PENDING.value][:2]
    return (numbers[-1], numbers[0]) if numbers else (1, 1)


def _latest(acts: Sequence[HistoryAct]) -> LatestAct | None:
    """Return the newest act of a person, with its age; None: the newest checkpoints are newer than any act."""
    return None if not acts else LatestAct(acts[0], act_text(acts[0]), age_ms(acts[0].time) or 0)


def _failed_checkpoint(status: Status | None, newest: Sequence[CheckpointReport]) -> CheckpointReport | None:
    """Return the newest aborted checkpoint of a failed job, if it is in `newest`."""
    if status is None or status.condition not in (Condition.FAILED, Condition.EPOCH_FAILED):
        return None
    return next((report for report in newest if report.status == CheckpointStatus.ABORTED.value), None)


def _tables(job: LoadedJob, status: Status) -> Iterator[SinkLine]:
    for sink in job.spec.sinks:
        if sink.name in (status.tables or {}):
            yield SinkLine(sink, sink.path or sink.table or "", (status.tables or {})[sink.name])
