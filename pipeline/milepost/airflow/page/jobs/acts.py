"""Acts: what a person may do about a job in its standing, as forms of Airflow's own. No page acts by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from milepost.airflow.operate.registry import ACTS
from milepost.airflow.operators.job_specs import epoch_dag_id
from milepost.airflow.page.jobs.next_step import EPOCH, NextStep
from milepost.airflow.page.jobs.readings import Reading
from milepost.protocol.records.manifest_state import JobStatus


@dataclass(frozen=True, slots=True)
class PageAct:
    """Something that a person may do.

    Attributes:
        dag_id: of a DAG that does it when it is triggered; "" of an act of the job's form.
        what: that act, by its name there. fields: of it, by their short names. first: it is the next step.
    """

    label: str
    purpose: str
    dag_id: str = ""
    what: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    first: bool = False


_PURPOSES = {
    EPOCH: "publishes what waits and reads what is unread",
    "start": "opens the next incarnation, which continues the head",
    "resume": "once the cause of the failure is mended",
    "cancel": "ends the job, and finishes the clean-up of an end",
    "abort": "gives up the epoch that runs: nothing of it becomes visible",
    "rollback": "state, positions and every table return to a checkpoint; a plan comes first",
    "backfill": "reads recorded input again with today's code, beside the schedule",
    "savepoint_create": "a copy of a checkpoint that is yours and is never dropped",
    "verify": "reads every object that a checkpoint refers to, and changes nothing",
}
"""Act, by its name in the form, or `EPOCH` -> what it is for, in the order of a page."""


def acts_of(reading: Reading) -> list[PageAct]:
    """Return what may be done about a job, the next step first.

    A job whose tasks lie in a DAG of others has no forms of its own there: of its epochs there is only that DAG.
    """
    name, dag_id, step = reading.job.loaded.spec.name, reading.job.dag_id, reading.step
    if not dag_id.startswith(f"{name}__"):
        return [PageAct("Run an epoch", "this DAG has the job's tasks", dag_id, first=step.act == EPOCH)]
    offered = {*_usual(reading), *filter(None, [step.act])}
    acts = [_act(name, what, step) for what in _PURPOSES if what in offered]
    return sorted(acts, key=lambda act: not act.first)


def _usual(reading: Reading) -> Iterator[str]:
    """Yield what may be done about any job, and what fits what is known of this one."""
    state, status = reading.state, reading.status
    if state is None:
        return
    if state.result is not None:
        yield "start"
    else:
        yield "resume" if state.job_status == JobStatus.FAILED.value else EPOCH
    if any(one.pending for one in state.timelines if one.timeline == state.timeline):
        yield "abort"
    yield from ("rollback", "backfill")
    if status is not None and status.head is not None:
        yield "savepoint_create"


def _act(job: str, what: str, step: NextStep) -> PageAct:
    """Return an act; the one of the step is the first, with its fields."""
    first = what == step.act
    if what == EPOCH:
        return PageAct("Run an epoch", _PURPOSES[EPOCH], epoch_dag_id(job), first=first)
    return PageAct(ACTS[what].title, _PURPOSES[what], what=what, fields=step.fields if first else {}, first=first)
