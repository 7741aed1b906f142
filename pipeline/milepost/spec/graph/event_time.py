"""Event time per kind of node: what times its rows, how old they may be, and which rows it takes for late."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventTimeRule:
    """One row of the reference.

    Attributes:
        kind: of a node. event_time: of its rows. holds_back: how far its rows' watermark is behind its own.
        late: rows of its input that go to `<uid>.late`, by their event time and their stamp.
    """

    kind: str
    event_time: str
    holds_back: str
    late: str


NOTHING = "nothing"

EVENT_TIME_RULES = (
    EventTimeRule("source", "the column `event_time`; without it none, and no watermark", "`watermark_delay`", NOTHING),
    EventTimeRule("sql", "its input's, under its own name; else none", NOTHING, NOTHING),
    EventTimeRule("lookup", "its input's; the static source has none, and holds nobody back", NOTHING, NOTHING),
    EventTimeRule("deduplicate", "its input's", NOTHING, "with a `ttl`: event time < stamp − ttl"),
    EventTimeRule(
        "window",
        "`window_end` less 1 µs: the last moment of the window; none of sessions that may come out again",
        "`allowed_lateness`",
        "window_end + allowed_lateness ≤ stamp, of the last one that it is in; for sessions event time < stamp − "
        "allowed_lateness",
    ),
    EventTimeRule("aggregate", "none", NOTHING, NOTHING),
    EventTimeRule("top", "none", NOTHING, NOTHING),
    EventTimeRule("latest", "none", NOTHING, "with a `tombstone_ttl`: event time < stamp − tombstone_ttl"),
    EventTimeRule(
        "join",
        "its left input's, under its name; of `how: right`, where no left row pairs, the right row's",
        "max(0, hi) of `within: [lo, hi]`; of `how: right` no less than −lo",
        "event time < stamp, of either input: `<uid>.late.<input>`",
    ),
    EventTimeRule(
        "asof",
        "its left input's, under its name",
        NOTHING,
        "event time < stamp, of either input: `<uid>.late.<input>`",
    ),
    EventTimeRule(
        "process",
        "its input's, where `output` has a timestamp of its name; of several, where all call it so; else none",
        NOTHING,
        NOTHING,
    ),
)
"""What the graph (`rules/node.py`) and the operators do, in words."""
