"""Check cron expressions against Airflow's grammar, and compute their average frequency."""

from __future__ import annotations

import re

_PRESETS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}  # fmt: skip
DAYS_OF_MONTH = 30.4375
_NAMES = ("jan feb mar apr may jun jul aug sep oct nov dec", "sun mon tue wed thu fri sat")
_FIELDS = (("minutes", 0, 59), ("hours", 0, 23), ("days", 1, 31), ("months", 1, 12), ("weekdays", 0, 7))
_PART = re.compile(r"(?:[*?]|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?")
_OF_A_MONTH = {"days": re.compile("l"), "weekdays": re.compile("l[0-7]|[0-7]#[1-5]")}
"""`l`: the last day of the month. `l5`, `5#2`: the last or the second Friday of the month."""
_LONGEST_MONTHS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}


def check_cron(text: str) -> str:
    """Return `text` if Airflow's scheduler accepts it.

    Airflow itself would reject an expression late, when it stores the DAGs, and with it all DAGs of the file.

    Raises:
        ValueError: it does not have five fields, a field is malformed or out of range, or it never fires.
    """
    if text in _PRESETS:
        return text
    fields = text.lower().split()
    if len(fields) != len(_FIELDS):
        presets = ", ".join(_PRESETS)
        raise ValueError(f'{text!r} is not a cron expression: five fields such as "*/10 * * * *", or {presets}')
    fields[3:] = [_numbered(fields[3], _NAMES[0], 1), _numbered(fields[4], _NAMES[1], 0)]
    for field, (name, least, most) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            if name in _OF_A_MONTH and _OF_A_MONTH[name].fullmatch(part):
                continue
            match = _PART.fullmatch(part)
            if match is None or (part.startswith("?") and name not in _OF_A_MONTH):
                raise ValueError(f"{text!r} is not a cron expression: {part!r} in the field {name}")
            outside = [value for value in match.groups()[:2] if value and not least <= int(value) <= most]
            outside += [step for step in match.groups()[2:] if step and not 0 < int(step) <= most]
            if outside:
                raise ValueError(f"{text!r}: {outside[0]} in the field {name}: expected {least} to {most}")
    if ("#" in fields[4] or "l" in fields[4]) and fields[2] not in ("*", "?"):
        raise ValueError(f"{text!r}: {fields[4]} already selects a day of the month, so the field days must be *")
    if fields[4] in ("*", "?") and not _has_a_date(fields[2], fields[3]):
        raise ValueError(f"{text!r} never fires: no month of {fields[3]} has a day {fields[2]}")
    return text


def _has_a_date(days: str, months: str) -> bool:
    """Return whether one of the months has one of the days. Return True for parts that `_values` cannot parse."""
    try:
        first_day, month_numbers = min(_values(days, 1, 31)), _values(months, 1, 12)
    except ValueError:
        return True
    return any(first_day <= _LONGEST_MONTHS.get(month, 31) for month in month_numbers)


def runs_per_day(expression: str) -> float | None:
    """Return how often an expression fires per day on average.

    None if it uses L, # or a range that wraps around, such as `22-2`. If both day of month and day of week are
    restricted, a day that matches either counts, as in cron.

    Args:
        expression: five fields or a preset.
    """
    # "0 6 * * 1,4": 1 minute × 1 hour × 2/7 of the days = 0.29 runs per day.
    fields = _PRESETS.get(expression, expression).lower().split()
    try:
        minutes = len(_values(fields[0], 0, 59))
        hours = len(_values(fields[1], 0, 23))
        of_month = len(_values(fields[2], 1, 31)) / DAYS_OF_MONTH
        months = len(_values(_numbered(fields[3], _NAMES[0], 1), 1, 12)) / 12
        of_week = len({day % 7 for day in _values(_numbered(fields[4], _NAMES[1], 0), 0, 7)}) / 7
    except (ValueError, IndexError):
        return None
    either = fields[2] not in "*?" and fields[4] not in "*?"
    days = of_month + of_week - of_month * of_week if either else min(of_month, 1.0) * of_week
    return minutes * hours * min(days, 1.0) * months


def _numbered(field: str, names: str, first: int) -> str:
    """Replace the names in a field by numbers: `mon-fri` -> `1-5`."""
    for number, name in enumerate(names.split(), first):
        field = field.replace(name, str(number))
    return field


def _values(field: str, lowest: int, highest: int) -> set[int]:
    """Return the values that a field matches. Raises ValueError."""
    values: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span in ("*", "?"):
            start, stop = lowest, highest
        else:
            start = int(first)
            stop = int(last) if last else (highest if step else start)
        if not lowest <= start <= stop <= highest:
            raise ValueError(field)
        values.update(range(start, stop + 1, int(step) if step else 1))
    return values
