"""The trigger forms of a job's DAGs, as Airflow params.

Their JSON schemas have only types and lists of choices. Airflow checks those before a run exists, but its dialog does
not say why a value is refused. The first task checks the rest and reports the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow.sdk import Param

WHAT = "what"
WHAT_TITLE = "What to do"
UNTIL_CAUGHT_UP = "until_caught_up"
TAKE_OVER = "take_over"
DRY_RUN = "dry_run"
APPROVE = "approve"

HOW = "How"


def switch(value: bool, title: str, description: str) -> Param:
    """Return the param of a checkbox."""
    return Param(value, type="boolean", title=title, description=description)


def optional_text(title: str, description: str) -> Param:
    """Return the param of an optional text."""
    return Param(None, type=["null", "string"], title=title, description=description)


def optional_id(title: str, description: str) -> Param:
    """Return the param of an optional checkpoint id."""
    return Param(None, type=["null", "integer"], title=title, description=description)


def optional_choice(values: list[str], title: str, description: str) -> Param:
    """Return the param of an optional choice."""
    return Param(None, type=["null", "string"], enum=[None, *values], title=title, description=description)


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
            "After this epoch, trigger another run, until there is no new input.",
        ),
        TAKE_OVER: take_over(),
    }


def take_over() -> Param:
    return switch(
        False,
        "Take over",
        "Abort the pending checkpoint of another session although its lease is valid, and fence that session. "
        "This is always safe, but it discards the work of an epoch that is still running.",
    )


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
            f"this is off, the plan is carried out at once. {', '.join(unapproved)} never wait for an approval.",
        ),
    )
