"""Fields of an act, from which its command options and its form fields are generated."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from milepost.acts.named_rows import names_row
from milepost.protocol.records import savepoint_name_fault

_ID = re.compile(r"[0-9]{1,18}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
_OBJECT = re.compile(r"[^\x00-\x1f\x7f]{1,1024}")
_EXAMPLES = "2026-07-01 or 2026-07-01T12:00:00Z"
_UTC = "UTC unless it has an offset"

Suggestions = Literal["", "checkpoints", "savepoints", "sinks", "sources", "files"]
"""Kinds of names that shell completion offers."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a field's value.

    The form checks `accepts`. A command passes the value on, and the job master checks it.

    Attributes:
        type: str, int or bool; a bool is a switch. metavar: the value's name on the command line.
        expected: what the form accepts, as it follows "expected …". accepts: predicate, for values of any type.
        lowest: minimum of a number. examples: example values.
        suggests: names that shell completion offers; `files` are sources of files. For sinks and sources, the form has
            a list of choices.
        or_moment: whether a command also takes a time, which means the newest checkpoint at or before it.
    """

    type: type[str | int]
    metavar: str = ""
    expected: str = ""
    accepts: Callable[[Any], bool] = lambda value: True
    lowest: int | None = None
    examples: str = ""
    suggests: Suggestions = ""
    or_moment: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter of an act.

    Attributes:
        name: name in the form, without the prefix of its act. The option has dashes instead of underscores.
        help: its meaning. title: in the form; "" if only the command has it.
        is_argument: whether the command takes it by position, not as an option.
    """

    name: str
    kind: Kind
    help: str
    title: str = ""
    required: bool = False
    default: object = None
    is_argument: bool = False

    @property
    def option(self) -> str:
        """The option of the command line."""
        return f"--{self.name.replace('_', '-')}"


def switch(name: str, help_: str, title: str = "") -> Field:
    """Return a field that is on or off, and off by default."""
    return Field(name, Kind(bool), help_, title, default=False)


def number(metavar: str, lowest: int, what: str, *, or_moment: bool = False, suggests: Suggestions = "") -> Kind:
    """Return the kind of a number that is at least `lowest`. or_moment, suggests: as in `Kind`."""
    return Kind(
        int,
        metavar,
        f"{what}, {lowest} or more",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= lowest,
        lowest=lowest,
        suggests=suggests,
        or_moment=or_moment,
    )


def checkpoint_from(lowest: int, *, or_moment: bool = False) -> Kind:
    """Return the kind of a checkpoint id that is at least `lowest`."""
    metavar = "ID|TIME" if or_moment else "ID"
    return number(metavar, lowest, "a checkpoint id", or_moment=or_moment, suggests="checkpoints")


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


MOMENT = Kind(str, "TIME", f"a date or a time, as in {_EXAMPLES}", _is_moment, examples=f"{_EXAMPLES}; {_UTC}")
ID_OR_MOMENT = Kind(
    str,
    "ID|TIME",
    f"a checkpoint id, or a date or a time, as in 41, {_EXAMPLES}",
    lambda value: _is_id(value) or _is_moment(value),
    examples=f"41, {_EXAMPLES}; {_UTC}",
    suggests="checkpoints",
)
NEW_SAVEPOINT = Kind(
    str,
    "NAME",
    "1 to 63 of the characters a-z, 0-9, _ and -, starting with a letter or a digit, not only digits",
    _is_savepoint_name,
)
SAVEPOINT = Kind(str, "NAME", NEW_SAVEPOINT.expected, _is_savepoint_name, suggests="savepoints")
ID_OR_SAVEPOINT = Kind(
    str,
    "ID|SAVEPOINT",
    "a checkpoint id, or the name of a savepoint of this job",
    lambda value: _is_id(value) or _is_savepoint_name(value),
)
SINK = Kind(str, "SINK", suggests="sinks")
SOURCE = Kind(str, "NAME", suggests="sources")
FILE_SOURCE = Kind(str, "SOURCE", suggests="files")
OBJECT = Kind(
    str,
    "OBJECT",
    "1 to 1,024 characters, none of which is a control character",
    lambda value: isinstance(value, str) and _OBJECT.fullmatch(value) is not None,
)
RESUME_FROM = Kind(
    str,
    "earliest|latest|TIME",
    f"earliest, latest, or a date or a time, as in {_EXAMPLES}",
    lambda value: value in ("earliest", "latest") or _is_moment(value),
    examples=f"earliest, latest, {_EXAMPLES}; {_UTC}",
)
VOID_FROM = Kind(
    str,
    "auto|RECORD",
    "auto, or the number of a record",
    lambda value: value == "auto" or _is_id(value),
    examples="auto, 41",
)
TRACED_ROW = Kind(
    str,
    "COLUMN=VALUE…",
    "COLUMN=VALUE, several of them with a blank between them, a value with blanks in quotes",
    names_row,
    examples="city=Bergen; city='New York' day=2026-07-01",
)
URL = Kind(str, "URL")

TAKE_OVER = switch(
    "take_over",
    "Abort the running epoch of another session even if its lease is valid, and fence that session. This is always "
    "safe, but it discards the work of that epoch.",
    "Take over",
)
