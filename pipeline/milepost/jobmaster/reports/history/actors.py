"""Derive the actor of an event that does not store one, from its session and detail."""

from __future__ import annotations

import re

from milepost.protocol.records import Actor

_APPROVED = ", approved by "
_COMMAND_LINE = re.compile(r"\b([\w.@-]+) \(command line\)")
_AIRFLOW_RUN = re.compile(
    r"Airflow run (?P<dag_id>[^/\s]+)/(?P<run_id>.+?)"
    r"(?:, triggered by (?P<person>.+?))?(?:, approved by (?P<approved_by>.+))?$"
)
_TYPED = re.compile(r"^(?:by )?a person: ")


def actor_of(session_id: str, detail: str = "") -> Actor:
    """Return who acted, from the session of an event and from its detail, as earlier versions wrote it.

    Examples: `cli:ben/4f…` is the person ben. `airflow:orders__operate/manual__1` with the detail
    `Airflow run orders__operate/manual__1, triggered by bea, approved by ann` is that run and both people.
    """
    kind, _, rest = session_id.partition(":")
    if kind == "backfill":
        return actor_of(rest.partition("/")[2], detail)
    if kind == "airflow":
        dag_id, _, run_id = rest.partition("/")
        _, triggered, people = detail.partition(f"{_run(dag_id, run_id)}, triggered by ")
        person, _, approved_by = people.partition(_APPROVED)
        if not triggered:
            approved_by = detail.partition(f"{_run(dag_id, run_id)}{_APPROVED}")[2]
        return Actor(kind, person or None, approved_by or None, dag_id, run_id)
    person, slash, _ = rest.partition("/")
    if kind == "cli" and slash:
        return Actor(kind, person)
    run = _AIRFLOW_RUN.search(detail)  # of an import, whose session is not the run's
    if run is not None:
        return Actor("airflow", run["person"], run["approved_by"], run["dag_id"], run["run_id"])
    named = _COMMAND_LINE.search(detail)
    return Actor(kind, named[1] if named else None)


def reason_of(detail: str, actor: Actor) -> str:
    """Return a detail without the parts that name who acted.

    `ben (command line): milepost rollback --to 3` becomes `milepost rollback --to 3`.
    """
    if actor.dag_id is not None and actor.run_id is not None:
        text = detail.replace(_run(actor.dag_id, actor.run_id), "", 1)
        for people in (f", triggered by {actor.person}", f"{_APPROVED}{actor.approved_by}"):
            text = text.replace(people, "", 1)
    else:
        text = _COMMAND_LINE.sub("", _TYPED.sub("", detail), count=1)
    return text.strip(" :;,").replace(";  :", ";").replace("; :", ";")


def _run(dag_id: str, run_id: str) -> str:
    return f"Airflow run {dag_id}/{run_id}"
