"""Find event times and keys in the rows of a sample."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import INTEGERS
from milepost.sources.inference.proposal import EventTimeCandidate, ProposedColumn

_TIME_WORDS = re.compile(
    r"(?:^|[_ ])(?:at|on|ts|time|timestamp|date|datetime|day|created|occurred|event)(?:$|[_ ])|Time|Date|At$"
)
_NO_EVENT = re.compile(r"birth|dob|expir|valid|due|until|end|deleted", re.IGNORECASE)
_KEY_WORDS = re.compile(
    r"^(?:id|key|uuid|guid|code|number|nr|no)$|[_ -](?:id|key|uuid|guid|code|number|nr|no)$|I[Dd]$", re.IGNORECASE
)
_MIN_ROWS = 2
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000}
_SECONDS = (946_684_800, 4_102_444_800)
"""The years 2000 to 2099, since 1970."""


def event_times(columns: Sequence[ProposedColumn], rows: pa.Table) -> tuple[EventTimeCandidate, ...]:
    """Return the columns without nulls that have times, the best one first."""
    ranked: list[tuple[tuple[int, bool, bool, int], EventTimeCandidate]] = []
    for at, column in enumerate(columns):
        values = rows[column.name]
        if column.is_optional or values.null_count or not rows.num_rows:
            continue
        found = _candidate(column, values)
        if found is not None:
            rank, candidate = found
            doubtful = _NO_EVENT.search(column.name) is not None
            named = _TIME_WORDS.search(column.name) is not None
            ranked.append(((rank + 10 * doubtful, not named, doubtful, at), candidate))
    return tuple(candidate for _, candidate in sorted(ranked, key=lambda pair: pair[0]))


def _candidate(column: ProposedColumn, values: pa.ChunkedArray) -> tuple[int, EventTimeCandidate] | None:
    name, type_ = column.name, column.type
    assert type_ is not None
    if type_.kind == "timestamp":
        if type_.utc:
            return 0, EventTimeCandidate(name, name, "times with a zone")
        local = "times without a zone are read as UTC; otherwise add `timezone: Europe/Berlin`"
        return 1, EventTimeCandidate(name, {"column": name, "timezone": "UTC"}, local)
    if type_.kind == "date":
        midnight = "dates are midnight UTC; otherwise add `timezone: Europe/Berlin`"
        return 3, EventTimeCandidate(name, {"column": name, "timezone": "UTC"}, midnight)
    if type_.kind == "string" and column.time_format is not None and not pc.any(pc.equal(values, "")).as_py():
        value = {"column": name, "format": column.time_format, "timezone": "UTC"}
        return 4, EventTimeCandidate(name, value, "text without a zone is read as UTC")
    if type_.kind in INTEGERS and _TIME_WORDS.search(name):
        low, high = (pc.min_max(values)[bound].as_py() for bound in ("min", "max"))
        for unit, factor in _UNITS.items():
            if _SECONDS[0] * factor <= low and high <= _SECONDS[1] * factor:
                value = {"column": name, "unit": unit}
                return 2, EventTimeCandidate(name, value, f"whole numbers, as {unit} since 1970")
    return None


def keys(columns: Sequence[ProposedColumn], rows: pa.Table, times: Sequence[str]) -> tuple[str, ...]:
    """Return the columns without nulls and duplicates, the best one first. Times and fractions are no keys."""
    if rows.num_rows < _MIN_ROWS:
        return ()
    found: list[tuple[bool, int, str]] = []
    for at, column in enumerate(columns):
        assert column.type is not None
        values = rows[column.name]
        if column.is_optional or column.name in times or column.type.kind not in ("string", *INTEGERS, "decimal"):
            continue
        if values.null_count or pc.count_distinct(values).as_py() != rows.num_rows:
            continue
        if column.type.kind == "string" and pc.any(pc.equal(values, "")).as_py():
            continue
        found.append((_KEY_WORDS.search(column.name) is None, at, column.name))
    return tuple(name for _, _, name in sorted(found))
