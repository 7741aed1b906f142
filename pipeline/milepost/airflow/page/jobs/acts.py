"""The acts that a page offers for a job's current state, as buttons that trigger a run and links to forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from milepost.acts import ACTS, ROLLBACK, TO
from milepost.airflow.operators import forms
from milepost.airflow.operators.dag_ids import epoch_dag_id, is_own_dag, operate_dag_id
from milepost.airflow.page.frame.access import Rights
from milepost.airflow.page.frame.api_calls import ApiCall, trigger_call
from milepost.airflow.page.frame.rendering import Links
from milepost.airflow.page.jobs.job_reader import JobReading
from milepost.airflow.page.jobs.suggested_action import EPOCH, SuggestedAction
from milepost.errors import StateCorrupt
from milepost.jobmaster import Condition
from milepost.protocol.records import JobStatus


@dataclass(frozen=True, slots=True)
class PageAct:
    """An act that a page offers.

    Attributes:
        job: name of the job. page_dag_id: the DAG in the URLs of its pages. dag_id: the DAG to trigger.
        what: name of the act in the form; "" for an epoch. fields: values of its fields, by their short names.
        is_own_dag: whether `dag_id` has the job's tasks only. A user's DAG is triggered on Airflow's page.
        is_suggested: whether it is the suggested action. is_enough: as in `SuggestedAction`.
    """

    job: str
    page_dag_id: str
    dag_id: str
    label: str
    purpose: str
    what: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    is_own_dag: bool = True
    is_suggested: bool = False
    is_enough: bool = True

    @property
    def is_first(self) -> bool:
        """Whether pages emphasize its button."""
        return self.is_suggested and self.is_enough

    @property
    def conf(self) -> dict[str, object]:
        """The configuration of the run that carries it out."""
        act = ACTS.get(self.what)
        if act is None:
            return {}
        return {forms.WHAT: self.what} | {act.form_name(name): value for name, value in self.fields.items()}

    @property
    def has_options(self) -> bool:
        """Whether the form of the act has fields that the button leaves at their defaults."""
        return bool(self.what) and bool(ACTS[self.what].form_fields)

    def request(self, links: Links) -> ApiCall | None:
        """Return the request that triggers the run; None if values must be chosen first, or on Airflow's page."""
        if not self.is_own_dag or (self.what and not ACTS[self.what].is_complete(self.fields)):
            return None
        return trigger_call(links, self.dag_id, self.job, self.conf)

    def page(self, links: Links) -> str:
        """Return the URL of the page where the values of the act are chosen."""
        if self.what == ROLLBACK.name and not self.fields:
            return links.job(self.page_dag_id, self.job, "rewind")
        return links.form(self.job, self.what, **self.fields) if self.what else links.dag(self.dag_id)


_EPOCH_LABEL = "Run an epoch"
_OFFERED = (EPOCH, "start", "resume", "cancel", "abort", "rollback", "backfill", "savepoint_create", "verify")
"""`EPOCH`, and the names of the acts in the form that a page may offer, in the order of the page."""


def allowed_acts(reading: JobReading, rights: Rights) -> list[PageAct]:
    """Return the offered acts that the user may trigger."""
    return [act for act in offered_acts(reading) if rights.may_trigger(act.dag_id)]


def offered_acts(reading: JobReading) -> list[PageAct]:
    """Return the acts that a job's state allows, the suggested one first.

    A job with tasks in a user's DAG (`MilepostTaskGroup`) has no form. The only act is to trigger that DAG.
    """
    name, dag_id, suggested = reading.job.loaded.spec.name, reading.job.dag_id, reading.action
    if not is_own_dag(name, dag_id):
        purpose, is_suggested = "This DAG has the job's tasks.", suggested.act == EPOCH
        return [PageAct(name, dag_id, dag_id, _EPOCH_LABEL, purpose, is_own_dag=False, is_suggested=is_suggested)]
    names = {*_acts_for_state(reading), *filter(None, [suggested.act])}
    acts = [_page_act(name, dag_id, what, suggested) for what in _OFFERED if what in names]
    return sorted(acts, key=lambda act: not act.is_suggested)


def _acts_for_state(reading: JobReading) -> Iterator[str]:
    """Yield the names of the acts that the page offers in this state, besides those it suggests."""
    state, status = reading.state, reading.status
    if state is None:
        return
    if state.result is not None:
        yield "start"
    elif state.job_status == JobStatus.FAILED.value:
        yield "resume"
    elif not isinstance(reading.error, StateCorrupt) and (status is None or status.condition is not Condition.RUNNING):
        yield EPOCH  # no epoch can continue a damaged head, and a running one needs no second trigger
    if any(timeline.pending for timeline in state.timelines if timeline.timeline == state.timeline):
        yield "abort"
    yield from ("rollback", "backfill")
    if status is not None and status.head is not None:
        yield "savepoint_create"


def _page_act(job: str, page_dag_id: str, what: str, suggested: SuggestedAction) -> PageAct:
    """Return an act of the page, with its fields filled in if it is the suggested one."""
    is_suggested = what == suggested.act
    if what == EPOCH:
        purpose = "Publish waiting checkpoints and read new input."
        return PageAct(job, page_dag_id, epoch_dag_id(job), _EPOCH_LABEL, purpose, is_suggested=is_suggested)
    act, fields, dag_id = ACTS[what], suggested.fields if is_suggested else {}, operate_dag_id(job)
    label = f"Roll back to checkpoint {fields[TO]}" if what == ROLLBACK.name and TO in fields else act.title
    is_enough = suggested.is_enough or not is_suggested
    return PageAct(
        job, page_dag_id, dag_id, label, act.summary, what, fields, is_suggested=is_suggested, is_enough=is_enough
    )
