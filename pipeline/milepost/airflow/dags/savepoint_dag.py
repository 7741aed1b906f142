"""The DAG `<job>__savepoint`: make a savepoint of a completed checkpoint, or dispose of one.

Form values are not trusted: a savepoint made here lies below the job's own storage. To write one elsewhere, with the
worker's rights, takes the command line.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from milepost.airflow.dags.dag_settings import form_dag
from milepost.airflow.operators import forms
from milepost.airflow.operators.base import JobOperator
from milepost.airflow.operators.job_specs import savepoint_dag_id, spec_as_docs
from milepost.airflow.task_output.outcome import Reaction
from milepost.protocol.records.errors import CommitConflict, InvalidRequest, NotFound
from milepost.spec.load.load import LoadedJob

if TYPE_CHECKING:
    from airflow.sdk import Context

    from milepost.jobmaster.jobmaster import JobMaster

log = logging.getLogger(__name__)

CREATE = "create_savepoint"
DISPOSE = "dispose_savepoint"

ACTION = "action"
NAME = "name"
AT = "at"
CREATING, DISPOSING = "create", "dispose"


def savepoint_dag(job: LoadedJob) -> DAG:
    """Return the DAG `<job>__savepoint`; each run does the one of its two tasks that the form names."""
    name, path = job.spec.name, str(job.path)
    with form_dag(
        job,
        savepoint_dag_id(name),
        f"Make a savepoint of {name}, or dispose of one",
        _DOC.format(name=name),
        _form(),
    ) as dag:
        CreateSavepointOperator(task_id=CREATE, spec_path=path, **spec_as_docs(job))
        DisposeSavepointOperator(task_id=DISPOSE, spec_path=path)
    return dag


class SavepointOperator(JobOperator):
    """Base of the two: skips itself unless the form asks for it."""

    if_busy = Reaction.FAIL
    action = ""

    def act(self, context: Context) -> Any:
        form = dict(context["params"])
        if form[ACTION] != self.action:
            raise AirflowSkipException(f"the form asks to {form[ACTION]} a savepoint")
        return self.done(self.jobmaster(), form)

    def done(self, master: JobMaster, form: dict[str, Any]) -> dict[str, Any]:
        """Do it. Returns what was done, small enough for an XCom."""
        raise TypeError(f"{type(self).__name__} must define done()")


class CreateSavepointOperator(SavepointOperator):
    """Copies a completed checkpoint and all tables as of it, and lists the copy as a savepoint."""

    action = CREATING

    def done(self, master: JobMaster, form: dict[str, Any]) -> dict[str, Any]:
        checkpoint_id = form[AT] if form[AT] is not None else master.status().head
        if checkpoint_id is None:
            raise NotFound(
                f"job {master.job.spec.name} has no completed checkpoint yet: there is nothing to save. "
                "Nothing was written."
            )
        shown = master.show(checkpoint_id)
        self.say_for_whom(checkpoint_id, str(shown.timeline), "none" if shown.leader is None else shown.leader.token)
        try:
            made = master.create_savepoint(form[NAME], at=checkpoint_id)
        except CommitConflict as taken:  # asking again would find the same
            raise AirflowFailException(taken.message) from taken
        log.info(
            "savepoint %s of checkpoint %d: %s objects, %s bytes below %s",
            made.name,
            checkpoint_id,
            made.objects,
            made.bytes,
            made.location,
        )
        return {"name": made.name, "checkpoint_id": checkpoint_id, "location": made.location}


class DisposeSavepointOperator(SavepointOperator):
    """Takes a savepoint off the list, and deletes what it had copied."""

    action = DISPOSING

    def done(self, master: JobMaster, form: dict[str, Any]) -> dict[str, Any]:
        name = form[NAME]
        if name is None or form[AT] is not None:
            raise InvalidRequest(
                "to dispose of a savepoint expected its name and no checkpoint id, "
                f"got name {name!r} and checkpoint {form[AT]!r}. Nothing was changed."
            )
        found = master.find_savepoint(name)
        self.say_for_whom(found.checkpoint_id, str(found.timeline))
        gone = master.dispose_savepoint(name)
        log.info("savepoint %s is gone: %s objects deleted", name, gone.deleted_objects)
        if gone.left:
            log.warning("%s", gone.left)
        return {"name": name, "checkpoint_id": gone.checkpoint_id}


def _form() -> dict[str, Param]:
    return {
        ACTION: forms.choice([CREATING, DISPOSING], "What", "Make a savepoint, or dispose of one and its copy."),
        NAME: forms.optional_text(
            "Name",
            "Of the savepoint: a-z, 0-9, _ and -, not digits alone. Empty: a new one is named after its checkpoint.",
            forms.SAVEPOINT_NAME_PATTERN,
        ),
        AT: forms.optional_id(
            "Checkpoint", "A new savepoint is made of this retained checkpoint. Empty: of the head.", lowest=1
        ),
    }


_DOC = """### {name}: savepoint

A savepoint is a self-contained copy of a completed checkpoint and of all tables as of it. It belongs to you: no
retention takes it, and `milepost start {name} --from NAME` continues from it. Made here it lies below the job's own
storage; the command line also writes it elsewhere.
"""
