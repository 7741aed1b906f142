"""An act: one thing that a person may ask of a job by its form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from milepost.airflow.operate.field_values import Takes
from milepost.airflow.operators.planned import ShownPlan
from milepost.errors import InvalidRequest, NotFound, PlanOutdated

if TYPE_CHECKING:
    from airflow.sdk import Param

    from milepost.jobmaster.jobmaster import JobMaster, Session
    from milepost.jobspec.load.load import LoadedJob


@dataclass(frozen=True, slots=True)
class Doing:
    """What an act is carried out with.

    Attributes:
        form: its own fields, by their short names. plan: the one that was approved, or that nobody had to approve.
        decided_by: who wants it, for the history. retried: an earlier try of the task may have done it already.
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
class Done:
    """What an act has done, small enough for an XCom.

    Attributes:
        outcome: in a word. text: for people. checkpoint_id, timeline: head of the live timeline, where tables follow.
        follows: whether tables had to follow, and each emits its asset event.
    """

    outcome: str
    text: tuple[str, ...] = ()
    checkpoint_id: int = 0
    timeline: str = ""
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that a person may ask of a job.

    Attributes:
        name: in the form, and before each of its fields. title: in the form's list, and over its section.
        fields: of its own, by their short names, for a job. required: those that must be filled in.
        takes: what they take, of those that Airflow has no list of words for.
        asks: whether it waits for an approval unless the form says otherwise: it changes what is there.
        check: refuses fields that do not go together; it is told them by short name, and how a field is called.
        plan: returns what would be done, and changes nothing. carry_out: does it.
    """

    name: str
    title: str
    fields: Callable[[LoadedJob], dict[str, Param]]
    plan: Callable[[JobMaster, Mapping[str, Any]], ShownPlan]
    carry_out: Callable[[Doing], Done]
    takes: Mapping[str, Takes] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    asks: bool = True
    check: Callable[[Mapping[str, Any]], None] = lambda form: None

    def field(self, short: str) -> str:
        """Return the name that a field of this act has in the form."""
        return f"{self.name}_{short}"


def no_fields(job: LoadedJob) -> dict[str, Param]:
    return {}


@dataclass(frozen=True, slots=True)
class Premise:
    """What a plan about a job as a whole takes for granted.

    Attributes:
        incarnation: of the job. status: of the job. failure: why its last epoch failed, for an act that clears that.
        of: what else the act is about: a savepoint, a checkpoint, the text of its place.
    """

    incarnation: int
    status: str
    failure: str = ""
    of: tuple[str, ...] = ()

    def require(self, now: Premise) -> None:
        """Refuse an act whose plan does not hold any more. Raises PlanOutdated."""
        if now != self:
            raise PlanOutdated(f"then: {self.in_words()}; now: {now.in_words()}. Nothing was changed.")

    def in_words(self) -> str:
        """Return it on one line."""
        facts = (f"incarnation {self.incarnation} is {self.status}", self.failure, *self.of)
        return ", ".join(filter(None, facts))


def premise(master: JobMaster, *of: str, failure: bool = False) -> Premise:
    """Return what holds of a job now. Raises NotFound: it has never run."""
    state = master.job_state()
    if state.incarnation is None:
        raise _never_run(state.job)
    why = f"last failure {state.last_failure}: {state.last_failure_detail}" if failure and state.last_failure else ""
    return Premise(state.incarnation, state.job_status, why, of)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a plan is about, before it is worded: the head that it was made from."""

    what: str
    job: str
    checkpoint_id: int
    timeline: str
    manifest_version: int

    def plan(
        self,
        said: str,
        text: tuple[str, ...],
        approved: Mapping[str, object],
        *,
        idle: bool = False,
        rows: Mapping[str, int | None] | None = None,
    ) -> ShownPlan:
        """Return the plan as it is shown.

        Args:
            said: what it would do, in a few words. text, approved, idle, rows: as in `ShownPlan`.
        """
        return ShownPlan(
            what=self.what,
            checkpoint_id=self.checkpoint_id,
            timeline=self.timeline,
            token=f"none (planned at manifest version {self.manifest_version})",
            subject=f"{self.job}: {said}",
            text=text,
            manifest_version=self.manifest_version,
            approved=approved,
            rows=rows or {},
            idle=idle,
        )


def subject(master: JobMaster, what: str, checkpoint_id: int | None = None) -> Subject:
    """Return the subject of a plan about the live head, or about another checkpoint. Raises NotFound: never run."""
    history = master.history(limit=1)
    state = master.job_state()
    if not history or state.timeline is None:
        raise _never_run(state.job)
    head = next((one.head for one in state.timelines if one.timeline == state.timeline), None) or 0
    chosen = head if checkpoint_id is None else checkpoint_id
    return Subject(what, state.job, chosen, state.timeline, history[0]["version"])


def _never_run(job: str) -> NotFound:
    return NotFound(
        f"job {job} has never run: there is nothing to do. Nothing was changed.",
        hint=f"run an epoch of {job} first",
    )


def refuse(field: str, title: str, expected: str, got: object) -> InvalidRequest:
    """Return the refusal of a field, by its name and what it expects."""
    given = "nothing" if got is None else repr(got)
    return InvalidRequest(f"field {field} ({title}): expected {expected}, got {given}. Nothing was done.")
