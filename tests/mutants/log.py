"""Seeded mutants of what keeps a log small: compaction, lists of garbage, columns; and of kept failing rows."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COMPACTION = "tests/unit/protocol/manifest/upkeep/test_compaction.py::"
_LOG = "tests/unit/jobmaster/retention/test_log_compaction.py::"
_LISTS = "tests/unit/protocol/manifest/upkeep/test_garbage_lists.py::"
_PACKING = "tests/unit/protocol/codec/test_packing.py::"
_VETOES = "tests/unit/jobmaster/retention/test_vetoes.py::"

MUTANTS = (
    Mutant(
        "the entry that opened an open fork is compacted",
        "I6",
        "pipeline/milepost/protocol/manifest/upkeep/compaction.py",
        '    needed += [int(one.timeline_id.removeprefix("t")) for one in open_forks(state)]\n',
        "",
        (_COMPACTION + "test_the_opening_of_an_open_fork_and_a_switch_that_a_sink_has_yet_to_follow_stay_whole",),
    ),
    Mutant(
        "the log is compacted while an end has something to clean up",
        "I6",
        "pipeline/milepost/protocol/manifest/upkeep/compaction.py",
        "    if _is_dirty(state):\n        return state.compacted + 1\n",
        "",
        (_COMPACTION + "test_nothing_is_compacted_while_an_end_has_something_to_clean_up",),
    ),
    Mutant(
        "the log is said to be compacted up to an entry that could not be replaced",
        "I6",
        "pipeline/milepost/storage/manifest_log.py",
        "                done.result()\n                through = version\n",
        "                through = version\n                done.result()\n",
        (_LOG + "test_a_compaction_that_breaks_off_anywhere_is_finished_by_the_next",),
    ),
    Mutant(
        "columns lose what their texts end with",
        "I2",
        "pipeline/milepost/protocol/codec/packing.py",
        '            return [f"{prefix}{value}{suffix}" for value in values]\n',
        '            return [f"{prefix}{value}" for value in values]\n',
        (_PACKING + "test_what_is_packed_comes_back_as_it_was_types_included",),
    ),
    Mutant(
        "a fold lets keys go as early as the oldest of its parts",
        "I8",
        "pipeline/milepost/protocol/manifest/upkeep/garbage.py",
        "since_ms=max(since_ms for _, since_ms in parts))\n",
        "since_ms=min(since_ms for _, since_ms in parts))\n",
        (_LISTS + "test_a_fold_changes_nothing_of_what_is_garbage_and_hurries_nothing",),
    ),
    Mutant(
        "a fold may leave out a key that it replaces",
        "I8",
        "pipeline/milepost/protocol/manifest/upkeep/garbage.py",
        "    if not {entry.prefix for entry in plan.garbage} <= set(request.keys) or folded.count > most:\n",
        "    if folded.count > most:\n",
        (_LISTS + "test_a_fold_that_forgets_an_entry_or_invents_a_key_is_refused",),
    ),
    Mutant(
        "failing rows are collected before their time",
        "I8",
        "pipeline/milepost/jobmaster/retention/vetoes.py",
        "        if is_veto_key(stat.key) and is_expired(context, stat.last_modified_ms, now_ms)\n",
        "        if is_veto_key(stat.key)\n",
        (_VETOES + "test_an_epoch_collects_what_is_too_old",),
    ),
)
