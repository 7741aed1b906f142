"""The panel on the overview of a stopped job: what happened, and the acts that help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from milepost.acts import KEY, QUARANTINE, RESUME, ROLLBACK, SOURCE
from milepost.airflow.operators.dag_ids import is_own_dag, operate_dag_id
from milepost.airflow.page.frame.filters import age_ms
from milepost.airflow.page.jobs.acts import PageAct
from milepost.airflow.page.jobs.job_page import JobPage
from milepost.airflow.page.jobs.job_reader import HEAD_UNREADABLE, JobReading
from milepost.errors import CheckpointError, StateCorrupt
from milepost.jobmaster import Incident, RowsBefore, Status
from milepost.views import Meaning, Section, incident_sections, printable

_HELPING = (RESUME.name, ROLLBACK.name)

_NAMED_OBJECTS = 3
"""Number of objects with a button to quarantine them. A form takes the name of any other object."""


@dataclass(frozen=True, slots=True)
class IncidentPanel:
    """The content of the panel.

    Attributes:
        acts: those that the user may trigger of resume, rollback, the suggested act, and the quarantine of an object
            that the failed epoch read.
        checkpoint_id: the failed checkpoint, which has a page of its own; None: the head cannot be read.
    """

    sections: tuple[Section, ...]
    acts: tuple[PageAct, ...]
    checkpoint_id: int | None


def incident_panel(
    job_page: JobPage, reading: JobReading, acts: Sequence[PageAct], incident: Incident | None, problem: str | None
) -> IncidentPanel | None:
    """Return the panel of a job that has stopped; None: it has not.

    Args:
        acts: those that the user may trigger. incident: why it has stopped. problem: why that cannot be read, or None.
    """
    helping = tuple(act for act in acts if act.is_suggested or act.what in _HELPING)
    if isinstance(reading.error, StateCorrupt):
        return IncidentPanel(_broken(reading, reading.error), helping, None)
    if problem is not None:
        failed = Section("What failed cannot be read now", lines=(problem,), meaning=Meaning.WARN)
        return IncidentPanel((failed,), helping, None)
    if incident is None:
        return None
    quarantines = tuple(_quarantines(job_page, incident))
    if incident.rules and quarantines:
        quarantines = tuple(replace(act, is_suggested=len(quarantines) == 1) for act in quarantines)
        helping = (*quarantines, *helping)
    else:
        helping = (*helping, *quarantines)
    return IncidentPanel(_sections(job_page, incident, reading.status), helping, incident.checkpoint_id)


def _quarantines(job_page: JobPage, incident: Incident) -> Iterator[PageAct]:
    """Yield acts that quarantine an object which the failed epoch read."""
    job, operate = job_page.name, operate_dag_id(job_page.name)
    files = [one for one in incident.read or () if one.records is None and one.objects]
    if not files or not is_own_dag(job, job_page.dag_id) or not job_page.rights.may_trigger(operate):
        return
    named = [(one.source, key) for one in files for key in one.first]
    for source, key in named[:_NAMED_OBJECTS]:
        fields = {SOURCE: source, KEY: key}
        label, purpose = (
            f"Quarantine {printable(key)}",
            f"No epoch reads this object of source {source} until a release.",
        )
        yield PageAct(job, job_page.dag_id, operate, label, purpose, QUARANTINE.name, fields)
    if sum(one.objects for one in files) > _NAMED_OBJECTS:
        purpose = "No epoch reads it until a release."
        yield PageAct(job, job_page.dag_id, operate, "Quarantine another object", purpose, QUARANTINE.name)


def _sections(job_page: JobPage, incident: Incident, status: Status | None) -> tuple[Section, ...]:
    before: list[RowsBefore] = []
    if any(rule.rows for rule in incident.rules):
        try:
            before = job_page.query(lambda master: master.reports.rows_before(incident))
        except CheckpointError as error:
            before = [RowsBefore(problem=error.message) for _ in incident.rules]
    return incident_sections(
        incident,
        age_ms(incident.shows_since),
        before,
        failing=None if status is None else status.since,
        with_values=job_page.shows_values,
        with_bounds=job_page.rights.may_read_code(job_page.dag_id),
    )


def _broken(reading: JobReading, error: StateCorrupt) -> tuple[Section, ...]:
    """Return the sections for an unreadable head."""
    state = reading.state
    live = None if state is None else next((one for one in state.timelines if one.timeline == state.timeline), None)
    head = "unknown" if live is None else "nothing yet" if live.head is None else f"checkpoint {live.head}"
    return (
        Section(HEAD_UNREADABLE, lines=(error.message,), meaning=Meaning.BAD),
        Section("What readers see now", lines=(f"The tables are left as they are: {head}.",)),
    )
