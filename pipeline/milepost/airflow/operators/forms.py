"""The trigger forms of a job's DAGs, as Airflow params.

Their JSON schemas have only types and lists of choices. Airflow checks those before a run exists, but its dialog does
not say why a value is refused. The first task checks the rest and reports the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow.sdk import Param

from milepost.acts import TAKE_OVER, Field
from milepost.jobspec.load import LoadedJob

WHAT = "what"
WHAT_TITLE = "What to do"
UNTIL_CAUGHT_UP = "until_caught_up"
UP_TO = "up_to"
"""Not a field: what the first run "until caught up" passes to the next ones, the last record of each source's log."""

DRY_RUN = "dry_run"
APPROVE = "approve"

HOW = "How"


def switch(value: bool, title: str, description: str) -> Param:
    """Return the param of a checkbox."""
    return Param(value, type="boolean", title=title, description=description)


def field_param(field: Field, job: LoadedJob) -> Param:
    """Return the param of an act's field. The sinks and sources of the job are lists of choices."""
    kind = field.kind
    if kind.type is bool:
        return switch(bool(field.default), field.title, field.help)
    named = {
        "sinks": [sink.name for sink in job.spec.sinks],
        "sources": sorted(job.spec.landed),
        "files": sorted(job.spec.file_streams),
    }
    choices = {"enum": [None, *named[kind.suggests]]} if kind.suggests in named else {}
    description = f"{field.help} Examples: {kind.examples}." if kind.examples else field.help
    json_type = "integer" if kind.type is int else "string"
    return Param(field.default, type=["null", json_type], title=field.title, description=description, **choices)


def what(titles: Mapping[str, str]) -> Param:
    """Return the param that chooses the act, by name and title. It has no default, so that a person must choose."""
    return Param(
        type="string",
        enum=list(titles),
        values_display=dict(titles),
        title=WHAT_TITLE,
        description="Then fill in only the section of this act. Values in other sections are refused.",
        section=WHAT_TITLE,
    )


def in_section(section: str, param: Param) -> Param:
    """Put a field into a section of the form, and return it."""
    param.schema["section"] = section
    return param


def epoch_form(*, until_caught_up: bool) -> dict[str, Param]:
    """Return the form of an epoch.

    Args:
        until_caught_up: default of this field. True if no schedule would start another run for the remaining input.
    """
    return {
        UNTIL_CAUGHT_UP: switch(
            until_caught_up,
            "Until caught up",
            "After this epoch, trigger another run, until there is no new input. What is landed after the first run's "
            "trigger does not count.",
        ),
        TAKE_OVER.name: switch(False, TAKE_OVER.title, TAKE_OVER.help),
    }


def dry_run() -> Param:
    return in_section(HOW, switch(False, "Only plan", "Log the plan and stop. Nothing is changed."))


def approve(unapproved: Sequence[str]) -> Param:
    """Return the param of whether to wait for an approval.

    Args:
        unapproved: names of the acts that never wait for one.
    """
    return in_section(
        HOW,
        switch(
            True,
            "Wait for an approval",
            "Show the plan under Required Actions and wait up to one day until a person approves or rejects it. If "
            f"this is off, the plan is carried out immediately. {', '.join(unapproved)} never wait for an approval.",
        ),
    )
