"""The document of a job's page, for the template and for programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from milepost.airflow.page.frame.access import Rights
from milepost.airflow.page.jobs.dag_jobs import DagJob
from milepost.airflow.page.jobs.job_reader import JOB_READER, JobReading
from milepost.airflow.page.jobs.waiting import Waiting, dags_of, read_waiting
from milepost.codec import to_json
from milepost.errors import CheckpointError, StoreUnavailable
from milepost.jobmaster import (
    DataFlow,
    EpochProgress,
    HistoryPage,
    Incident,
    JobMaster,
    JobState,
    LogFilter,
    LogPage,
    Span,
    TimeAxis,
    hide_details,
    hide_rows,
)
from milepost.views import progress_text

SHOWN_CHECKPOINTS = 8
SHOWN_ENTRIES = 12


class Part(StrEnum):
    """A part of the document. A program may request some of them only."""

    STATUS = "status"
    PROGRESS = "progress"
    DATA_FLOW = "data_flow"
    TIME_AXIS = "time_axis"
    HISTORY = "history"
    WAITING = "waiting"
    LOG = "log"
    INCIDENT = "incident"


@dataclass(frozen=True, slots=True)
class JobDocument:
    """The content of a job's page. A part that was not requested, or cannot be read, is None.

    Attributes:
        history: the newest checkpoints of the live timeline, and the acts of people since the oldest of them.
        log: the newest entries of the manifest log. problems: why parts cannot be read.
        incident: why the job has stopped; None if it has not.
    """

    reading: JobReading | None = None
    progress: EpochProgress | None = None
    data_flow: DataFlow | None = None
    time_axis: TimeAxis | None = None
    history: HistoryPage | None = None
    waiting: tuple[Waiting, ...] = ()
    log: LogPage | None = None
    incident: Incident | None = None
    problems: Mapping[Part, str] | None = None

    @property
    def progress_text(self) -> str:
        return "" if self.progress is None else progress_text(self.progress)

    def for_programs(self, parts: Collection[Part]) -> dict[str, Any]:
        """Return the requested parts as JSON values."""
        status = None if self.reading is None else self.reading.status
        progress = None if self.progress is None else {**to_json(self.progress), "text": self.progress_text}
        values: dict[Part, Any] = {
            Part.STATUS: to_json(status),
            Part.PROGRESS: progress,
            Part.DATA_FLOW: to_json(self.data_flow),
            Part.TIME_AXIS: to_json(self.time_axis),
            Part.HISTORY: to_json(self.history),
            Part.LOG: to_json(self.log),
            Part.INCIDENT: to_json(self.incident),
            Part.WAITING: [_waiting(one) for one in self.waiting],
        }
        problems = {part.value: text for part, text in (self.problems or {}).items()}
        return {part.value: values[part] for part in Part if part in parts} | {"problems": problems}


def _queries(span: Span, *, with_values: bool) -> Mapping[Part, Callable[[JobMaster], Any]]:
    return {
        Part.HISTORY: lambda master: _history(master, with_values=with_values),
        Part.PROGRESS: lambda master: master.reports.progress(),
        Part.DATA_FLOW: lambda master: master.reports.data_flow(),
        Part.LOG: lambda master: master.reports.log_page(LogFilter(), SHOWN_ENTRIES, with_values=with_values),
        Part.TIME_AXIS: lambda master: master.reports.time_axis(span),
    }


def _history(master: JobMaster, *, with_values: bool) -> HistoryPage:
    newest = master.reports.newest_page(SHOWN_CHECKPOINTS)
    return newest if with_values else hide_details(newest)


def read_job(job: DagJob, rights: Rights, span: Span, parts: Collection[Part] = tuple(Part)) -> JobDocument:
    """Read the parts of a job's document concurrently.

    Raises: the error of reading the manifest, if the status is requested: without it there is nothing to show.
    """
    problems: dict[Part, str] = {}
    if Part.LOG in parts and not rights.may_read_log(job.dag_id):
        parts = [part for part in parts if part is not Part.LOG]
        problems[Part.LOG] = "The log needs Airflow's permission to read the audit log of this DAG."
    queries = _queries(span, with_values=job.shows_values_to(rights))
    started = {part: JOB_READER.start(job, query) for part, query in queries.items() if part in parts}
    reading = JOB_READER.read([job])[0].shown_to(rights) if Part.STATUS in parts else None
    if reading is not None:
        state_of(reading)
    values: dict[str, Any] = {}
    for part, await_answer in started.items():
        try:
            values[part.value] = await_answer()
        except CheckpointError as error:
            problems[part] = error.message
    if Part.INCIDENT in parts and (reading is None or reading.has_stopped):
        try:
            values[Part.INCIDENT.value] = _incident(job, rights)
        except CheckpointError as error:
            problems[Part.INCIDENT] = error.message
    if reading is not None and reading.problem:
        problems[Part.STATUS] = reading.problem
    waiting = _read_waiting(job, rights) if Part.WAITING in parts else ()
    return replace(JobDocument(reading=reading, waiting=waiting, problems=problems), **values)


def _incident(job: DagJob, rights: Rights) -> Incident | None:
    incident = JOB_READER.start(job, lambda master: master.reports.incident())()
    if incident is None:
        return None
    if not rights.may_read_code(job.dag_id):  # the bounds of rules are a part of the spec
        incident = replace(incident, rules=tuple(replace(rule, bounds=None) for rule in incident.rules))
    return incident if job.shows_values_to(rights) else hide_rows(incident)


def state_of(reading: JobReading) -> JobState:
    """Return the state in the manifest. Raises the error of reading it."""
    if reading.state is not None:
        return reading.state
    if reading.running.done():
        reading.running.result()
    raise reading.error or StoreUnavailable(reading.problem)


def _read_waiting(job: DagJob, rights: Rights) -> tuple[Waiting, ...]:
    """Return what waits in the DAGs of the job, the most urgent first."""
    found = read_waiting(dags_of(job, rights.readable_dags()), rights)
    return tuple(one for dag_id in sorted(found) for one in found[dag_id])


def _waiting(one: Waiting) -> dict[str, Any]:
    since = None if one.since is None else one.since.isoformat()
    return {"kind": one.kind, "dag_id": one.dag_id, "run_id": one.run_id or None, "text": one.text} | {
        "who": one.who or None,
        "since": since,
    }
