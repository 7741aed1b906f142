"""Who decided on an act, and why, as the event of the act stores it."""

from __future__ import annotations

from dataclasses import dataclass

_KINDS = {"airflow": "Airflow", "cli": "the command line", "import": "the command line"}
"""Kind of a session -> what acted, if the person is unknown."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acted. A field is None if it is unknown.

    Attributes:
        kind: of the session, "" for an event without one.
        person: user of Airflow or of the operating system. approved_by: who approved the plan in Airflow.
        dag_id, run_id: the Airflow run; None on the command line.
    """

    kind: str = ""
    person: str | None = None
    approved_by: str | None = None
    dag_id: str | None = None
    run_id: str | None = None

    @property
    def name(self) -> str:
        """The person, or what acted; "" if that is unknown."""
        return self.person or _KINDS.get(self.kind, "")

    @property
    def text(self) -> str:
        """The actor for people: `ben (command line)`, or the Airflow run, who triggered it and who approved it."""
        if self.dag_id is None:
            return f"{self.person or 'a person'} (command line)"
        triggered = f", triggered by {self.person}" if self.person else ""
        approved = f", approved by {self.approved_by}" if self.approved_by else ""
        return f"Airflow run {self.dag_id}/{self.run_id}{triggered}{approved}"


@dataclass(frozen=True, slots=True)
class Decision:
    """Who decided on an act, and why.

    Attributes:
        why: the command, or what made the act necessary; "" if unknown.
        act: value of the `SwitchAct` that switched the live timeline; "" for other events.
    """

    actor: Actor
    why: str = ""
    act: str = ""

    @property
    def text(self) -> str:
        """The decision for people: `ben (command line): milepost rollback --to 3`."""
        return f"{self.actor.text}: {self.why}" if self.why else self.actor.text
