"""The acts on a job as a whole: `resume`, `cancel`, `start`, `abort`.

An approval holds for the state that the plan assumed. For all acts but `abort` this is the incarnation; `resume` also
assumes status and failure, `start` status and source, `cancel` that the job has not ended, `abort` the running epoch.
The head may move between plan and act, because the schedule continues until the plan is approved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, ActContext, ActResult, Premise, no_fields, premise, subject
from milepost.airflow.operate.field_values import ID_OR_SAVEPOINT
from milepost.airflow.operators import forms
from milepost.airflow.operators.shown_plan import ShownPlan
from milepost.codec import to_json
from milepost.errors import InvalidRequest, PlanOutdated
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster import JobMaster
    from milepost.jobspec.load import LoadedJob

SAVEPOINT, FROM = "savepoint", "from"

FAILED, ENDED = "failed", ("canceled", "finished")


def _plan_resume(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    now = premise(master, failure=True)
    idle = now.status != FAILED
    step = "it is not FAILED: there is nothing to resume" if idle else "its next epoch would run again"
    text = tuple(filter(None, (f"incarnation {now.incarnation} is {now.status}", now.failure, step)))
    return subject(master, RESUME.name).plan("resume", text, to_json(now), idle=idle)


def _resume(context: ActContext) -> ActResult:
    approved, now = context.plan.approval(Premise), premise(context.master, failure=True)
    if context.retried and (now.incarnation, now.status == FAILED) == (approved.incarnation, False):
        return ActResult("resumed", (f"an earlier try did it: the job is {now.status}",))
    approved.require(now)
    done = context.master.lifecycle.resume(context.session)
    return ActResult("resumed", (f"the job was FAILED and is {done.status}",))


def _cancel_fields(job: LoadedJob) -> dict[str, Param]:
    return {
        SAVEPOINT: forms.switch(
            False,
            "With a savepoint",
            "First save the last checkpoint of the job. If that fails, the job continues.",
        )
    }


def _plan_cancel(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    about, now, state = subject(master, CANCEL.name), premise(master), master.reports.job_state()
    dirty = state.result is not None and state.result.clean_up == "dirty"
    idle = now.status in ENDED and not dirty
    pending = next((timeline.pending for timeline in state.timelines if timeline.timeline == state.timeline), None)
    saved = "its head is saved first" if form[SAVEPOINT] else "no savepoint is created"
    text = (
        f"incarnation {now.incarnation} is {now.status}"
        + (": there is nothing to cancel" if idle else "; its clean-up is finished" if dirty else ""),
        *(
            ()
            if idle
            else (
                f"it ends at its head, now {checkpoint_name(about.checkpoint_id)}; {saved}",
                f"the running epoch, checkpoint {pending}, is aborted" if pending else "no epoch is running",
                "no epoch runs again until the job is started",
            )
        ),
    )
    return about.plan("cancel", text, to_json(_ending(now)), idle=idle)


def _ending(now: Premise) -> Premise:
    """Return what a cancel depends on: the incarnation, and whether it has ended. A running or failed epoch is fine."""
    return Premise(now.incarnation, "ended" if now.status in ENDED else "open")


def _cancel(context: ActContext) -> ActResult:
    approved, now = context.plan.approval(Premise), premise(context.master)
    if not context.retried or now.incarnation != approved.incarnation:
        approved.require(_ending(now))
    result = context.master.savepoints.cancel(
        savepoint=bool(context.form[SAVEPOINT]), session=context.session, detail=context.decided_by
    )
    saved = result.savepoint
    text = [f"savepoint {saved.name} holds checkpoint {saved.checkpoint_id}"] if saved is not None else []
    text += [f"published {line}, which was waiting" for line in result.published]
    text.append(f"incarnation {result.incarnation} is {result.status.upper()}, head {result.head or 'none'}")
    if result.aborted_checkpoint is not None:
        text.append(f"its running epoch, checkpoint {result.aborted_checkpoint}, is aborted")
    return ActResult(result.outcome, tuple(text))


def _start_fields(job: LoadedJob) -> dict[str, Param]:
    return {
        FROM: forms.optional_text(
            "From",
            "A checkpoint id, or the name of a savepoint of this job. Empty: the head at which it ended. To start from "
            "a savepoint that is stored elsewhere, use the command line.",
        )
    }


def _plan_start(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    premise_text, checkpoint_id, source = _source(master, form[FROM])
    about, now = subject(master, START.name, checkpoint_id), premise(master, premise_text)
    if now.status not in ENDED:
        raise InvalidRequest(
            f"job {about.job} is {now.status}: only a job that has ended can be started. Nothing was changed.",
            hint=f"milepost cancel {about.job} ends it first; milepost rollback {about.job} --to ID goes back",
        )
    text = (
        f"incarnation {now.incarnation} is {now.status}; incarnation {now.incarnation + 1} would begin with {source}",
        *(() if form[FROM] is None else ("every table is reconciled with it; nothing is deleted",)),
    )
    rows = {} if form[FROM] is None else {sink.name: None for sink in master.job.spec.sinks}
    return about.plan(f"start from {source}", text, to_json(now), rows=rows)


def _source(master: JobMaster, from_: str | None) -> tuple[str, int | None, str]:
    """Return the source of a start: the text of its premise, its checkpoint (None: the head), and its name."""
    if from_ is None:
        return "", None, "the head"
    if from_.isdecimal():
        target = master.rollbacks.target(from_)
        return f"from {checkpoint_name(target)}", int(target), checkpoint_name(target)
    savepoint = master.find_savepoint(from_)
    premise_text = f"from savepoint {savepoint.name} of {savepoint.created} at {savepoint.location}"
    return premise_text, savepoint.checkpoint_id, f"savepoint {savepoint.name} of checkpoint {savepoint.checkpoint_id}"


def _start(context: ActContext) -> ActResult:
    approved = context.plan.approval(Premise)
    now = premise(context.master)
    if not (context.retried and now.incarnation == approved.incarnation + 1):
        approved.require(premise(context.master, _source(context.master, context.form[FROM])[0]))
        context.master.restores.start(context.form[FROM])
    about, said = subject(context.master, START.name), context.master.triggers.open_incarnation()
    return ActResult("started", (said,), about.checkpoint_id, about.timeline, follows=context.form[FROM] is not None)


def _plan_abort(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    state = master.reports.job_state()
    pending = next((timeline.pending for timeline in state.timelines if timeline.timeline == state.timeline), None)
    about = subject(master, ABORT.name, pending or 0)
    if pending is None:
        return about.plan("abort", ("no epoch is running: there is nothing to abort",), {"pending": 0}, idle=True)
    who = state.leader.session_id if state.leader is not None else "no session"
    text = (
        f"checkpoint {pending}, which {who} runs, is aborted; that session is fenced",
        "none of its rows become visible; the next epoch reads its input again",
    )
    return about.plan(f"abort checkpoint {pending}", text, {"pending": pending})


def _abort(context: ActContext) -> ActResult:
    from milepost.jobmaster import AbortedCheckpoint

    pending = context.plan.checkpoint_id
    result = context.master.lifecycle.abort_running(
        expected=pending, session=context.session, detail=context.decided_by
    )
    if isinstance(result, AbortedCheckpoint):
        return ActResult(
            "aborted", (f"checkpoint {result.checkpoint_id} is aborted; the session that ran it is fenced",)
        )
    if context.retried and context.master.reports.show(pending).status == "aborted":
        return ActResult("aborted", (f"an earlier try did it: checkpoint {pending} is aborted",))
    raise PlanOutdated(f"checkpoint {pending} is no longer running: {result.message}. Nothing was changed.")


RESUME = Act("resume", "Resume a FAILED job", no_fields, _plan_resume, _resume)
CANCEL = Act("cancel", "Cancel: end the job", _cancel_fields, _plan_cancel, _cancel)
START = Act("start", "Start a job that has ended", _start_fields, _plan_start, _start, rules={FROM: ID_OR_SAVEPOINT})
ABORT = Act("abort", "Abort the running epoch", no_fields, _plan_abort, _abort)
