"""The forms of a job's DAGs, as JSON schemas: what the trigger form shows, and refuses before a run exists.

A pattern says what a value looks like; whether it names something of this job is for the first task to say.
"""

from __future__ import annotations

from airflow.sdk import Param

UNTIL_CAUGHT_UP = "until_caught_up"
TAKE_OVER = "take_over"
DRY_RUN = "dry_run"
APPROVE = "approve"

_ID = r"[0-9]{1,18}"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT = _DAY + r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
MOMENT_PATTERN = f"^{_MOMENT}$"
ID_OR_MOMENT_PATTERN = f"^({_ID}|{_MOMENT})$"
SAVEPOINT_NAME_PATTERN = r"^(?![0-9]+$)[a-z0-9][a-z0-9_-]{0,62}$"
MOMENT_EXAMPLES = "2026-07-01 or 2026-07-01T12:00:00Z; UTC unless it says otherwise"

HOW = "How"


def switch(value: bool, title: str, description: str, *, section: str | None = None) -> Param:
    """Return a checkbox."""
    return Param(value, type="boolean", title=title, description=description, **_section(section))


def text(title: str, description: str, pattern: str) -> Param:
    """Return a text that must be given."""
    return Param(type="string", title=title, description=description, pattern=pattern)


def optional_text(title: str, description: str, pattern: str) -> Param:
    """Return a text that may be left out."""
    return Param(None, type=["null", "string"], title=title, description=description, pattern=pattern)


def optional_id(title: str, description: str, *, lowest: int) -> Param:
    """Return a checkpoint id that may be left out."""
    return Param(None, type=["null", "integer"], minimum=lowest, title=title, description=description)


def choice(values: list[str], title: str, description: str) -> Param:
    """Return one of several words; the first is preset."""
    return Param(values[0], type="string", enum=values, title=title, description=description)


def epoch_form(*, until_caught_up: bool = False) -> dict[str, Param]:
    """Return the form of an epoch.

    Args:
        until_caught_up: the preset of its switch: True where nobody would start a next run for what this one leaves.
    """
    return {
        UNTIL_CAUGHT_UP: switch(
            until_caught_up,
            "Until caught up",
            "After this epoch trigger the next one, until there is no new input. Each is a run of its own.",
        ),
        TAKE_OVER: take_over(),
    }


def take_over(*, section: str | None = None) -> Param:
    return switch(
        False,
        "Take over",
        "Abort the pending checkpoint of another session although its lease is alive, and fence it. "
        "Safe at any time; it wastes the work of an epoch that still runs.",
        section=section,
    )


def dry_run() -> Param:
    return switch(False, "Only plan", "Log the plan and end. Nothing is changed.", section=HOW)


def approve(act: str) -> Param:
    return switch(
        True,
        "Wait for an approval",
        "Show the plan under Required Actions and wait, a day at most, until a person approves or rejects it. "
        f"Off: {act} as soon as it is planned.",
        section=HOW,
    )


def _section(section: str | None) -> dict[str, str]:
    return {"section": section} if section else {}
