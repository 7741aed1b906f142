"""The job that a page is about, and the header that all pages of a job share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.responses import Response

from milepost.airflow.page.frame.access import Rights, UserRights
from milepost.airflow.page.frame.rendering import Links, is_for_json, json_document, page
from milepost.airflow.page.jobs.dag_jobs import DagJob, jobs_of_dag
from milepost.airflow.page.jobs.job_reader import JOB_READER
from milepost.errors import NotFound
from milepost.jobmaster import JobMaster
from milepost.jobspec.load import LoadedJob
from milepost.views import Link, LinkTarget

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
"""The tabs of a job's pages: path segment after the job, and title of the tab."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """The job that a page is about, and the DAG in the page's URL.

    Attributes:
        others: names of the DAG's other jobs. rights: of the user who requested the page.
    """

    request: Request
    dag_id: str
    loaded: LoadedJob
    others: tuple[str, ...]
    rights: Rights

    @property
    def name(self) -> str:
        return self.loaded.spec.name

    @property
    def shows_values(self) -> bool:
        """Whether the user may see data values, such as refused rows."""
        return self.job.shows_values_to(self.rights)

    @property
    def job(self) -> DagJob:
        return DagJob(self.dag_id, self.loaded)

    def query(self, query: Callable[[JobMaster], T]) -> T:
        """Return the result of a query to a newly opened job master. Raises: as the function of `JobReader.start`."""
        return JOB_READER.start(self.job, query)()

    def url(self, *parts: str | int, **query: str | int) -> str:
        """Return the URL of a page of this job; `parts` are the path segments below its overview."""
        return Links.of(self.request).job(self.dag_id, self.name, *parts, **query)

    def href(self, link: Link) -> str:
        """Return the URL that a reference of a document leads to."""
        parts = [str(part) for part in link.parts]
        if link.target is LinkTarget.JOB:
            return self.url(*parts)
        if link.target is LinkTarget.TIMELINE:
            return self.url("checkpoints", timeline=parts[0])
        if link.target is LinkTarget.LOG_ENTRY:
            return self.url("log", before=int(parts[0]) + 1)
        links = Links.of(self.request)
        return links.run(*parts) if link.target is LinkTarget.AIRFLOW_RUN else links.runbook(*parts)

    def render(
        self, template: str, section: str | None, status_code: int = 200, *, document: object = None, **values: Any
    ) -> Response:
        """Render a template that extends `job_base.html`, or return the document of the page if that is requested.

        Args:
            section: path of the tab to mark, see `SECTIONS`; None: no tab.
            document: what the page shows, for programs; None: the page has no document.
        """
        if document is not None and is_for_json(self.request):
            return json_document(document, status_code)
        sections = self._sections()
        return page(self.request, template, status_code, job_page=self, sections=sections, section=section, **values)

    def _sections(self) -> list[tuple[str, str]]:
        """Return the tabs that the user may open."""
        refused = set() if self.rights.may_read_code(self.dag_id) else {"configuration"}
        refused |= set() if self.rights.may_read_log(self.dag_id) else {"log"}
        return [(path, title) for path, title in SECTIONS if path not in refused]


def open_job(request: Request, rights: UserRights, dag_id: str, job: str = "") -> JobPage:
    """Return the job that the URL names. Without `job` it is the DAG's first job by name.

    Raises: as `jobs_of_dag`; NotFound: the DAG has no job of this name.
    """
    jobs = jobs_of_dag(dag_id)
    name = job or next(iter(jobs))
    if name not in jobs:
        raise NotFound(f"DAG {dag_id} has no job {name}.", hint=f"Its jobs: {', '.join(jobs)}.")
    job_page = JobPage(request, dag_id, jobs[name], tuple(other for other in jobs if other != name), rights)
    request.state.job_page = job_page  # the handlers of later errors render their page with it
    return job_page


OpenedJob = Annotated[JobPage, Depends(open_job)]
