"""Validation rules for the text and number fields of the form.

Airflow validates a field's JSON schema before a run exists, but its dialog says neither which field is wrong nor why.
So the schema has only the type, or the list of choices. The first task checks these rules and reports the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from milepost.protocol.records import savepoint_name_fault

_ID = re.compile(r"[0-9]{1,18}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
_EXAMPLES = "2026-07-01 or 2026-07-01T12:00:00Z"
MOMENT_EXAMPLES = f"{_EXAMPLES}; UTC unless it says otherwise"


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What a field accepts, unless it is empty. expected: follows "expected …". accepts: takes a value of any type."""

    expected: str
    accepts: Callable[[object], bool]


def _is_id(value: object) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _is_moment(value: object) -> bool:
    if not isinstance(value, str) or _MOMENT.fullmatch(value) is None:
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:  # such as the 30th of February
        return False
    return True


def _is_savepoint_name(value: object) -> bool:
    return isinstance(value, str) and savepoint_name_fault(value) is None


MOMENT = FieldRule(f"a date or a time, as in {_EXAMPLES}", _is_moment)
ID_OR_MOMENT = FieldRule(
    f"a checkpoint id, or a date or a time, as in 41, {_EXAMPLES}",
    lambda value: _is_id(value) or _is_moment(value),
)
SAVEPOINT_NAME = FieldRule(
    "1 to 63 of a-z, 0-9, _ and -, the first a letter or a digit, not digits alone",
    _is_savepoint_name,
)
ID_OR_SAVEPOINT = FieldRule(
    "a checkpoint id, or the name of a savepoint of this job",
    lambda value: _is_id(value) or _is_savepoint_name(value),
)


def checkpoint_from(lowest: int) -> FieldRule:
    """Return the rule of a checkpoint id that is a number of at least `lowest`."""
    return FieldRule(
        f"a checkpoint id, {lowest} or more",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= lowest,
    )
