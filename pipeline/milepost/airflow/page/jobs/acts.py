"""Acts: what a person may do about a job in its standing, as forms of Airflow's own. No page acts by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from milepost.airflow.operate.registry import ACTS
from milepost.airflow.operators.forms import WHAT
from milepost.airflow.operators.job_specs import epoch_dag_id, operate_dag_id
from milepost.airflow.page.jobs.job_page import JobPage
from milepost.jobmaster.jobmaster import Status
from milepost.protocol.records.manifest_state import JobStatus


@dataclass(frozen=True, slots=True)
class PageAct:
    """Something that a person may do.

    Attributes:
        dag_id: whose form does it. values: of the form's fields; {} for its presets. first: it is the next step.
    """

    label: str
    dag_id: str
    purpose: str
    values: Mapping[str, str] = field(default_factory=dict)
    first: bool = False


def acts_of(at: JobPage, status: Status) -> list[PageAct]:
    """Return what may be done about a job, the next step first.

    A job whose tasks lie in a DAG of others has no forms of its own there: of its epochs there is only that DAG.
    """
    if not at.dag_id.startswith(f"{at.name}__"):
        return [PageAct("Run an epoch", at.dag_id, "this DAG has the job's tasks", first=_wants_epoch(status))]
    return sorted(_acts(at.name, status), key=lambda act: not act.first)


def _acts(job: str, status: Status) -> Iterator[PageAct]:
    failed = status.job_status == JobStatus.FAILED.value
    if status.result is not None:
        yield _act(job, "start", "opens the next incarnation, which continues the head", first=True)
    elif failed:
        yield _act(job, "resume", "once the cause of the failure is mended", first=True)
    else:
        purpose = "publishes what waits and reads what is unread"
        yield PageAct("Run an epoch", epoch_dag_id(job), purpose, first=_wants_epoch(status))
    if status.pending is not None:
        yield _act(job, "abort", f"gives up checkpoint {status.pending}: nothing of it becomes visible")
    yield _act(job, "rollback", "state, positions and every table return to a checkpoint; a plan comes first")
    yield _act(job, "backfill", "reads recorded input again with today's code, beside the schedule")
    if status.head is not None:
        yield _act(job, "savepoint_create", "a copy of a checkpoint that is yours and is never dropped")


def _act(job: str, name: str, purpose: str, *, first: bool = False) -> PageAct:
    """Return an act of the job's one form, by its name there."""
    return PageAct(ACTS[name].title, operate_dag_id(job), purpose, {WHAT: name}, first)


def _wants_epoch(status: Status) -> bool:
    """Say whether the next step is an epoch."""
    if status.job_status == JobStatus.FAILED.value or status.result is not None or status.spec_refused is not None:
        return False
    waits = status.reconciling or status.unconfirmed or status.lease_over
    return bool(waits or status.last_failure or status.unread_objects)
