"""The page of a job: its state and why, how fresh it is, what to do, its newest epochs, its graph and its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from milepost.airflow.page.frame.freshness import since_ms
from milepost.airflow.page.jobs.acts import acts_of
from milepost.airflow.page.jobs.dag_jobs import DagJob
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.airflow.page.jobs.readings import READINGS, Reading
from milepost.airflow.page.jobs.standing import Tone
from milepost.errors import CheckpointError, InvalidRequest, StoreUnavailable
from milepost.jobmaster.jobmaster import CheckpointReport, Condition, HistoryPage, JobState, Status
from milepost.jobspec.job.spec import SinkSpec
from milepost.jobspec.load.lint import lint_report
from milepost.jobspec.load.load import LoadedJob
from milepost.jobspec.picture.graph_picture import graph_picture
from milepost.protocol.records.checkpoints import CheckpointStatus

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
    """The job as a whole; where its head or a source cannot be read, what is known without them.

    Raises: why its manifest cannot be read, without which nothing is known.
    """
    job = DagJob(at.dag_id, at.loaded)
    newest = READINGS.ask(job, lambda master: master.history_page(SHOWN_CHECKPOINTS))
    (reading,) = READINGS.read([job])
    state, status = _state(reading), reading.status
    history, unanswered = _history(newest)
    live = next((one for one in state.timelines if one.timeline == state.timeline), None)
    return at.render(
        "overview.html",
        "",
        reading=reading,
        state=state,
        status=status,
        live=live,
        since_success_ms=since_ms(status.last_success) if status is not None else None,
        acts=acts_of(reading),
        failed=_failed(status, history.checkpoints),
        tables=list(_tables(at.loaded, status)) if status is not None else [],
        checkpoints=history.checkpoints[:SHOWN_CHECKPOINTS],
        unreadable=history.unreadable,
        unanswered=unanswered,
        picture=_picture(at.loaded),
    )


def _state(reading: Reading) -> JobState:
    """Return what the manifest says. Raises why that is not known."""
    if reading.state is not None:
        return reading.state
    if reading.running.done():
        reading.running.result()
    raise reading.error or StoreUnavailable(reading.problem)


def _history(newest: Callable[[], HistoryPage]) -> tuple[HistoryPage, str]:
    """Return the newest checkpoints, or none and why; "" where there is no reason."""
    try:
        return newest(), ""
    except CheckpointError as error:
        return HistoryPage((), (), None), error.message


def _failed(status: Status | None, newest: Sequence[CheckpointReport]) -> CheckpointReport | None:
    """Return the checkpoint that a job failed at, if that is what is wrong with it and it is one of the newest."""
    if status is None or status.condition not in (Condition.FAILED, Condition.EPOCH_FAILED):
        return None
    return next((one for one in newest if one.status == CheckpointStatus.ABORTED.value), None)


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
