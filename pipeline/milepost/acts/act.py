"""An act: an operation on a job that a command or Airflow's form starts.

The flow of every act: `plan` describes the changes, a person may approve them, and `carry_out` makes them. A command
carries out its plan immediately. In Airflow, hours may pass until the approval, so `recheck` comes first: it checks
that the plan still matches the form, and whether an earlier try of the task has already carried it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from milepost.acts.fields import Field
from milepost.codec import OmitNone, from_json
from milepost.errors import CheckpointError, NotFound, PlanOutdated
from milepost.protocol.records import Decision

if TYPE_CHECKING:
    from milepost.jobmaster import JobMaster, Session

T = TypeVar("T")
R = TypeVar("R")

Form = Mapping[str, Any]
"""Values of an act's fields, by their names."""


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan, as a person sees it, and as Airflow's tasks pass it through XCom.

    Attributes:
        what: name of the act. checkpoint_id, timeline, token: what it acts for.
        subject, text: title and lines for people. manifest_version: version that the plan was made from.
        approved: the state that the plan assumes, as JSON.
        rows: number of rows of each table that changes, after the act; None if the plan cannot know.
        idle: whether there is nothing to do. Then there is no approval and nothing is done.
    """

    what: str
    checkpoint_id: int
    timeline: str
    token: str
    subject: str
    text: tuple[str, ...]
    manifest_version: int
    approved: Mapping[str, object]
    rows: Mapping[str, int | None]
    idle: bool

    def approval(self, kind: type[T]) -> T:
        """Return the state that the plan assumes. Raises StateCorrupt: it is not of this kind."""
        return from_json(kind, self.approved, "the plan", hint="trigger a new run")


@dataclass(frozen=True, slots=True)
class ActPlan:
    """A plan, and the job master's own record of it, if it has one: what `--dry-run --json` prints."""

    shown: ShownPlan
    document: object = None


def _quiet(step: object) -> None:
    """Ignore a step, because progress is not shown."""


@dataclass(frozen=True, slots=True)
class ActContext:
    """What an act is carried out with.

    Attributes:
        decided_by: who requested it and approved it, and why, for the history.
        approved: the plan that was approved, or that needed no approval; None if the command does not plan.
        retried: whether an earlier try of the task may have done it already.
        progress: called with each step of long work. copied: called with the bytes of each copied object.
    """

    master: JobMaster
    session: Session
    form: Form
    decided_by: Decision
    approved: ShownPlan | None = None
    retried: bool = False
    progress: Callable[[str], None] = _quiet
    copied: Callable[[int], None] = _quiet

    @property
    def job(self) -> str:
        """The name of the job."""
        return self.master.job.spec.name

    @property
    def plan(self) -> ShownPlan:
        """The approved plan, of an act that has one."""
        assert self.approved is not None
        return self.approved


@dataclass(frozen=True, slots=True)
class ActResult:
    """The result of an act, small enough for an XCom.

    Attributes:
        outcome: one word. text: lines for people.
        checkpoint_id, timeline: head of the live timeline, if `follows`.
        follows: whether tables were reconciled with the head, so that each emits an asset event.
        previous_head: checkpoint that was the head before the act moved the job; None: unknown, or it moved nothing.
        listed: further lines, which the summary of the run leaves out; None: there are none.
    """

    outcome: str
    text: tuple[str, ...] = ()
    checkpoint_id: int = 0
    timeline: str = ""
    follows: bool = False
    previous_head: OmitNone[int] = None
    listed: OmitNone[tuple[str, ...]] = None

    @classmethod
    def from_xcom(cls, value: object, what: str) -> ActResult:
        """Return the result of an XCom, also of an earlier version. Raises StateCorrupt, as `from_json`."""
        if isinstance(value, Mapping):
            omitted = {"previous_head": value.get("left"), "listed": None}
            value = omitted | {name: it for name, it in value.items() if name != "left"}
        return from_json(cls, value, what, hint="trigger a new run")


