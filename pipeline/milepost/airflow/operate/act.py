"""An act: one operation of the form, with its plan and its execution.

The flow of every act: `plan` describes what would change, a person may approve that, `carry_out` checks that the plan
still holds and does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.field_values import FieldRule
from milepost.airflow.operators.shown_plan import ShownPlan
from milepost.errors import InvalidRequest, NotFound, PlanOutdated

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster import JobMaster, Session
    from milepost.jobspec.load import LoadedJob


@dataclass(frozen=True, slots=True)
class ActContext:
    """What an act is carried out with.

    Attributes:
        form: values of the act's fields, by their short names.
        plan: the plan that was approved, or that needed no approval.
        decided_by: who triggered and approved it, for the history.
        retried: whether an earlier try of the task may have done it already.
        say: logs a line.
    """

    master: JobMaster
    session: Session
    form: Mapping[str, Any]
    plan: ShownPlan
    decided_by: str
    retried: bool
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ActResult:
    """The result of an act, small enough for an XCom.

    Attributes:
        outcome: one word. text: lines for people.
        checkpoint_id, timeline: head of the live timeline, if `follows`.
        follows: whether tables were reconciled with the head, so that each emits an asset event.
    """

    outcome: str
    text: tuple[str, ...] = ()
    checkpoint_id: int = 0
    timeline: str = ""
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """One operation of the form.

    Attributes:
        name: value of the field `what`, and prefix of the names of the act's own fields.
        title: text in the form's list of acts, and title of the act's section.
        fields: returns the act's own fields for a job, by their short names. required: those that must be filled in.
        rules: what fields accept, by short name, unless their schema already has a list of choices.
        needs_approval: whether it waits for an approval unless the form switches that off. True for acts that change
            existing state.
        check: refuses an invalid combination of fields, given by their short names.
        plan: returns what would be done, and changes nothing. carry_out: does it.
    """

    name: str
    title: str
    fields: Callable[[LoadedJob], dict[str, Param]]
    plan: Callable[[JobMaster, Mapping[str, Any]], ShownPlan]
    carry_out: Callable[[ActContext], ActResult]
    rules: Mapping[str, FieldRule] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    needs_approval: bool = True
    check: Callable[[Mapping[str, Any]], None] = lambda form: None

    def field(self, short: str) -> str:
        """Return the name that a field of this act has in the form."""
        return f"{self.name}_{short}"


def no_fields(job: LoadedJob) -> dict[str, Param]:
    return {}


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
        facts = (f"incarnation {self.incarnation} is {self.status}", self.failure, *self.of)
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
    """The job, checkpoint and manifest version that a plan is made from."""

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
    ) -> ShownPlan:
        """Return the plan that is shown to a person.

        Args:
            title: what it would do, in a few words. text, approved, idle, rows: as in `ShownPlan`.
        """
        return ShownPlan(
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


def invalid_field(field: str, title: str, expected: str, got: object) -> InvalidRequest:
    """Return the error for an invalid field of the form."""
    given = "nothing" if got is None else repr(got)
    return InvalidRequest(f"field {field} ({title}): expected {expected}, got {given}. Nothing was done.")
