"""The overview page of a job: state, suggested action, freshness, live graph, newest epochs and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from milepost.airflow.page.drawings.live_graph import live_graph
from milepost.airflow.page.drawings.time_axis import flag_text, time_axis_picture
from milepost.airflow.page.frame.access import Rights
from milepost.airflow.page.frame.api_calls import ApiCall, unpause_call
from milepost.airflow.page.frame.filters import age_ms
from milepost.airflow.page.frame.rendering import Links
from milepost.airflow.page.jobs.acts import allowed_acts
from milepost.airflow.page.jobs.dag_jobs import DagJob
from milepost.airflow.page.jobs.incident_panel import incident_panel
from milepost.airflow.page.jobs.job_page import JobPage, OpenedJob
from milepost.airflow.page.jobs.job_reader import JOB_READER, JobReading
from milepost.airflow.page.jobs.waiting import Waiting, dags_of, read_waiting
from milepost.errors import CheckpointError, StoreUnavailable
from milepost.jobmaster import (
    PHASE_GROUPS,
    CheckpointReport,
    Condition,
    HistoryAct,
    HistoryPage,
    JobState,
    Span,
    Status,
)
from milepost.jobspec.job import SinkSpec
from milepost.jobspec.load import LoadedJob
from milepost.protocol.records import MAIN_TIMELINE, CheckpointStatus
from milepost.views import Meaning, TimelineNames, act_text, state_section, status_view

SHOWN_CHECKPOINTS = 8

T = TypeVar("T")

router = APIRouter()


@dataclass(frozen=True, slots=True)
class SinkLine:
    """A table of the job: its location, and which checkpoint readers see."""

    sink: SinkSpec
    location: str
    tone: Meaning
    shows: str


@dataclass(frozen=True, slots=True)
class LatestAct:
    """The newest act of a person, as text, and how long ago it was."""

    act: HistoryAct
    text: str
    age_ms: int


@router.get("")
def overview(job_page: OpenedJob, span: Span = Span.DAY) -> HTMLResponse:
    """Show the whole job. If its head or a source is unreadable, show the rest.

    Args:
        span: of the axis of time.

    Raises: the error of reading the manifest, without which there is nothing to show.
    """
    job = DagJob(job_page.dag_id, job_page.loaded)
    # Starts before the health is read, so that both run concurrently.
    await_history = JOB_READER.start(job, lambda master: master.reports.newest_page(SHOWN_CHECKPOINTS))
    await_flow = JOB_READER.start(job, lambda master: master.reports.data_flow())
    await_axis = JOB_READER.start(job, lambda master: master.reports.time_axis(span))
    (reading,) = JOB_READER.read([job])
    state, status = _state(reading), reading.status
    newest, unanswered = _answer(await_history)
    history = newest or HistoryPage((), (), None)
    flow, no_flow = _answer(await_flow)
    axis, no_axis = _answer(await_axis)
    acts = allowed_acts(reading, job_page.rights)
    return job_page.render(
        "overview.html",
        "",
        reading=reading,
        incident=incident_panel(job_page, reading, acts),
        health=status_view(status, age_ms(status.last_success)).sections if status else (state_section(state),),
        waiting=_waiting(job, job_page.rights),
        unpause=lambda dag_id: _unpause(job_page, dag_id),
        backfills=status.unfinished_backfills if status else (),
        acts=acts,
        failed=_failed_checkpoint(status, history.checkpoints),
        tables=list(_tables(job_page.loaded, status, TimelineNames(history.origins))) if status is not None else [],
        checkpoints=history.checkpoints[:SHOWN_CHECKPOINTS],
        latest=_latest(history.acts),
        unreadable=history.unreadable,
        unanswered=unanswered,
        flow=flow,
        no_flow=no_flow,
        graph="" if flow is None else live_graph(flow, lambda sink: job_page.url("tables", sink)),
        axis=axis,
        no_axis=no_axis,
        axis_picture="" if axis is None else time_axis_picture(axis, lambda one: job_page.url("checkpoints", one)),
        flag_text=flag_text,
        spans=tuple(Span),
        span=span,
        phase_groups=tuple(PHASE_GROUPS),
        history_pair=_newest_pair(history.checkpoints),
    )


def _waiting(job: DagJob, rights: Rights) -> list[Waiting]:
    """Return what waits in the DAGs of the job, the most urgent first."""
    found = read_waiting(dags_of(job, rights.readable_dags()), rights)
    return [one for dag_id in sorted(found) for one in found[dag_id]]


def _unpause(job_page: JobPage, dag_id: str) -> ApiCall | None:
    """Return the request that unpauses a DAG; None if Airflow would refuse it."""
    return unpause_call(Links.of(job_page.request), dag_id) if job_page.rights.may_pause(dag_id) else None


def _state(reading: JobReading) -> JobState:
    """Return the state in the manifest. Raises the error of reading it."""
    if reading.state is not None:
        return reading.state
    if reading.running.done():
        reading.running.result()
    raise reading.error or StoreUnavailable(reading.problem)


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


def _tables(job: LoadedJob, status: Status, names: TimelineNames) -> Iterator[SinkLine]:
    for sink in job.spec.sinks:
        location = sink.path or sink.table or ""
        if sink.name in status.reconciling:
            yield SinkLine(
                sink,
                location,
                Meaning.WARN,
                f"has yet to follow the timeline {names.with_id(status.timeline or MAIN_TIMELINE)}",
            )
        elif sink.name in status.unconfirmed:
            yield SinkLine(sink, location, Meaning.WARN, "waits for completed checkpoints to be published")
        elif status.head is None:
            yield SinkLine(sink, location, Meaning.CALM, "nothing yet")
        else:
            yield SinkLine(sink, location, Meaning.GOOD, f"checkpoint {status.head}")


def _answer(await_answer: Callable[[], T]) -> tuple[T | None, str]:
    """Return the answer of a query and "", or None and the error message."""
    try:
        return await_answer(), ""
    except CheckpointError as error:
        return None, error.message
