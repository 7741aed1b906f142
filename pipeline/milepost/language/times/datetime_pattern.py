"""Translate datetime patterns with Spark's letters (`dd.MM.yyyy HH:mm`) to regular expressions.

pyarrow's `strptime` is not strict enough: it reads 31.02. as 3 March, skips white space, and does not parse fractions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
SHORT_MONTHS = tuple(name[:3] for name in MONTHS)

_LETTERS = {
    "yyyy": ("year", r"[0-9]{4}"),
    "yy": ("short_year", r"[0-9]{2}"),
    "M": ("month", r"[0-9]{1,2}"),
    "MM": ("month", r"[0-9]{2}"),
    "MMM": ("short_month", "|".join(SHORT_MONTHS)),
    "MMMM": ("long_month", "|".join(MONTHS)),
    "d": ("day", r"[0-9]{1,2}"),
    "dd": ("day", r"[0-9]{2}"),
    "H": ("hour", r"[0-9]{1,2}"),
    "HH": ("hour", r"[0-9]{2}"),
    "h": ("half_hour", r"[0-9]{1,2}"),
    "hh": ("half_hour", r"[0-9]{2}"),
    "a": ("half", "AM|PM"),
    "m": ("minute", r"[0-9]{1,2}"),
    "mm": ("minute", r"[0-9]{2}"),
    "s": ("second", r"[0-9]{1,2}"),
    "ss": ("second", r"[0-9]{2}"),
    **{"S" * count: ("fraction", rf"[0-9]{{1,{count}}}") for count in range(1, 10)},
    "X": ("offset", r"Z|[+-][0-9]{2}(?:[0-9]{2})?"),
    "XX": ("offset", r"Z|[+-][0-9]{4}"),
    "XXX": ("offset", r"Z|[+-][0-9]{2}:[0-9]{2}"),
    "x": ("offset", r"[+-][0-9]{2}(?:[0-9]{2})?"),
    "xx": ("offset", r"[+-][0-9]{4}"),
    "xxx": ("offset", r"[+-][0-9]{2}:[0-9]{2}"),
    "Z": ("offset", r"[+-][0-9]{4}"),
}
"""Pattern letters -> (part of the time, regular expression)."""

LETTERS = "yyyy yy M MM MMM MMMM d dd H HH h hh a m mm s ss S to SSSSSSSSS X XX XXX x xx xxx Z"
"""The supported letters, as messages list them."""

_INSTEAD = {"Y": "yyyy", "u": "yyyy", "y": "yyyy", "L": "MM", "k": "HH", "K": "hh"}
_INSTEAD |= dict.fromkeys("zVO", "XXX") | {"n": "SSSSSSSSS", "A": "a"}
_KINDS = {
    "short_year": "year", "short_month": "month", "long_month": "month", "half_hour": "hour",
}  # fmt: skip
_NEEDS = {"minute": "hour", "second": "minute", "fraction": "second"}
_RESERVED = "#{}"
_LONGEST = 100
_MOST_OPTIONAL = 8


@dataclass(frozen=True, slots=True)
class DatetimePattern:
    """A parsed pattern.

    Attributes:
        expression: regular expression that matches a whole text, with a named group for each part.
        parts: names of the groups.
    """

    text: str
    expression: str
    parts: frozenset[str]

    @property
    def has_offset(self) -> bool:
        """Whether texts contain their offset from UTC."""
        return "offset" in self.parts


def parse_pattern(text: str) -> DatetimePattern:
    """Parse a pattern.

    Raises:
        ValueError: it contains an unsupported letter, or does not describe a date.
    """
    # `d.MM.yyyy[ HH:mm]` becomes
    #   (?P<day>[0-9]{1,2})\.(?P<month>[0-9]{2})\.(?P<year>[0-9]{4})(?:\ (?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}))?
    if len(text) > _LONGEST:
        raise ValueError(f"expected a pattern of at most {_LONGEST} characters, got {len(text)}")
    if "%" in text:
        raise ValueError(f"{text!r}: expected Spark's pattern letters, such as dd.MM.yyyy HH:mm, not those of strptime")
    pieces: list[str] = []
    parts: list[str] = []
    is_variable, opened = False, 0
    required: set[str] = set()
    for run in _runs(text):
        if run[0].isascii() and run[0].isalpha():
            part, expression = _part(text, run)
            if part in parts or _KINDS.get(part, part) in {_KINDS.get(earlier, earlier) for earlier in parts}:
                raise ValueError(f"{text!r} has the {_KINDS.get(part, part)} twice")
            is_digits = expression.startswith("[0-9]")
            if is_variable and is_digits:
                raise ValueError(
                    f"{text!r}: {run} directly follows a number of variable length; write that number with two letters"
                )
            is_variable = is_digits and expression.endswith(",2}")
            parts.append(part)
            required |= set() if opened else {_KINDS.get(part, part)}
            pieces.append(f"(?P<{part}>{expression})")
            continue
        is_variable = is_variable and run in "[]"
        opened += {"[": 1, "]": -1}.get(run, 0)
        if opened < 0:
            break
        pieces.append({"[": "(?:", "]": ")?"}.get(run) or re.escape(_literal(text, run)))
    if opened:
        raise ValueError(f"{text!r}: the brackets [ and ] do not match")
    _check_parts(text, parts, required)
    return DatetimePattern(text, "".join(pieces), frozenset(parts))


def accepts_all_of(text: str, other: str) -> bool:
    """Return whether a pattern accepts every text that `other` accepts: it has the same parts, or more optional ones.

    Patterns with too many optional parts are not compared: the result is False.
    """
    return set() < _expanded(other) <= _expanded(text)


def _expanded(text: str) -> set[tuple[str, ...]]:
    """Return all variants of a pattern, with and without each optional part; an empty set if there are too many."""
    # `HH:mm[:ss]` -> {("HH", ":", "mm"), ("HH", ":", "mm", ":", "ss")}
    runs = _runs(text)
    if runs.count("[") > _MOST_OPTIONAL:
        return set()
    levels: list[set[tuple[str, ...]]] = [{()}]
    for run in runs:
        if run == "[":
            levels.append({()})
        elif run == "]" and len(levels) > 1:
            inner = levels.pop() | {()}
            levels[-1] = {(*before, *part) for before in levels[-1] for part in inner}
        else:
            levels[-1] = {(*before, run) for before in levels[-1]}
    return levels[0]


def _runs(text: str) -> list[str]:
    """Split a pattern into quoted texts, runs of the same letter, and single other characters."""
    runs: list[str] = []
    for quoted, other in re.findall(r"('(?:[^']|'')*'?)|([^']+)", text):
        if quoted:
            runs.append(quoted)
        else:
            for character, same in groupby(other):
                run = "".join(same)
                runs += [run] if character.isalpha() else run
    return runs


def _part(text: str, run: str) -> tuple[str, str]:
    """Return (part of the time, regular expression) of a run of letters. Raises ValueError."""
    if run not in _LETTERS:
        instead = f" (did you mean {_INSTEAD[run[0]]}?)" if run[0] in _INSTEAD else ""
        raise ValueError(
            f"{text!r}: {run} is not supported{instead}; supported: {LETTERS}; put other text in single quotes"
        )
    return _LETTERS[run]


def _literal(text: str, run: str) -> str:
    """Return the literal text of a run. Raises ValueError."""
    if run in _RESERVED:
        raise ValueError(f"{text!r}: {run} is reserved; put it in single quotes")
    if not run.startswith("'"):
        return run
    if len(run) < 2 or not run.endswith("'"):
        raise ValueError(f"{text!r}: a single quote is not closed")
    return run[1:-1].replace("''", "'") or "'"


def _check_parts(text: str, parts: list[str], required: set[str]) -> None:
    """Raise ValueError if the parts do not determine a time."""
    kinds = {_KINDS.get(part, part) for part in parts}
    for part, letters in (("year", "yyyy"), ("month", "MM"), ("day", "dd")):
        if part not in required:
            raise ValueError(f"{text!r} has no {part} ({letters}), which a date needs")
    if ("half_hour" in parts) != ("half" in parts):
        raise ValueError(f"{text!r}: h (1 to 12) and a (AM or PM) must occur together; H is 0 to 23")
    order = [_KINDS.get(part, part) for part in parts]
    if {"hour", "minute"} <= kinds and order.index("minute") < order.index("hour"):
        minute = "mm" if "mm" in text else "m"
        raise ValueError(f"{text!r} has the minute ({minute}) before the hour; MM is the month")
    for part, other in _NEEDS.items():
        if part in kinds and other not in kinds:
            raise ValueError(f"{text!r} has a {part} but no {other}")
