"""Event time rules per kind of node, as text for the reference."""

from __future__ import annotations

from milepost.operators import KINDS
from milepost.operators.base import EventTimeRule

EVENT_TIME_RULES = {
    "source": EventTimeRule(
        "the column `event_time`; without it no event time and no watermark", holds_back="`watermark_delay`"
    )
} | {kind: spec.event_time_rule for kind, spec in KINDS.items()}
"""Kind -> the rules that the graph and the operators implement, as text."""
