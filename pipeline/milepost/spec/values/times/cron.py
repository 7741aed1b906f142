"""A cron expression says how often it fires, on average: what is reckoned from it needs no calendar."""

from __future__ import annotations

_PRESETS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}  # fmt: skip
DAYS_OF_MONTH = 30.4375
_NAMES = ("jan feb mar apr may jun jul aug sep oct nov dec", "sun mon tue wed thu fri sat")


def runs_per_day(expression: str) -> float | None:
    """Return how often an expression fires a day on average; None: it has parts that are not understood (L, W, #).

    Args:
        expression: five fields or a preset; a day that fits either of day of month and of week counts, as in cron.
    """
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
    for number, name in enumerate(names.split(), first):
        field = field.replace(name, str(number))
    return field


def _values(field: str, lowest: int, highest: int) -> set[int]:
    """Return what a field stands for. Raises ValueError."""
    found: set[int] = set()
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
        found.update(range(start, stop + 1, int(step) if step else 1))
    return found
