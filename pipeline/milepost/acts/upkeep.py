"""The maintenance acts: `realign` a table, `verify`, `fsck`, `gc`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from milepost.acts.act import Act, ActContext, ActPlan, ActResult, Form, subject
from milepost.acts.fields import SINK, Field, checkpoint_from, switch
from milepost.epoch import counted
from milepost.errors import PlanOutdated, StateCorrupt
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from milepost.jobmaster import (
        Audit,
        Collection,
        JobMaster,
        RealignedSink,
        RealignmentPlan,
        StoredObject,
        VerifiedObjects,
    )

NAME, CHECKPOINT, DEEP = "sink", "checkpoint", "deep"

_SHOWN = 20
_HOUR_MS = 3_600_000


def _plan_realign(master: JobMaster, form: Form) -> ActPlan:
    plan = master.realignments.plan(form[NAME])
    said = f"realign sink {plan.sink} with {checkpoint_name(plan.head)}"
    rows = {plan.sink: plan.rows_then}
    about = subject(master, REALIGN.name, plan.head)
    return about.plan(said, plan.text, _approved(plan), idle=plan.fault is None, rows=rows, document=plan)


def _approved(plan: RealignmentPlan) -> dict[str, object]:
    return {"sink": plan.sink, "head": plan.head, "position": plan.position}


def _realign(context: ActContext) -> RealignedSink:
    plan = context.master.realignments.plan(context.form[NAME])
    if _approved(plan) != dict(context.plan.approved):
        raise PlanOutdated(f"then: {dict(context.plan.approved)}; now: {_approved(plan)}. Nothing was changed.")
    return context.master.realignments.run(context.session, plan, decision=context.decided_by)


def _recheck_realign(context: ActContext) -> ActResult | None:
    if not context.retried:
        return None
    plan = context.master.realignments.plan(context.form[NAME])
    if plan.fault is not None or plan.head != context.plan.checkpoint_id:
        return None
    said = f"already done by an earlier try: sink {plan.sink} shows {checkpoint_name(plan.head)}"
    return ActResult("realigned", (said,), plan.head, context.plan.timeline, follows=True)


def _realigned(context: ActContext, done: RealignedSink) -> ActResult:
    said = f"sink {done.sink} shows {checkpoint_name(done.checkpoint_id)} of job {done.job} again"
    text = (said,) if done.outcome == "realigned" else ()
    return ActResult(done.outcome, text, done.checkpoint_id, context.plan.timeline, follows=True)


def _plan_verify(master: JobMaster, form: Form) -> ActPlan:
    which = "all that are retained" if form[CHECKPOINT] is None else str(form[CHECKPOINT])
    how = "every object is read and decoded" if form[DEEP] else "every object is checked for existence and size"
    text = (f"checkpoints: {which}", f"{how}; nothing is changed")
    return subject(master, VERIFY.name, form[CHECKPOINT]).plan(f"verify {which}", text, {})


def _verified(context: ActContext, done: VerifiedObjects) -> ActResult:
    checkpoints = ", ".join(map(str, done.checkpoints)) or "none"
    whole = "all that the job continues from is" if done.discarded else "all"
    extent = f"{whole} present, with the recorded {'checksums' if done.deep else 'sizes'}"
    text = [f"checkpoints {checkpoints}: {counted(done.objects, 'object')}, {extent}"]
    text += [f"not needed: {line}" for line in done.discarded]
    if done.discarded:
        text.append(
            "these checkpoints were discarded: neither the job nor its tables need what is broken, and retention "
            "deletes them; until then, only a rollback to one of them is refused"
        )
    return ActResult("whole", (*text, *(f"not checked: {line}" for line in done.unasked)))


def _plan_fsck(master: JobMaster, form: Form) -> ActPlan:
    text = ("checks that every object that a checkpoint, a savepoint or a table needs exists; nothing is changed",)
    return subject(master, FSCK.name).plan("fsck", text, {})


def _audited(done: Audit) -> Iterator[str]:
    yield f"job {done.job} at manifest version {done.manifest_version}"
    yield f"walked: {', '.join(done.roots)}"
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in done.objects.items())
    yield f"objects: {counts}"
    yield from _listed("damaged", done.damaged)
    yield from _listed("missing", [f"{line}; needed by {chain}" for line, chain in _missing(done)])
    yield from _unreadable(done.unreadable_lists)
    if done.unreadable_figures:
        yield from _listed("unreadable figures", done.unreadable_figures)
    yield from (f"not checked: {line}" for line in done.unasked)
    if any(item.where.startswith("savepoint ") for item in done.missing):
        yield (
            f"to remove a moved or lost savepoint from the list, run: milepost savepoint dispose {done.job} --name NAME"
        )
    if done.complete:
        yield from _listed("unreachable", [_line(item) for item in done.unreachable])
    else:
        yield "unreachable: not determined, because not every root could be read"
    yield from _listed("foreign", [_line(item) for item in done.foreign])
    waiting = done.garbage
    yield (
        f"garbage list: {_entries(waiting.entries)}, {counted(waiting.objects, 'object')}, "
        f"{counted(waiting.bytes, 'byte')}; `milepost gc`, or a later epoch, deletes them once they are due"
    )


def _missing(done: Audit) -> list[tuple[str, str]]:
    return [(f"{item.where}: {item.key}: {item.problem}", " -> ".join(item.chain)) for item in done.missing]


def _damage(done: Audit) -> StateCorrupt | None:
    if not done.exit_code:
        return None
    job, damaged = done.job, counted(len(done.damaged), "damaged object")
    first = [*done.damaged, *(f"missing: {line}" for line, _ in _missing(done))][:3]
    return StateCorrupt(
        f"job {job}: {damaged}, {counted(len(done.missing), 'missing object')}: {'; '.join(first)}. Nothing was "
        "changed.",
        hint=f"milepost verify {job} --deep lists the damaged objects and the checkpoints that need them",
    )


def _sound(context: ActContext, done: Audit) -> ActResult:
    return ActResult("whole", (f"nothing is missing; unreachable: {counted(len(done.unreachable), 'object')}",))


def _plan_gc(master: JobMaster, form: Form) -> ActPlan:
    preview = master.collect_garbage(dry_run=True)
    tables = preview.tables
    dead = (preview.probes, preview.vetoes, preview.landings, preview.staged)
    due = (preview.due, *dead, *(table.due for table in tables))
    listed = (preview.listed, *(table.listed for table in tables))
    idle = not (any(due) or any(listed) or preview.compactable_entries)
    text = (
        *_collection(preview),
        "the act deletes what is provably unreachable when it runs, so it may delete more than this",
    )
    return subject(master, GC.name).plan("collect garbage", text, {}, idle=idle, document=preview)


def _collection(done: Collection) -> Iterator[str]:
    would, deleted = ("would be ", ", would be deleted") if done.dry_run else ("", "")
    yield f"job {done.job} at manifest version {done.manifest_version}"
    yield from _listed("unreachable", [_line(item) for item in done.unreachable])
    yield from _listed(f"{would}listed as garbage", done.listed)
    yield from _listed(f"due{deleted}", done.due)
    yield from _listed(f"{would}discarded at the sinks", done.staged)
    for table in done.tables:
        name = f"sink {table.sink}: published files"
        yield from _listed(f"{name} {would}listed as garbage", table.listed)
        yield from _listed(f"{name} due{deleted}", table.due)
        if table.kept_because is not None:
            yield f"{name}: all retained: {table.kept_because}"
        yield from _unreadable([f"sink {table.sink}: {line}" for line in table.unreadable_lists])
    yield from _listed(f"left by probes{deleted}", done.probes)
    yield from _listed(f"failing rows of vetoed epochs, expired{deleted}", done.vetoes)
    if done.landings:
        yield from _listed(f"written by landings that lost{deleted}", done.landings)
    if done.compactable_entries:
        yield f"entries of the log {would}compacted: {done.compactable_entries:,}"
    waiting, hours = done.waiting + sum(table.waiting for table in done.tables), done.grace_ms / _HOUR_MS
    yield f"waiting: {_entries(waiting, 'older ')}; an entry is deleted {hours:.1f} h after it was listed"


def _collected(context: ActContext, done: Collection) -> ActResult:
    deleted = f"{counted(done.deleted_objects, 'object')}, {counted(done.pruned_files, 'published file')}"
    return ActResult("collected", (f"deleted: {deleted}",))


def _unreadable(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from _listed("unreadable garbage lists: delete them, and `gc` lists their objects again", lines)


def _line(item: StoredObject) -> str:
    age = item.age_ms / _HOUR_MS
    return f"{item.where}: {item.key} ({counted(item.size, 'byte')}, {age:.1f} h old): {item.proof}"


def _entries(count: int, which: str = "") -> str:
    return f"{count:,} {which}{'entry' if count == 1 else 'entries'}"


def _listed(name: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield a heading with the number of the lines, and the first of them."""
    yield f"{name}: {len(lines)}"
    yield from (f"  {line}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"  … and {len(lines) - _SHOWN} more (--json has all)"


REALIGN = Act(
    "realign",
    "Realign a table with the head",
    "Set a table back to the job's head, after a restore, a failover or a manual change.",
    (Field(NAME, SINK, "Sink whose table is set back to the job's head.", "Sink", required=True, is_argument=True),),
    _plan_realign,
    _realign,
    _realigned,
    recheck=_recheck_realign,
    takes_plan=True,
)
VERIFY = Act(
    "verify",
    "Verify checkpoints",
    "Check everything that the retained checkpoints refer to: exit 7 when something is missing or changed.\n\n"
    "A table that the spec does not lead to, as its path changed or its sink was dropped, is listed and not checked. "
    "Damage that affects discarded checkpoints only is listed, with exit 0, unless ID is one of them.",
    (
        Field(
            CHECKPOINT, checkpoint_from(1), "A checkpoint. Default: all retained ones.", "Checkpoint", is_argument=True
        ),
        switch(DEEP, "Read and decode every object, not only its size.", "Deep"),
    ),
    _plan_verify,
    lambda context: context.master.reports.verify(context.form[CHECKPOINT], context.form[DEEP]),
    _verified,
    needs_approval=False,
)
FSCK = Act(
    "fsck",
    "Fsck: what is missing or unreachable",
    "Find missing and unreachable objects. Exit code 7: a needed object is missing or unreadable.\n\n"
    "Unreachable objects are not damage (exit code 0). They cost space until `gc` collects them.",
    (),
    _plan_fsck,
    lambda context: context.master.reports.fsck(),
    _sound,
    details=_audited,
    failure=_damage,
    needs_approval=False,
)
GC = Act(
    "gc",
    "Collect garbage",
    "Delete unreachable objects. An object is listed first, and deleted after the grace period.",
    (),
    _plan_gc,
    lambda context: context.master.collect_garbage(),
    _collected,
    details=_collection,
)
