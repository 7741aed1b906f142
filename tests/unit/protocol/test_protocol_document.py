"""The tables of PROTOCOL.md are equal to those in the code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

import pytest

import milepost.protocol
from milepost.protocol.manifest.transaction.lease import SWEEP_REASONS, LeaseStatus
from milepost.protocol.manifest.transaction.transitions import CHECKPOINT_RULES, JOB_RULES, Rule, Status
from milepost.protocol.records.reasons import FLINK_COUNTED_REASONS, CheckpointFailureReason
from milepost.protocol.subtask.barrier_states import ALIGNMENT_RULES, AlignmentState

DOCUMENT = Path(milepost.protocol.__file__).parent / "PROTOCOL.md"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def _name(status: Enum | None) -> str:
    return "(none)" if status is None else str(status.value)


def _statuses(rules: Sequence[Rule[Status]]) -> str:
    return _table(
        ("status", "event", "when", "next status"),
        [(_name(rule.before), rule.event.__name__, rule.when, _name(rule.after)) for rule in rules],
    )


def _alignments() -> str:
    """By state, in the order in which rows are tried."""
    rows = []
    for rule in sorted(ALIGNMENT_RULES, key=lambda rule: list(AlignmentState).index(rule.state)):
        does = ", ".join(step.value for step in rule.steps) if rule.after is not None else "refused"
        after = "" if rule.after in (None, rule.state) else rule.after.value
        rows.append((rule.state.value, rule.event.value, rule.when.value, does, after))
    return _table(("state", "event", "if", "does", "next"), rows)


def _leases() -> str:
    rows = []
    for status in LeaseStatus:
        aborts = (
            "Busy" if status is LeaseStatus.HELD else f"adopt if finished, else abort {SWEEP_REASONS[status].value}"
        )
        rows.append((status.value, aborts))
    return _table(("lease", "a newcomer's sweep"), rows)


def _counted(reason: CheckpointFailureReason) -> str:
    return "yes (Flink)" if reason in FLINK_COUNTED_REASONS else "yes" if reason.counted else "no"


def _reasons() -> str:
    rows = [(reason.value, _counted(reason), reason.meaning) for reason in CheckpointFailureReason]
    return _table(("reason", "counted", "meaning"), rows)


TABLES = {
    "job": _statuses(JOB_RULES),
    "checkpoint": _statuses(CHECKPOINT_RULES),
    "lease": _leases(),
    "reasons": _reasons(),
    "barriers": _alignments(),
}


def test_every_table_of_the_protocol_is_held_to_the_code() -> None:
    assert set(re.findall(r"<!-- table: (\S+) -->", DOCUMENT.read_text("utf-8"))) == TABLES.keys()


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_the_protocol_are_those_of_the_code(name: str) -> None:
    found = re.search(rf"<!-- table: {name} -->\n(.*?)\n<!-- end -->", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert found is not None and found[1] == TABLES[name]
