"""Event time rules per kind of node, as text for the reference."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventTimeRule:
    """One row of the reference.

    Attributes:
        kind: kind of node.
        event_time: event time of its rows.
        holds_back: how far the watermark of its rows is behind its own.
        late: condition on event time and stamp under which input rows go to `<uid>.late`.
    """

    kind: str
    event_time: str
    holds_back: str
    late: str


NOTHING = "nothing"

EVENT_TIME_RULES = (
    EventTimeRule(
        "source", "the column `event_time`; without it no event time and no watermark", "`watermark_delay`", NOTHING
    ),
    EventTimeRule("sql", "that of its input, if the column keeps its name; otherwise none", NOTHING, NOTHING),
    EventTimeRule("lookup", "that of its input; the static source has none and holds nothing back", NOTHING, NOTHING),
    EventTimeRule("deduplicate", "that of its input", NOTHING, "with a `ttl`: event time < stamp − ttl"),
    EventTimeRule(
        "window",
        "`window_end` minus 1 µs, the last microsecond of the window; none for sessions that may be emitted again",
        "`allowed_lateness`",
        "window_end + allowed_lateness ≤ stamp, for the last window of the row; for sessions event time < stamp − "
        "allowed_lateness",
    ),
    EventTimeRule("aggregate", "none", NOTHING, NOTHING),
    EventTimeRule("top", "none", NOTHING, NOTHING),
    EventTimeRule("latest", "none", NOTHING, "with a `tombstone_ttl`: event time < stamp − tombstone_ttl"),
    EventTimeRule(
        "join",
        "that of its left input; with `how: right`, that of the right row if no left row matches",
        "max(0, hi) of `within: [lo, hi]`; with `how: right` at least −lo",
        "event time < stamp, for either input: `<uid>.late.<input>`",
    ),
    EventTimeRule(
        "asof",
        "that of its left input",
        NOTHING,
        "event time < stamp, for either input: `<uid>.late.<input>`",
    ),
    EventTimeRule(
        "process",
        "that of its inputs, if it has the same name in all of them and `output` has a timestamp of that name; "
        "otherwise none",
        NOTHING,
        NOTHING,
    ),
)
"""The rules that the graph (`rules/node.py`) and the operators implement, as text."""
