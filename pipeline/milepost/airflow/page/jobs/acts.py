"""The acts that a page offers for a job's current state, as links to Airflow's forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from milepost.acts import ACTS
from milepost.airflow.operators.dag_ids import epoch_dag_id
from milepost.airflow.page.jobs.job_reader import JobReading
from milepost.airflow.page.jobs.suggested_action import EPOCH, SuggestedAction
from milepost.protocol.records import JobStatus


@dataclass(frozen=True, slots=True)
class PageAct:
    """An act that a page offers.

    Attributes:
        dag_id: the DAG to trigger; "" for an act of the job's form.
        what: name of the act in the form. fields: values of its fields, by their short names.
        is_suggested: whether it is the suggested action.
    """

    label: str
    purpose: str
    dag_id: str = ""
    what: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    is_suggested: bool = False


_EPOCH_LABEL = "Run an epoch"
_OFFERED = (EPOCH, "start", "resume", "cancel", "abort", "rollback", "backfill", "savepoint_create", "verify")
"""`EPOCH`, and the names of the acts in the form that a page may offer, in the order of the page."""


def offered_acts(reading: JobReading) -> list[PageAct]:
    """Return the acts that a job's page offers, the suggested one first.

    A job whose tasks are in a user's DAG (`MilepostTaskGroup`) has no form. The only act is to trigger that DAG.
    """
    name, dag_id, suggested = reading.job.loaded.spec.name, reading.job.dag_id, reading.action
    if not dag_id.startswith(f"{name}__"):
        return [PageAct(_EPOCH_LABEL, "This DAG has the job's tasks.", dag_id, is_suggested=suggested.act == EPOCH)]
    names = {*_acts_for_state(reading), *filter(None, [suggested.act])}
    acts = [_page_act(name, what, suggested) for what in _OFFERED if what in names]
    return sorted(acts, key=lambda act: not act.is_suggested)


def _acts_for_state(reading: JobReading) -> Iterator[str]:
    """Yield the names of the acts that the page offers in this state, besides those it suggests."""
    state, status = reading.state, reading.status
    if state is None:
        return
    if state.result is not None:
        yield "start"
    else:
        yield "resume" if state.job_status == JobStatus.FAILED.value else EPOCH
    if any(timeline.pending for timeline in state.timelines if timeline.timeline == state.timeline):
        yield "abort"
    yield from ("rollback", "backfill")
    if status is not None and status.head is not None:
        yield "savepoint_create"


def _page_act(job: str, what: str, suggested: SuggestedAction) -> PageAct:
    """Return an act of the page, with its fields filled in if it is the suggested one."""
    is_suggested = what == suggested.act
    if what == EPOCH:
        purpose = "Publish waiting checkpoints and read new input."
        return PageAct(_EPOCH_LABEL, purpose, epoch_dag_id(job), is_suggested=is_suggested)
    act, fields = ACTS[what], suggested.fields if is_suggested else {}
    return PageAct(act.title, act.summary, what=what, fields=fields, is_suggested=is_suggested)
