"""Seeded mutants of what the job master does around an epoch: retention, publication, savepoints, the last looks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PUBLICATION = "tests/unit/jobmaster/run/test_publication.py::"
_BACKFILL = "tests/unit/jobmaster/backfill/test_backfill.py::"
_ROLLBACK = "tests/unit/jobmaster/rollback/test_rollback.py::"
_SAVEPOINTS = "tests/unit/jobmaster/savepoints/test_savepoints.py::"

MUTANTS = (
    Mutant(
        "old checkpoints are subsumed although one that is kept cannot be read",
        "I8",
        "pipeline/milepost/jobmaster/retention/subsumption.py",
        "    if any(item.checkpoint_id not in needed for item in kept):\n",
        "    if not needed:\n",
        (_ROLLBACK + "test_while_a_kept_checkpoint_cannot_be_read_nothing_is_subsumed",),
    ),
    Mutant(
        "a fork becomes the live timeline whatever it has consumed",
        "I14",
        "pipeline/milepost/jobmaster/backfill/backfill_run.py",
        "        check_equal(consumed_by(context, context.base_metadata(at.state, head)), consumed_by",
        "        (consumed_by(context, context.base_metadata(at.state, head)), consumed_by",
        (_BACKFILL + "test_the_last_look_before_the_switch_does_not_rely_on_what_was_left_to_replay",),
    ),
    Mutant(
        "an epoch is committed although a table is not where the job left it",
        "I14",
        "pipeline/milepost/jobmaster/run/attempt.py",
        "        _check_position(opened.state, name, sink, predecessor)\n",
        "",
        (_PUBLICATION + "test_a_table_that_is_not_where_the_job_left_it_fails_the_epoch_before_its_commit_point",),
    ),
    Mutant(
        "what was staged at one place is published at another",
        "I14",
        "pipeline/milepost/jobmaster/leadership/leadership.py",
        "        if snapshot.location != self.context.sink_location(name):\n",
        "        if not snapshot.location:\n",
        (_PUBLICATION + "test_a_sink_that_is_moved_after_the_commit_point_gets_nothing_at_its_new_place",),
    ),
    Mutant(
        "an epoch is published before an older one that the sink has yet to get",
        "I14",
        "pipeline/milepost/jobmaster/leadership/leadership.py",
        "            if checkpoint.checkpoint_id <= target.checkpoint_id and sink in checkpoint.unconfirmed:\n",
        "            if checkpoint.checkpoint_id == target.checkpoint_id and sink in checkpoint.unconfirmed:\n",
        (_PUBLICATION + "test_a_sink_that_was_down_gets_the_older_epoch_before_the_new_one",),
    ),
    Mutant(
        "a savepoint that took the place of the one to be disposed of is disposed of",
        "I8",
        "pipeline/milepost/jobmaster/savepoints/savepoints.py",
        "            if next((one for one in state.savepoints if one.name == name), savepoint) != savepoint:\n",
        "            if all(one.name != name for one in (*state.savepoints, savepoint)):\n",
        (_SAVEPOINTS + "test_a_savepoint_that_was_replaced_meanwhile_is_not_disposed_of",),
    ),
)
