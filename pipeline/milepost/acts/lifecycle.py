"""The acts on a job as a whole: `resume`, `cancel`, `start`, `abort`.

An approval holds for the state that the plan assumed. For all acts but `abort` this is the incarnation; `resume` also
assumes status and failure, `start` status and source, `cancel` that the job has not ended, `abort` the running epoch.
The head may move between plan and act, because the schedule continues until the plan is approved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from milepost.acts.act import Act, ActContext, ActPlan, ActResult, Form, Premise, ShownPlan, premise, subject
from milepost.acts.fields import ID_OR_SAVEPOINT, Field, switch
from milepost.codec import to_json
from milepost.epoch import counted
from milepost.errors import InvalidRequest, PlanOutdated
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from milepost.jobmaster import (
        AbortedCheckpoint,
        CanceledJob,
        JobMaster,
        JobState,
        NothingAborted,
        Resumed,
        StartedFromSavepoint,
        StartedJob,
    )

SAVEPOINT, FROM, CLAIM = "savepoint", "from", "claim"

FAILED, ENDED = "failed", ("canceled", "finished")


def _plan_resume(master: JobMaster, form: Form) -> ActPlan:
    now = premise(master, failure=True)
    idle = now.status != FAILED
    step = "it is not FAILED: there is nothing to resume" if idle else "its next epoch would run again"
    text = tuple(filter(None, (f"the job is {now.status}", now.failure, step)))
    return subject(master, RESUME.name).plan("resume", text, to_json(now), idle=idle)


def _recheck_resume(context: ActContext) -> ActResult | None:
    approved, now = context.plan.approval(Premise), premise(context.master, failure=True)
    if context.retried and (now.incarnation, now.status == FAILED) == (approved.incarnation, False):
        return ActResult("resumed", (f"already done by an earlier try: the job is {now.status}",))
    approved.require(now)
    return None


def _resumed(context: ActContext, done: Resumed) -> ActResult:
    before = "was FAILED and is" if done.resumed else "was not FAILED; it is"
    return ActResult("resumed", (f"job {context.job} {before} {done.status}",))


def _pending(state: JobState) -> int | None:
    return next((timeline.pending for timeline in state.timelines if timeline.timeline == state.timeline), None)


def _plan_cancel(master: JobMaster, form: Form) -> ActPlan:
    about, now, state = subject(master, CANCEL.name), premise(master), master.reports.job_state()
    dirty = state.result is not None and state.result.clean_up == "dirty"
    idle, pending = now.status in ENDED and not dirty, _pending(state)
    saved = "its head is saved first" if form[SAVEPOINT] else "no savepoint is created"
    text = (
        f"the job is {now.status}"
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


def _recheck_cancel(context: ActContext) -> None:
    approved, now = context.plan.approval(Premise), premise(context.master)
    if not context.retried or now.incarnation != approved.incarnation:
        approved.require(_ending(now))


def _cancel(context: ActContext) -> CanceledJob:
    return context.master.savepoints.cancel(
        savepoint=context.form[SAVEPOINT], session=context.session, decision=context.decided_by
    )


def _canceled(context: ActContext, done: CanceledJob) -> ActResult:
    saved, aborted = done.savepoint, done.aborted_checkpoint
    text = [f"savepoint {saved.name} holds checkpoint {saved.checkpoint_id}"] if saved is not None else []
    text += [f"published {line}, which was waiting" for line in done.published]
    head = f"checkpoint {done.head}" if done.head is not None else "none"
    now = f"job {context.job} is {done.status.upper()}, head {head}"
    epoch = f"; its running epoch, checkpoint {aborted}, is aborted" if aborted is not None else ""
    text.append(f"{now}{epoch}" if done.outcome == "canceled" else f"nothing to cancel: {now}")
    return ActResult(done.outcome, tuple(text))


def _undo_cancel(plan: ShownPlan, result: ActResult) -> tuple[str, Form] | None:
    return (START.name, {}) if result.outcome == "canceled" else None


def _plan_start(master: JobMaster, form: Form) -> ActPlan:
    premise_text, checkpoint_id, source = _source(master, form[FROM])
    about, now = subject(master, START.name, checkpoint_id), premise(master, premise_text)
    if now.status not in ENDED:
        raise InvalidRequest(
            f"job {about.job} is {now.status}: only a job that has ended can be started. Nothing was changed.",
            hint=f"milepost cancel {about.job} ends it first; milepost rollback {about.job} --to ID goes back",
        )
    text = (
        f"the job is {now.status}; it would start again with {source}",
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


def _recheck_start(context: ActContext) -> ActResult | None:
    master, from_, approved = context.master, context.form[FROM], context.plan.approval(Premise)
    if context.retried and premise(master).incarnation == approved.incarnation + 1:
        about, said = subject(master, START.name), master.triggers.open_incarnation()
        return ActResult("started", (said,), about.checkpoint_id, about.timeline, follows=from_ is not None)
    approved.require(premise(master, _source(master, from_)[0]))
    return None


def _started(context: ActContext, done: StartedJob) -> ActResult:
    from milepost.jobmaster import StartedFromSavepoint

    job, text = context.job, list[str]()
    if isinstance(done, StartedFromSavepoint):
        text += _restored(job, done)
    elif done.outcome != "started":
        text.append(f"nothing to start: job {job} is {done.job_status}")
    else:
        if done.rolled_back_from is not None:
            text.append(f"job {job} is back at {checkpoint_name(done.head or 0)}, on timeline {done.timeline}")
        text.append(f"job {job}: {context.master.triggers.open_incarnation()}")
    return ActResult(done.outcome, tuple(text), done.head or 0, done.timeline, context.form[FROM] is not None)


def _restored(job: str, done: StartedFromSavepoint) -> Iterator[str]:
    """Describe a start from a savepoint."""
    saved, claimed = done.savepoint, done.claimed
    yield (
        f"job {job} is started at checkpoint {done.head}, a copy of checkpoint "
        f"{saved.checkpoint_id} of job {saved.job} ({counted(saved.objects, 'object')}, {counted(saved.bytes, 'byte')})"
    )
    for name in saved.not_restored:
        yield f"note: the savepoint has a table of sink {name}, which the spec does not have: it was not restored"
    if claimed is None:
        yield f"The savepoint at {saved.location} is still yours: the job does not depend on it."
        return
    if claimed.left:
        yield f"at {claimed.location}: {claimed.left}"
    if claimed.listed_by:
        yield (
            f"note: if job {claimed.listed_by} lists this savepoint, its objects no longer exist. To check, run "
            f"`milepost savepoint list {claimed.listed_by}`; `milepost savepoint dispose` removes it from the list"
        )
    yield f"the savepoint was claimed; deleted: {counted(claimed.deleted_objects, 'object')}"


def _plan_abort(master: JobMaster, form: Form) -> ActPlan:
    state = master.reports.job_state()
    pending = _pending(state)
    about = subject(master, ABORT.name, pending or 0)
    if pending is None:
        return about.plan("abort", ("no epoch is running: there is nothing to abort",), {"pending": 0}, idle=True)
    who = state.leader.session_id if state.leader is not None else "no session"
    text = (
        f"checkpoint {pending}, which {who} runs, is aborted; that session is fenced",
        "none of its rows become visible; the next epoch reads its input again",
    )
    return about.plan(f"abort checkpoint {pending}", text, {"pending": pending})


def _recheck_abort(context: ActContext) -> ActResult | None:
    pending = context.plan.checkpoint_id
    if context.retried and context.master.reports.show(pending).status == "aborted":
        return ActResult("aborted", (f"already done by an earlier try: checkpoint {pending} is aborted",))
    return None


def _abort(context: ActContext) -> AbortedCheckpoint | NothingAborted:
    """Abort the epoch of the plan; without one, any that runs."""
    from milepost.jobmaster import AbortedCheckpoint

    expected = None if context.approved is None else context.approved.checkpoint_id
    done = context.master.lifecycle.abort_running(
        expected=expected, session=context.session, decision=context.decided_by
    )
    if expected is None or isinstance(done, AbortedCheckpoint):
        return done
    raise PlanOutdated(f"checkpoint {expected} is no longer running: {done.message}. Nothing was changed.")


def _aborted(context: ActContext, done: AbortedCheckpoint | NothingAborted) -> ActResult:
    from milepost.jobmaster import AbortedCheckpoint

    if not isinstance(done, AbortedCheckpoint):
        return ActResult(done.outcome, (f"nothing to abort: {done.message}",))
    said = f"checkpoint {done.checkpoint_id} is aborted ({done.reason}); the session that ran it is fenced"
    return ActResult("aborted", (said,))


RESUME = Act(
    "resume",
    "Resume a FAILED job",
    "Clear a job's FAILED state after its cause is fixed.",
    (),
    _plan_resume,
    lambda context: context.master.lifecycle.resume(context.session, decision=context.decided_by),
    _resumed,
    recheck=_recheck_resume,
)
CANCEL = Act(
    "cancel",
    "Cancel: end the job",
    "End the job: abort its epoch and publish completed checkpoints. No epoch runs until `start`.",
    (switch(SAVEPOINT, "First save the last checkpoint. If that fails, the job continues.", "With a savepoint"),),
    _plan_cancel,
    _cancel,
    _canceled,
    recheck=_recheck_cancel,
    undo=_undo_cancel,
)
START = Act(
    "start",
    "Start a job that has ended",
    "Start a job that has ended again, or start a new job from a savepoint.",
    (
        Field(
            FROM,
            ID_OR_SAVEPOINT,
            "A checkpoint id of this job, or the name of one of its savepoints. Default: the head. The command line "
            "also takes the location of any savepoint: a URL, or a path that contains a / and is relative to the spec.",
            "From",
        ),
        switch(
            CLAIM,
            "Take ownership of the savepoint: it is deleted after the restore, and the job adopts existing tables of "
            "the savepoint's job at the paths of its sinks, and the replication slots of its Postgres sources.",
        ),
    ),
    _plan_start,
    lambda context: context.master.restores.start(
        context.form[FROM], claim=context.form[CLAIM], session=context.session, decision=context.decided_by
    ),
    _started,
    recheck=_recheck_start,
)
ABORT = Act(
    "abort",
    "Abort the running epoch",
    "Abort the running epoch. None of its rows become visible; the next epoch reads its input again.",
    (),
    _plan_abort,
    _abort,
    _aborted,
    recheck=_recheck_abort,
)
