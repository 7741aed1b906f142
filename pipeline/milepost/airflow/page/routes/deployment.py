"""The page of all jobs of the deployment that the user may see, those with problems first."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from milepost.airflow.page.frame.access import ReadableDags
from milepost.airflow.page.frame.freshness import since_ms
from milepost.airflow.page.frame.rendering import page
from milepost.airflow.page.jobs.acts import PageAct, acts_of
from milepost.airflow.page.jobs.dag_jobs import jobs_of_deployment
from milepost.airflow.page.jobs.readings import READINGS, Reading
from milepost.airflow.page.jobs.standing import Tone

router = APIRouter()


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a line of the list; since_success_ms: None before the first one; act: its next step, if it has one."""

    reading: Reading
    since_success_ms: int | None
    act: PageAct | None

    @classmethod
    def of(cls, reading: Reading) -> JobLine:
        since = since_ms(reading.status.last_success) if reading.status is not None else None
        return cls(reading, since, next((act for act in acts_of(reading) if act.first), None))


@router.get("/jobs", response_class=HTMLResponse)
def jobs(request: Request, readable: ReadableDags) -> HTMLResponse:
    """All jobs, the most urgent first."""
    known, refused = jobs_of_deployment(readable)
    readings = READINGS.read(known)
    ordered = sorted(readings, key=lambda one: (one.standing.urgency, one.job.loaded.spec.name))
    tones = [one.standing.tone for one in ordered]
    counts = [(tone, tones.count(tone)) for tone in Tone if tone in tones]
    return page(request, "deployment.html", lines=list(map(JobLine.of, ordered)), refused=refused, counts=counts)
