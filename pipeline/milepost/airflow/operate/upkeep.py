"""The acts that look after what is stored: `realign` a table, `verify`, `fsck`, `gc`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.act import Act, Doing, Done, no_fields, subject
from milepost.airflow.operate.field_values import checkpoint_from
from milepost.airflow.operators import forms
from milepost.airflow.operators.planned import ShownPlan
from milepost.epoch.quantities import counted
from milepost.errors import PlanOutdated, StateCorrupt
from milepost.protocol.records.ids import checkpoint_name

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster.jobmaster import Collection, JobMaster, RealignmentPlan
    from milepost.jobspec.load.load import LoadedJob

SINK, CHECKPOINT, DEEP = "sink", "checkpoint", "deep"

_SHOWN = 20


def _realign_fields(job: LoadedJob) -> dict[str, Param]:
    names = [sink.name for sink in job.spec.sinks]
    return {SINK: forms.optional_choice(names, "Sink", "Whose table shows again what the job's head says.")}


def _plan_realign(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    plan = master.plan_realign(form[SINK])
    said = f"realign sink {plan.sink} with {checkpoint_name(plan.head)}"
    rows = {plan.sink: plan.rows_then}
    about = subject(master, REALIGN.name, plan.head)
    return about.plan(said, plan.text, _found(plan), idle=plan.fault is None, rows=rows)


def _found(plan: RealignmentPlan) -> dict[str, object]:
    return {"sink": plan.sink, "head": plan.head, "position": plan.position}


def _realign(doing: Doing) -> Done:
    plan, sink = doing.master.plan_realign(doing.form[SINK]), doing.form[SINK]
    if plan.fault is None and doing.retried and plan.head == doing.plan.checkpoint_id:
        said = f"an earlier try did it: sink {sink} shows {checkpoint_name(plan.head)}"
        return Done("realigned", (said,), plan.head, doing.plan.timeline, follows=True)
    if _found(plan) != dict(doing.plan.approved):
        raise PlanOutdated(f"then: {dict(doing.plan.approved)}; now: {_found(plan)}. Nothing was changed.")
    done = doing.master.realign(doing.session, plan, detail=doing.decided_by)
    said = f"sink {sink} shows {checkpoint_name(done.checkpoint_id)} again"
    return Done(done.outcome, (said,), done.checkpoint_id, doing.plan.timeline, follows=True)


def _verify_fields(job: LoadedJob) -> dict[str, Param]:
    return {
        CHECKPOINT: forms.optional_id("Checkpoint", "Empty: all that are retained."),
        DEEP: forms.switch(False, "Deep", "Read and decode everything, not only look that it is there."),
    }


def _plan_verify(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    which = "all that are retained" if form[CHECKPOINT] is None else str(form[CHECKPOINT])
    how = "every object is read and decoded" if form[DEEP] else "every object is looked for, with its size"
    text = (f"checkpoints: {which}", f"{how}; nothing is changed")
    return subject(master, VERIFY.name, form[CHECKPOINT]).plan(f"verify {which}", text, {})


def _verify(doing: Doing) -> Done:
    result = doing.master.verify(doing.form[CHECKPOINT], bool(doing.form[DEEP]))
    checkpoints = ", ".join(map(str, result.checkpoints)) or "none"
    said = f"checkpoints {checkpoints}: {counted(result.objects, 'object')}, all present and unchanged"
    discarded = [f"of a discarded checkpoint, not needed: {line}" for line in result.discarded]
    return Done("whole", (said, *discarded, *(f"not asked: {line}" for line in result.unasked)))


def _plan_fsck(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    text = ("every object that a checkpoint, a savepoint or a table needs is looked for; nothing is changed",)
    return subject(master, FSCK.name).plan("fsck", text, {})


def _fsck(doing: Doing) -> Done:
    report = doing.master.fsck()
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in report.objects.items())
    text = [f"walked: {', '.join(report.roots)}", f"objects: {counts}"]
    missing = [f"missing: {one.where}: {one.key}: {one.problem}" for one in report.missing]
    unasked = [f"not asked: {line}" for line in report.unasked]
    for line in [*text, *(f"damaged: {line}" for line in report.damaged), *missing, *unasked]:
        doing.say(line)
    if report.exit_code:
        job = report.job
        raise StateCorrupt(
            f"job {job}: {counted(len(report.damaged), 'damage')}, {counted(len(report.missing), 'missing object')}: "
            f"{'; '.join([*report.damaged, *missing][:3])}. Nothing was changed.",
            hint=f"milepost verify {job} --deep says which checkpoints are whole",
        )
    return Done("whole", (f"nothing is missing; unreachable: {counted(len(report.unreachable), 'object')}",))


def _plan_gc(master: JobMaster, form: Mapping[str, Any]) -> ShownPlan:
    found = master.collect_garbage(dry_run=True)
    lists = (found.due, found.probes, found.vetoes, found.staged, *(table.due for table in found.tables))
    going = [name for names in lists for name in names]
    listed = len(found.listed) + sum(len(table.listed) for table in found.tables)
    text = (
        f"deleted now: {len(going)}",
        *going[:_SHOWN],
        *((f"and {len(going) - _SHOWN} more",) if len(going) > _SHOWN else ()),
        f"newly listed as garbage, to be deleted after {found.grace_ms / 3_600_000:.1f} h: {listed}",
        "what is provably unreachable by the time it is carried out counts: the lists may be longer then",
    )
    idle = not (going or listed or found.compactable_entries)
    return subject(master, GC.name).plan("collect garbage", text, {}, idle=idle)


def _gc(doing: Doing) -> Done:
    done: Collection = doing.master.collect_garbage()
    deleted = f"{counted(done.deleted_objects, 'object')}, {counted(done.pruned_files, 'published file')}"
    return Done("collected", (f"deleted: {deleted}",))


REALIGN = Act("realign", "Realign a table with the head", _realign_fields, _plan_realign, _realign, required=(SINK,))
VERIFY = Act(
    "verify",
    "Verify checkpoints",
    _verify_fields,
    _plan_verify,
    _verify,
    takes={CHECKPOINT: checkpoint_from(1)},
    asks=False,
)
FSCK = Act("fsck", "Fsck: what is missing or unreachable", no_fields, _plan_fsck, _fsck, asks=False)
GC = Act("gc", "Collect garbage", no_fields, _plan_gc, _gc)
