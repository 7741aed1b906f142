"""The maintenance acts: `realign` a table, `verify`, `fsck`, `gc`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, ActContext, ActResult, no_fields, subject
from milepost.airflow.operate.field_values import checkpoint_from
from milepost.airflow.operators import forms
from milepost.airflow.operators.shown_plan import ShownPlan
from milepost.epoch import counted
from milepost.errors import PlanOutdated, StateCorrupt
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster import Collection, JobMaster, RealignmentPlan
    from milepost.jobspec.load import LoadedJob

SINK, CHECKPOINT, DEEP = "sink", "checkpoint", "deep"

_SHOWN = 20


def _realign_fields(job: LoadedJob) -> dict[str, Param]:
    names = [sink.name for sink in job.spec.sinks]
    return {SINK: forms.optional_choice(names, "Sink", "Sink whose table is set back to the job's head.")}


def _plan_realign(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    plan = master.realignments.plan(form[SINK])
    said = f"realign sink {plan.sink} with {checkpoint_name(plan.head)}"
    rows = {plan.sink: plan.rows_then}
    about = subject(master, REALIGN.name, plan.head)
    return about.plan(said, plan.text, _approved(plan), idle=plan.fault is None, rows=rows)


def _approved(plan: RealignmentPlan) -> dict[str, object]:
    return {"sink": plan.sink, "head": plan.head, "position": plan.position}


def _realign(context: ActContext) -> ActResult:
    plan, sink = context.master.realignments.plan(context.form[SINK]), context.form[SINK]
    if plan.fault is None and context.retried and plan.head == context.plan.checkpoint_id:
        said = f"an earlier try did it: sink {sink} shows {checkpoint_name(plan.head)}"
        return ActResult("realigned", (said,), plan.head, context.plan.timeline, follows=True)
    if _approved(plan) != dict(context.plan.approved):
        raise PlanOutdated(f"then: {dict(context.plan.approved)}; now: {_approved(plan)}. Nothing was changed.")
    done = context.master.realignments.run(context.session, plan, detail=context.decided_by)
    said = f"sink {sink} shows {checkpoint_name(done.checkpoint_id)} again"
    return ActResult(done.outcome, (said,), done.checkpoint_id, context.plan.timeline, follows=True)


def _verify_fields(job: LoadedJob) -> dict[str, Param]:
    return {
        CHECKPOINT: forms.optional_id("Checkpoint", "Empty: all that are retained."),
        DEEP: forms.switch(False, "Deep", "Read and decode every object, instead of only checking that it exists."),
    }


def _plan_verify(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    which = "all that are retained" if form[CHECKPOINT] is None else str(form[CHECKPOINT])
    how = "every object is read and decoded" if form[DEEP] else "every object is checked for existence and size"
    text = (f"checkpoints: {which}", f"{how}; nothing is changed")
    return subject(master, VERIFY.name, form[CHECKPOINT]).plan(f"verify {which}", text, {})


def _verify(context: ActContext) -> ActResult:
    result = context.master.reports.verify(context.form[CHECKPOINT], bool(context.form[DEEP]))
    checkpoints = ", ".join(map(str, result.checkpoints)) or "none"
    checked = (
        "all present, with the recorded checksums" if context.form[DEEP] else "all present, with the recorded sizes"
    )
    said = f"checkpoints {checkpoints}: {counted(result.objects, 'object')}, {checked}"
    discarded = [f"of a discarded checkpoint, not needed: {line}" for line in result.discarded]
    return ActResult("whole", (said, *discarded, *(f"not checked: {line}" for line in result.unasked)))


def _plan_fsck(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    text = ("checks that every object that a checkpoint, a savepoint or a table needs exists; nothing is changed",)
    return subject(master, FSCK.name).plan("fsck", text, {})


def _fsck(context: ActContext) -> ActResult:
    report = context.master.reports.fsck()
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in report.objects.items())
    text = [f"walked: {', '.join(report.roots)}", f"objects: {counts}"]
    missing = [f"missing: {entry.where}: {entry.key}: {entry.problem}" for entry in report.missing]
    unasked = [f"not checked: {line}" for line in report.unasked]
    for line in [*text, *(f"damaged: {line}" for line in report.damaged), *missing, *unasked]:
        context.say(line)
    if report.exit_code:
        job = report.job
        damaged = counted(len(report.damaged), "damaged object")
        raise StateCorrupt(
            f"job {job}: {damaged}, {counted(len(report.missing), 'missing object')}: "
            f"{'; '.join([*report.damaged, *missing][:3])}. Nothing was changed.",
            hint=f"milepost verify {job} --deep lists the damaged objects and the checkpoints that need them",
        )
    return ActResult("whole", (f"nothing is missing; unreachable: {counted(len(report.unreachable), 'object')}",))


def _plan_gc(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    preview = master.collect_garbage(dry_run=True)
    lists = (preview.due, preview.probes, preview.vetoes, preview.staged, *(table.due for table in preview.tables))
    due = [name for names in lists for name in names]
    listed = len(preview.listed) + sum(len(table.listed) for table in preview.tables)
    text = (
        f"deleted now: {len(due)}",
        *due[:_SHOWN],
        *((f"and {len(due) - _SHOWN} more",) if len(due) > _SHOWN else ()),
        f"newly listed as garbage, to be deleted after {preview.grace_ms / 3_600_000:.1f} h: {listed}",
        "the act deletes what is provably unreachable when it runs, so it may delete more than this",
    )
    idle = not (due or listed or preview.compactable_entries)
    return subject(master, GC.name).plan("collect garbage", text, {}, idle=idle)


def _gc(context: ActContext) -> ActResult:
    done: Collection = context.master.collect_garbage()
    deleted = f"{counted(done.deleted_objects, 'object')}, {counted(done.pruned_files, 'published file')}"
    return ActResult("collected", (f"deleted: {deleted}",))


REALIGN = Act("realign", "Realign a table with the head", _realign_fields, _plan_realign, _realign, required=(SINK,))
VERIFY = Act(
    "verify",
    "Verify checkpoints",
    _verify_fields,
    _plan_verify,
    _verify,
    rules={CHECKPOINT: checkpoint_from(1)},
    needs_approval=False,
)
FSCK = Act("fsck", "Fsck: what is missing or unreachable", no_fields, _plan_fsck, _fsck, needs_approval=False)
GC = Act("gc", "Collect garbage", no_fields, _plan_gc, _gc)
