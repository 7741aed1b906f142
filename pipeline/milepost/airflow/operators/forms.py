"""The forms of a job's DAGs, as JSON schemas: what the trigger form shows.

They say types and lists of words, which Airflow checks before a run exists, without a word of why in its dialog. All
else about a value is for the first task to say.
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
    """Return a checkbox."""
    return Param(value, type="boolean", title=title, description=description)


def optional_text(title: str, description: str) -> Param:
    """Return a text that may be left out."""
    return Param(None, type=["null", "string"], title=title, description=description)


def optional_id(title: str, description: str) -> Param:
    """Return a checkpoint id that may be left out."""
    return Param(None, type=["null", "integer"], title=title, description=description)


def optional_choice(values: list[str], title: str, description: str) -> Param:
    """Return one of several words, which may be left out."""
    return Param(None, type=["null", "string"], enum=[None, *values], title=title, description=description)


def what(titles: Mapping[str, str]) -> Param:
    """Return the choice of an act, by name and title; it has no preset: nothing is done that nobody chose."""
    return Param(
        type="string",
        enum=list(titles),
        values_display=dict(titles),
        title=WHAT_TITLE,
        description="Then fill in the section of this act alone; fields of another one are refused.",
        section=WHAT_TITLE,
    )


def in_section(section: str, param: Param) -> Param:
    """Return a field under the heading of a section."""
    param.schema["section"] = section
    return param


def epoch_form(*, until_caught_up: bool) -> dict[str, Param]:
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


def take_over() -> Param:
    return switch(
        False,
        "Take over",
        "Abort the pending checkpoint of another session although its lease is alive, and fence it. "
        "Safe at any time; it wastes the work of an epoch that still runs.",
    )


def dry_run() -> Param:
    return in_section(HOW, switch(False, "Only plan", "Log the plan and end. Nothing is changed."))


def approve(silent: Sequence[str]) -> Param:
    """Return the switch that has a person asked.

    Args:
        silent: acts that ask nobody.
    """
    return in_section(
        HOW,
        switch(
            True,
            "Wait for an approval",
            "Show the plan under Required Actions and wait, a day at most, until a person approves or rejects it. Off: "
            f"do it as soon as it is planned. Nobody is asked about {', '.join(silent)}.",
        ),
    )
