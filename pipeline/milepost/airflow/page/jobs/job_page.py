"""A page of a job: what its address names, opened once, and the head that all pages of a job share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse

from milepost.airflow.page.frame.rendering import Links, page
from milepost.airflow.page.jobs.dag_jobs import DagJob, jobs_of_dag
from milepost.airflow.page.jobs.readings import READINGS
from milepost.errors import NotFound
from milepost.jobmaster.jobmaster import JobMaster
from milepost.jobspec.load.load import LoadedJob

T = TypeVar("T")

SECTIONS = (
    ("", "Overview"),
    ("checkpoints", "Checkpoints"),
    ("charts", "Charts"),
    ("summary", "Summary"),
    ("rewind", "Rewind points"),
    ("configuration", "Configuration"),
    ("log", "Log"),
)
"""The tabs of a job's pages: what follows the job in the address, and the tab's name."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """The job that a page is about, reached through one of its DAGs; others: jobs of the same DAG."""

    request: Request
    dag_id: str
    loaded: LoadedJob
    others: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.loaded.spec.name

    def ask(self, ask: Callable[[JobMaster], T]) -> T:
        """Return what the job answers, which is opened anew. Raises: as `Readings.ask`: no page waits for ever."""
        return READINGS.ask(DagJob(self.dag_id, self.loaded), ask)()

    def url(self, *parts: str | int, **query: str | int) -> str:
        """Return the address of a page of this job; `parts` lie below its own one."""
        return Links.of(self.request).job(self.dag_id, self.name, *parts, **query)

    def render(self, template: str, section: str | None, status_code: int = 200, **values: Any) -> HTMLResponse:
        """Return a page that extends `job_base.html`.

        Args:
            section: of `SECTIONS`, whose tab is marked; None: no one.
        """
        return page(self.request, template, status_code, at=self, sections=SECTIONS, section=section, **values)


def open_job(request: Request, dag_id: str, job: str = "") -> JobPage:
    """Return the job that the address names: of several of a DAG the one that is named, else the first by name.

    Raises: as `jobs_of_dag`; NotFound: the DAG has no job of this name.
    """
    jobs = jobs_of_dag(dag_id)
    named = job or next(iter(jobs))
    if named not in jobs:
        raise NotFound(f"DAG {dag_id} has no job {named}.", hint=f"Its jobs: {', '.join(jobs)}.")
    opened = JobPage(request, dag_id, jobs[named], tuple(other for other in jobs if other != named))
    request.state.job_page = opened  # for the page of what goes wrong from here on
    return opened


OpenedJob = Annotated[JobPage, Depends(open_job)]
