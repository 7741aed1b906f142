"""Format counts, sizes, times and states for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from milepost.epoch import counted, lasting, observed
from milepost.views.tree import UNKNOWN, Figure, Link, LinkTarget, Meaning, Text

if TYPE_CHECKING:
    from milepost.jobmaster import Since

_DAY_MS = 86_400_000

STATES: Mapping[str, Meaning] = {
    **dict.fromkeys(("completed", "committed", "running", "passed", "met", "ok"), Meaning.GOOD),
    **dict.fromkeys(("aborted", "failed", "error", "raised", "FAIL", "refused", "unreadable"), Meaning.BAD),
    **dict.fromkeys(("pending", "initializing", "frozen"), Meaning.BUSY),
    **dict.fromkeys(("unconfirmed", "not met", "warning", "warned", "warn"), Meaning.WARN),
    **dict.fromkeys(("subsumed", "finished", "canceled", "skipped", "unpublished"), Meaning.CALM),
}
"""Word of a state -> what it means."""


def state(word: str) -> Text:
    """Return a state with its meaning."""
    return Text(word, STATES.get(word, Meaning.CALM))


def rule_state(met: bool, exception: str | None) -> Text:
    """Return the state of a quality rule in one epoch. exception: if it raised."""
    return state("raised" if exception is not None else "met" if met else "not met")


def observed_text(counts: Mapping[str, Any], exception: str | None) -> str:
    """Return what a quality rule observed, on one line, or the exception that it raised."""
    return exception or ", ".join(f"{name.replace('_', ' ')} {observed(name, value)}" for name, value in counts.items())


def checkpoint_link(checkpoint_id: int) -> Text:
    """Return the number of a checkpoint, with a link to its page."""
    return Text(Figure(checkpoint_id), link=Link(LinkTarget.JOB, ("checkpoints", checkpoint_id)))


def bounds_text(bounds: Mapping[str, Any] | None) -> str:
    """Return the bounds of a quality rule on one line: `min_value 0, max_value 90`."""
    return ", ".join(f"{name} {printable(value)}" for name, value in (bounds or {}).items())


def phase_name(phase: str) -> str:
    """Return a phase of an epoch for people, from its name in documents: `plan_ms` becomes `plan`."""
    name = phase.removesuffix("_ms")
    return "waiting for Airflow" if name == "airflow" else name


def failure_text(reason: str | None, detail: str | None) -> str:
    """Return why something failed, on one line."""
    return ": ".join(filter(None, (reason, " ".join((detail or "").split()))))


def printable(value: object) -> str:
    """Return a value on one line, without control characters that move the cursor or change colours."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (dict, list, tuple)):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in str(value))


def show_time(time: object) -> str:
    """Return ISO text as a UTC time of whole seconds; any other value as `printable`."""
    try:
        return datetime.fromisoformat(str(time)).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except ValueError:
        return printable(time)


def since_text(since: Since | None) -> str:
    """Return when something began: `since checkpoint 41, 07:01 UTC (2 h)`, with the date after a day; "" for None."""
    if since is None:
        return ""
    parts = [] if since.checkpoint_id is None else [f"checkpoint {since.checkpoint_id}"]
    if since.time is not None and since.age_ms is not None:
        form = "%H:%M UTC" if since.age_ms < _DAY_MS else "%Y-%m-%d %H:%M UTC"
        parts.append(f"{datetime.fromisoformat(since.time):{form}} ({lasting(since.age_ms)})")
    return f"since {', '.join(parts)}" if parts else ""


def show_bytes(size: object) -> str:
    """Return a number of bytes in a readable unit."""
    if not isinstance(size, (int, float)) or isinstance(size, bool):
        return UNKNOWN if size is None else printable(size)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return Figure(f"{size:,.0f} B" if unit == "B" else f"{size:.1f} {unit}")
        size /= 1000
    return Figure(f"{size:,.1f} TB")


def show_count(value: object) -> str:
    """Return a number with thousands separators; anything else as `printable`. The median of counts is a fraction."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Figure(f"{int(value):,}" if value == int(value) else f"{value:,}")
    return UNKNOWN if value is None else printable(value)


def counts(*values: object) -> Iterator[str]:
    """Yield each value as `show_count`."""
    return map(show_count, values)


def sizes(*values: object) -> Iterator[str]:
    """Yield each value as `show_bytes`."""
    return map(show_bytes, values)


class EpochRows(Protocol):
    """Figures of an epoch; not an `int`: unknown."""

    @property
    def rows_in(self) -> object: ...
    @property
    def rows_out(self) -> object: ...
    @property
    def late_rows(self) -> object: ...
    @property
    def dropped_rows(self) -> object: ...


def show_rows(epoch: EpochRows) -> str:
    """Return the known counts of an epoch: `58,500 rows in, 40 rows out, 9 late (hours 7, pairs 2), 2 of them dropped`.

    Late rows are given per operator if several had some. Dropped are those that no sink publishes. Rows that row rules
    rejected are given if there are some.
    """
    counts = ((epoch.rows_in, " in"), (epoch.rows_out, " out"))
    parts = [f"{counted(count, 'row')}{words}" for count, words in counts if isinstance(count, int)]
    if isinstance(epoch.late_rows, int):
        parts.append(f"{epoch.late_rows:,} late{_late_by_operator(epoch)}")
    if isinstance(epoch.dropped_rows, int) and epoch.dropped_rows:
        parts.append(f"{epoch.dropped_rows:,} of them dropped")
    rejected = getattr(epoch, "rejected_rows", None)
    if isinstance(rejected, int) and rejected:
        quarantined = getattr(epoch, "quarantined_rows", 0) or 0
        parts.append(f"{rejected:,} rejected ({quarantined:,} quarantined)")
    return ", ".join(parts)


def _late_by_operator(epoch: object) -> str:
    operators: Mapping[str, Any] = getattr(epoch, "operators", {})
    late = [f"{uid} {show_count(one.late_rows)}" for uid, one in operators.items() if one.late_rows]
    return f" ({', '.join(late)})" if len(late) > 1 else ""
