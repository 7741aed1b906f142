"""Seeded mutants of a backfill: it never fences the schedule, and only ever replaces what it has replayed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TEST = "tests/unit/jobmaster/backfill/test_backfill.py::"
_ALL_AT_ONCE = _TEST + "test_the_table_changes_at_the_end_all_at_once_and_equals_the_oracle"
_ROLLED_BACK = _TEST + "test_a_rollback_meanwhile_refuses_the_fast_forward"

MUTANTS = (
    Mutant(
        "a backfill triggers on the live timeline and fences the schedule",
        "I2",
        "pipeline/milepost/jobmaster/leadership/leadership.py",
        "            timeline=self.timeline_id,\n        )\n        return context.transact(request)",
        "            timeline=None,\n        )\n        return context.transact(request)",
        (_ALL_AT_ONCE,),
    ),
    Mutant(
        "a fork goes on replaying another live timeline than it was forked from",
        "I2",
        "pipeline/milepost/jobmaster/backfill/replay.py",
        "        if state.live != self.live:\n",
        "        if state.live == self.live and state.live != self.live:\n",
        (_ROLLED_BACK,),
    ),
    Mutant(
        "a fork holds its epochs to where the live table is",
        "I14",
        "pipeline/milepost/jobmaster/run/attempt.py",
        "        if timeline.role is not TimelineRole.LIVE:\n",
        "        if timeline.role is TimelineRole.ABANDONED:\n",
        (_ALL_AT_ONCE,),
    ),
)
