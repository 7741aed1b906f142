"""The page of all tables of the jobs that the user may read, those with problems first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from milepost.airflow.page.frame.access import ReadableDags, UserRights
from milepost.airflow.page.frame.rendering import is_for_json, json_document, page
from milepost.airflow.page.jobs.dag_jobs import jobs_of_deployment
from milepost.airflow.page.jobs.job_reader import JOB_READER, JobReading
from milepost.codec import to_json
from milepost.jobmaster import TableHealth
from milepost.jobspec.job import SinkSpec
from milepost.views import Meaning, grade_meaning

router = APIRouter()


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of the list.

    Attributes:
        table: None: its job could not be read.
    """

    reading: JobReading
    sink: SinkSpec
    table: TableHealth | None

    @property
    def tone(self) -> Meaning:
        return self.reading.badge.tone if self.table is None else grade_meaning(self.table.state.grade)

    @property
    def word(self) -> str:
        return "unreadable" if self.table is None else self.table.state.word

    @property
    def text(self) -> str:
        """Its freshness, or its problem."""
        return self.reading.problem if self.table is None else self.table.state.text

    def for_programs(self) -> dict[str, Any]:
        """Return the line as JSON values."""
        job, name = self.reading.job, self.sink.name
        line = {"job": job.loaded.spec.name, "dag_id": job.dag_id, "table": name, "state": self.word}
        return line | {"text": self.text, "health": to_json(self.table)}

    @property
    def order(self) -> tuple[int, str, str]:
        """The most urgent first, then by name, so that tables of one name are together."""
        return list(Meaning).index(self.tone), self.sink.name, self.reading.job.loaded.spec.name


@router.get("/tables")
@router.get("/tables.json")
def tables(request: Request, readable: ReadableDags, rights: UserRights) -> Response:
    """List the tables of all jobs."""
    jobs, refused = jobs_of_deployment(readable)
    readings = [reading.shown_to(rights) for reading in JOB_READER.read(jobs)]
    lines = sorted((line for reading in readings for line in _lines(reading)), key=lambda line: line.order)
    if is_for_json(request):
        return json_document({"tables": [line.for_programs() for line in lines], "refused": refused})
    return page(request, "tables.html", lines=lines, refused=len(refused))


def _lines(reading: JobReading) -> Iterator[TableLine]:
    for sink in reading.job.loaded.spec.sinks:
        table = ((reading.status.tables if reading.status is not None else None) or {}).get(sink.name)
        yield TableLine(reading, sink, table)
