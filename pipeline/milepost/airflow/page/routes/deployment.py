"""The page of all jobs that the user may read, those with problems first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from milepost.airflow.page.drawings.sparkline import sparkline_svg
from milepost.airflow.page.frame.access import ReadableDags, Rights, UserRights
from milepost.airflow.page.frame.filters import age_ms, count, duration
from milepost.airflow.page.frame.rendering import is_for_json, json_document, page
from milepost.airflow.page.jobs.acts import PageAct, allowed_acts
from milepost.airflow.page.jobs.dag_jobs import jobs_of_deployment
from milepost.airflow.page.jobs.job_reader import JOB_READER, JobReading
from milepost.airflow.page.jobs.waiting import Waiting, dags_of, next_step, read_waiting
from milepost.codec import to_json
from milepost.epoch import counted
from milepost.jobmaster import RecentEpoch
from milepost.views import Meaning

router = APIRouter()


@dataclass(frozen=True, slots=True)
class RecentFigure:
    """A figure of a job's newest epochs: its drawing, and the value of the newest one as text."""

    name: str
    picture: str
    newest: str


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line of the list.

    Attributes:
        since_success_ms: None before the first success. act: the suggested act, or None.
        waiting: what waits in the job's DAGs and needs a person. recent: of its newest epochs.
    """

    reading: JobReading
    since_success_ms: int | None
    act: PageAct | None
    waiting: tuple[Waiting, ...]
    recent: tuple[RecentFigure, ...]

    @property
    def next_step(self) -> str:
        return next_step(self.reading.action, self.waiting, self.reading.job.dag_id)

    @property
    def tone(self) -> Meaning:
        """The tone of the job, or WARN if a healthy job needs a person."""
        tones = [self.reading.badge.tone]
        tones += [Meaning.WARN] if self.waiting or self.reading.runs_long else []
        return min(tones, key=list(Meaning).index)

    @property
    def rank(self) -> tuple[int, str]:
        """Sort key of the list, the most urgent first."""
        return list(Meaning).index(self.tone), self.reading.job.loaded.spec.name

    @classmethod
    def of(cls, reading: JobReading, rights: Rights, waiting: Iterable[Waiting]) -> JobLine:
        since = age_ms(reading.status.last_success) if reading.status is not None else None
        act = next((act for act in allowed_acts(reading, rights) if act.is_suggested), None)
        urgent = tuple(one for one in waiting if one.tone is Meaning.WARN)
        return cls(reading, since, act, urgent, tuple(_recent(reading)))

    def for_programs(self) -> dict[str, Any]:
        """Return the line as JSON values."""
        reading, badge = self.reading, self.reading.badge
        return {
            "job": reading.job.loaded.spec.name,
            "dag_id": reading.job.dag_id,
            "state": badge.word,
            "reason": badge.reason or None,
            "since": to_json(None if reading.status is None else reading.status.since),
            "problem": reading.problem or None,
            "next_step": self.next_step,
            "status": to_json(reading.status),
            "recent": to_json(reading.recent),
            "waiting": [one.text for one in self.waiting],
        }


def _recent(reading: JobReading) -> Iterator[RecentFigure]:
    figures: tuple[tuple[str, Callable[[RecentEpoch], float | None], Callable[[Any], str]], ...] = (
        ("rows", lambda epoch: epoch.rows_in, count),
        ("took", lambda epoch: epoch.duration_ms, duration),
        ("late", lambda epoch: epoch.late_share, "{:.1%}".format),
    )
    for name, figure, format_value in figures:
        values = [figure(epoch) for epoch in reading.recent]
        known = [value for value in values if value is not None]
        if known:
            newest, most = format_value(known[-1]), format_value(max(known))
            title = f"{name} of {counted(len(known), 'epoch')}: {newest} in the newest, at most {most}"
            yield RecentFigure(name, sparkline_svg(values, title), newest)


@router.get("/jobs")
@router.get("/jobs.json")
def deployment(request: Request, readable: ReadableDags, rights: UserRights) -> Response:
    """List all jobs, the most urgent first."""
    jobs, refused = jobs_of_deployment(readable)
    readings = [reading.shown_to(rights) for reading in JOB_READER.read(jobs)]
    dags = {reading.job.dag_id: dags_of(reading.job, readable) for reading in readings}
    waiting = read_waiting([dag_id for its in dags.values() for dag_id in its], rights)
    lines = sorted(
        (
            JobLine.of(reading, rights, (one for dag_id in sorted(dags[reading.job.dag_id]) for one in waiting[dag_id]))
            for reading in readings
        ),
        key=lambda line: line.rank,
    )
    tones = [line.tone for line in lines]
    counts = [(tone, tones.count(tone)) for tone in Meaning if tone in tones]
    if is_for_json(request):
        return json_document({"jobs": [line.for_programs() for line in lines], "refused": refused})
    return page(request, "deployment.html", lines=lines, refused=refused, counts=counts)
