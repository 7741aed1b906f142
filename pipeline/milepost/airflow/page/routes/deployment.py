"""The page of all jobs that the user may read, those with problems first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from milepost.airflow.page.frame.access import ReadableDags, Rights, UserRights
from milepost.airflow.page.frame.filters import age_ms
from milepost.airflow.page.frame.rendering import page
from milepost.airflow.page.jobs.acts import PageAct, allowed_acts
from milepost.airflow.page.jobs.dag_jobs import jobs_of_deployment
from milepost.airflow.page.jobs.job_reader import JOB_READER, JobReading
from milepost.airflow.page.jobs.waiting import Waiting, dags_of, read_waiting
from milepost.views import Meaning

router = APIRouter()


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line of the list.

    Attributes:
        since_success_ms: None before the first success. act: the suggested act, or None.
        waiting: what waits in the job's DAGs and needs a person.
    """

    reading: JobReading
    since_success_ms: int | None
    act: PageAct | None
    waiting: tuple[Waiting, ...]

    @classmethod
    def of(cls, reading: JobReading, rights: Rights, waiting: Iterable[Waiting]) -> JobLine:
        since = age_ms(reading.status.last_success) if reading.status is not None else None
        act = next((act for act in allowed_acts(reading, rights) if act.is_suggested), None)
        return cls(reading, since, act, tuple(one for one in waiting if one.tone is Meaning.WARN))


@router.get("/jobs", response_class=HTMLResponse)
def deployment(request: Request, readable: ReadableDags, rights: UserRights) -> HTMLResponse:
    """List all jobs, the most urgent first."""
    jobs, refused = jobs_of_deployment(readable)
    readings = JOB_READER.read(jobs)
    ordered = sorted(readings, key=lambda reading: (reading.badge.urgency, reading.job.loaded.spec.name))
    tones = [reading.badge.tone for reading in ordered]
    counts = [(tone, tones.count(tone)) for tone in Meaning if tone in tones]
    dags = {reading.job.dag_id: dags_of(reading.job, readable) for reading in ordered}
    waiting = read_waiting([dag_id for its in dags.values() for dag_id in its], rights)
    lines = [
        JobLine.of(reading, rights, (one for dag_id in sorted(dags[reading.job.dag_id]) for one in waiting[dag_id]))
        for reading in ordered
    ]
    return page(request, "deployment.html", lines=lines, refused=refused, counts=counts)