@dataclass(frozen=True, slots=True)
class Act(Generic[R]):
    """An operation that a person may perform on a job.

    Attributes:
        name: of the act in the form, and prefix of its fields there.
        title: in the form's list of acts, and of the act's section. help: of the command.
        plan: returns what would be done, and changes nothing.
        carry_out: does it, and returns the job master's record of it.
        result: describes that record.
        details: further lines about the record, which are not stored.
        failure: the error that the record is evidence of, if any.
        recheck: checks an approved plan before it is carried out. Returns the result if an earlier try completed it.
            Raises PlanOutdated.
        takes_plan: whether `carry_out` needs the plan. A command of another act plans only to show the plan.
        needs_approval: whether Airflow waits for an approval unless the form switches that off. True for acts that
            change existing state.
        exactly_one: names of fields of which one must be filled in, and no other.
        undo: returns the name and fields of the act that undoes a plan with this result; None if no act does.
    """

    name: str
    title: str
    help: str
    fields: tuple[Field, ...]
    plan: Callable[[JobMaster, Form], ActPlan]
    carry_out: Callable[[ActContext], R]
    result: Callable[[ActContext, R], ActResult]
    details: Callable[[R], Iterable[str]] = lambda done: ()
    failure: Callable[[R], CheckpointError | None] = lambda done: None
    recheck: Callable[[ActContext], ActResult | None] = lambda context: None
    takes_plan: bool = False
    needs_approval: bool = True
    exactly_one: tuple[str, ...] = ()
    undo: Callable[[ShownPlan, ActResult], tuple[str, Form] | None] = lambda plan, result: None

    @property
    def summary(self) -> str:
        """The first paragraph of the help."""
        return self.help.partition("\n\n")[0]

    def form_name(self, name: str) -> str:
        """Return the name that a field of this act has in the form."""
        return f"{self.name}_{name}"

    def is_complete(self, form: Form) -> bool:
        """Return whether a form has every value that the act cannot do without."""
        filled = {name for name, value in form.items() if value is not None and value is not False}
        required = {field.name for field in self.fields if field.required}
        return required <= filled and (not self.exactly_one or bool(filled & {*self.exactly_one}))

    @property
    def form_fields(self) -> dict[str, Field]:
        """The fields of the form, by their names there."""
        return {self.form_name(one.name): one for one in self.fields if one.title}


@dataclass(frozen=True, slots=True)
class Premise:
    """The state of a job that a plan assumes.

    Attributes:
        incarnation, status: of the job.
        failure: why its last epoch failed, for an act that clears that.
        of: further assumptions as text, such as a savepoint and its location.
    """

    incarnation: int
    status: str
    failure: str = ""
    of: tuple[str, ...] = ()

    def require(self, now: Premise) -> None:
        """Raise PlanOutdated if the state has changed since the plan."""
        if now != self:
            raise PlanOutdated(f"then: {self.as_text()}; now: {now.as_text()}. Nothing was changed.")

    def as_text(self) -> str:
        """Return the premise on one line."""
        facts = (f"the job is {self.status} (incarnation {self.incarnation})", self.failure, *self.of)
        return ", ".join(filter(None, facts))


def premise(master: JobMaster, *of: str, failure: bool = False) -> Premise:
    """Return the current state of a job as a premise. Raises NotFound: it has never run."""
    state = master.reports.job_state()
    if state.incarnation is None:
        raise _never_run(state.job)
    why = f"last failure {state.last_failure}: {state.last_failure_detail}" if failure and state.last_failure else ""
    return Premise(state.incarnation, state.job_status, why, of)


@dataclass(frozen=True, slots=True)
class PlanSubject:
    """The act, and the job, checkpoint and manifest version that its plan is made from."""

    what: str
    job: str
    checkpoint_id: int
    timeline: str
    manifest_version: int

    def plan(
        self,
        title: str,
        text: tuple[str, ...],
        approved: Mapping[str, object],
        *,
        idle: bool = False,
        rows: Mapping[str, int | None] | None = None,
        document: object = None,
    ) -> ActPlan:
        """Return the plan.

        Args:
            title: what it would do, in a few words. text, approved, idle, rows: as in `ShownPlan`.
            document: as in `ActPlan`.
        """
        shown = ShownPlan(
            what=self.what,
            checkpoint_id=self.checkpoint_id,
            timeline=self.timeline,
            token=f"none (planned at manifest version {self.manifest_version})",
            subject=f"{self.job}: {title}",
            text=text,
            manifest_version=self.manifest_version,
            approved=approved,
            rows=rows or {},
            idle=idle,
        )
        return ActPlan(shown, document)


def subject(master: JobMaster, what: str, checkpoint_id: int | None = None) -> PlanSubject:
    """Return the subject of a plan about the live head, or about another checkpoint. Raises NotFound: never run."""
    history = master.reports.history(limit=1)
    state = master.reports.job_state()
    if not history or state.timeline is None:
        raise _never_run(state.job)
    head = next((timeline.head for timeline in state.timelines if timeline.timeline == state.timeline), None) or 0
    target = head if checkpoint_id is None else checkpoint_id
    return PlanSubject(what, state.job, target, state.timeline, history[0]["version"])


def _never_run(job: str) -> NotFound:
    return NotFound(
        f"job {job} has never run: there is nothing to do. Nothing was changed.",
        hint=f"run an epoch of {job} first",
    )
