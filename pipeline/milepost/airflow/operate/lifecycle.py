"""The acts about a job as a whole: `resume`, `cancel`, `start`, `abort`.

What is approved is one state of the job: its incarnation, its status, why it failed, the epoch that runs. The head may
move meanwhile, where the plan says so: a schedule goes on while a person thinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, Doing, Done, Premise, no_fields, premise, subject
from milepost.airflow.operate.field_values import ID_OR_SAVEPOINT
from milepost.airflow.operators import forms
from milepost.airflow.operators.planned import ShownPlan
from milepost.codec.records import to_json
from milepost.errors import InvalidRequest, PlanOutdated
from milepost.protocol.records.ids import checkpoint_name

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster.jobmaster import JobMaster
    from milepost.jobspec.load.load import LoadedJob

SAVEPOINT, FROM = "savepoint", "from"

FAILED, ENDED = "failed", ("canceled", "finished")


def _plan_resume(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    now = premise(master, failure=True)
    idle = now.status != FAILED
    step = "it is not FAILED: there is nothing to resume" if idle else "it would run again with its next epoch"
    text = tuple(filter(None, (f"incarnation {now.incarnation} is {now.status}", now.failure, step)))
    return subject(master, RESUME.name).plan("resume", text, to_json(now), idle=idle)


def _resume(doing: Doing) -> Done:
    approved, now = doing.plan.approval(Premise), premise(doing.master, failure=True)
    if doing.retried and (now.incarnation, now.status == FAILED) == (approved.incarnation, False):
        return Done("resumed", (f"an earlier try did it: the job is {now.status}",))
    approved.require(now)
    done = doing.master.resume(doing.session)
    return Done("resumed", (f"the job was FAILED and is {done.status}",))


def _cancel_fields(job: LoadedJob) -> dict[str, Param]:
    return {
        SAVEPOINT: forms.switch(
            False, "With a savepoint", "First save the checkpoint that the job ends at; if that fails, the job goes on."
        )
    }


def _plan_cancel(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    about, now, state = subject(master, CANCEL.name), premise(master), master.job_state()
    dirty = state.result is not None and state.result.clean_up == "dirty"
    idle = now.status in ENDED and not dirty
    pending = next((one.pending for one in state.timelines if one.timeline == state.timeline), None)
    saved = "its head is saved first" if form[SAVEPOINT] else "no savepoint is made"
    text = (
        f"incarnation {now.incarnation} is {now.status}"
        + (": there is nothing to cancel" if idle else "; what its end left is finished" if dirty else ""),
        *(
            ()
            if idle
            else (
                f"it ends at the head of that moment, {checkpoint_name(about.checkpoint_id)} now; {saved}",
                f"the running epoch, checkpoint {pending}, is given up" if pending else "no epoch runs",
                "no epoch runs again until the job is started",
            )
        ),
    )
    return about.plan("cancel", text, to_json(_ending(now)), idle=idle)


def _ending(now: Premise) -> Premise:
    """Return what a cancel depends on: which incarnation ends. Whether an epoch runs, or failed, does not matter."""
    return Premise(now.incarnation, "ended" if now.status in ENDED else "open")


def _cancel(doing: Doing) -> Done:
    approved, now = doing.plan.approval(Premise), premise(doing.master)
    if not doing.retried or now.incarnation != approved.incarnation:
        approved.require(_ending(now))
    result = doing.master.cancel(savepoint=bool(doing.form[SAVEPOINT]), session=doing.session, detail=doing.decided_by)
    saved = result.savepoint
    text = [f"savepoint {saved.name} holds checkpoint {saved.checkpoint_id}"] if saved is not None else []
    text += [f"published {line}, which had waited" for line in result.published]
    text.append(f"incarnation {result.incarnation} is {result.status.upper()}, head {result.head or 'none'}")
    if result.aborted_checkpoint is not None:
        text.append(f"its running epoch, checkpoint {result.aborted_checkpoint}, is given up")
    return Done(result.outcome, tuple(text))


def _start_fields(job: LoadedJob) -> dict[str, Param]:
    return {
        FROM: forms.optional_text(
            "From",
            "A checkpoint id, or the name of a savepoint of this job. Empty: the head at which it ended. A savepoint "
            "that lies elsewhere takes the command line.",
        )
    }


def _plan_start(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    place, checkpoint_id, source = _source(master, form[FROM])
    about, now = subject(master, START.name, checkpoint_id), premise(master, place)
    if now.status not in ENDED:
        raise InvalidRequest(
            f"job {about.job} is {now.status}: only a job that has ended is started. Nothing was changed.",
            hint=f"milepost cancel {about.job} ends it first; milepost rollback {about.job} --to ID goes back",
        )
    text = (
        f"incarnation {now.incarnation} is {now.status}; incarnation {now.incarnation + 1} would begin with {source}",
        *(() if form[FROM] is None else ("every table follows; nothing is deleted",)),
    )
    rows = {} if form[FROM] is None else {sink.name: None for sink in master.job.spec.sinks}
    return about.plan(f"start from {source}", text, to_json(now), rows=rows)


def _source(master: JobMaster, from_: str | None) -> tuple[str, int | None, str]:
    """Return what a start begins with: what must not change of it, its checkpoint, and how it is called."""
    if from_ is None:
        return "", None, "the head"
    if from_.isdecimal():
        target = master.rollback_target(from_)
        return f"from {checkpoint_name(target)}", int(target), checkpoint_name(target)
    found = master.find_savepoint(from_)
    place = f"from savepoint {found.name} of {found.created} at {found.location}"
    return place, found.checkpoint_id, f"savepoint {found.name} of checkpoint {found.checkpoint_id}"


def _start(doing: Doing) -> Done:
    approved = doing.plan.approval(Premise)
    now = premise(doing.master)
    if not (doing.retried and now.incarnation == approved.incarnation + 1):
        approved.require(premise(doing.master, _source(doing.master, doing.form[FROM])[0]))
        doing.master.start(doing.form[FROM])
    about, said = subject(doing.master, START.name), doing.master.open_incarnation()
    return Done("started", (said,), about.checkpoint_id, about.timeline, follows=doing.form[FROM] is not None)


def _plan_abort(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    state = master.job_state()
    pending = next((one.pending for one in state.timelines if one.timeline == state.timeline), None)
    about = subject(master, ABORT.name, pending or 0)
    if pending is None:
        return about.plan("abort", ("no epoch runs: there is nothing to abort",), {"pending": 0}, idle=True)
    who = state.leader.session_id if state.leader is not None else "nobody"
    text = (
        f"checkpoint {pending}, which {who} runs, is given up; that session is fenced",
        "nothing of it becomes visible; the next epoch takes up its input",
    )
    return about.plan(f"abort checkpoint {pending}", text, {"pending": pending})


def _abort(doing: Doing) -> Done:
    from milepost.jobmaster.jobmaster import AbortedCheckpoint

    pending = doing.plan.checkpoint_id
    result = doing.master.abort_running(expected=pending, session=doing.session, detail=doing.decided_by)
    if isinstance(result, AbortedCheckpoint):
        return Done("aborted", (f"checkpoint {result.checkpoint_id} is aborted; the session that ran it is fenced",))
    if doing.retried and doing.master.show(pending).status == "aborted":
        return Done("aborted", (f"an earlier try did it: checkpoint {pending} is aborted",))
    raise PlanOutdated(f"checkpoint {pending} does not run any more: {result.message}. Nothing was changed.")


RESUME = Act("resume", "Resume a FAILED job", no_fields, _plan_resume, _resume)
CANCEL = Act("cancel", "Cancel: end the job", _cancel_fields, _plan_cancel, _cancel)
START = Act("start", "Start a job that has ended", _start_fields, _plan_start, _start, takes={FROM: ID_OR_SAVEPOINT})
ABORT = Act("abort", "Abort the running epoch", no_fields, _plan_abort, _abort)
