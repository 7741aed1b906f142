"""The values that fields of the form take, in words and as a check.

Airflow checks a field's JSON schema before a run exists, and its dialog says neither which field was wrong nor why. So
a schema says the type alone, or lists the words; the rest is refused by the first task, with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from milepost.protocol.records.layout import savepoint_name_fault

_ID = re.compile(r"[0-9]{1,18}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
_EXAMPLES = "2026-07-01 or 2026-07-01T12:00:00Z"
MOMENT_EXAMPLES = f"{_EXAMPLES}; UTC unless it says otherwise"


@dataclass(frozen=True, slots=True)
class Takes:
    """What a field takes where it is filled in, for "expected …"; admits: is told any value, of any type."""

    words: str
    admits: Callable[[object], bool]


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


MOMENT = Takes(f"a date or a time, as in {_EXAMPLES}", _is_moment)
ID_OR_MOMENT = Takes(
    f"a checkpoint id, or a date or a time, as in 41, {_EXAMPLES}",
    lambda value: _is_id(value) or _is_moment(value),
)
SAVEPOINT_NAME = Takes(
    "1 to 63 of a-z, 0-9, _ and -, the first a letter or a digit, not digits alone",
    _is_savepoint_name,
)
ID_OR_SAVEPOINT = Takes(
    "a checkpoint id, or the name of a savepoint of this job",
    lambda value: _is_id(value) or _is_savepoint_name(value),
)


def checkpoint_from(lowest: int) -> Takes:
    """Return a checkpoint id as a number that is not below another one."""
    return Takes(
        f"a checkpoint id, {lowest} or more",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= lowest,
    )
