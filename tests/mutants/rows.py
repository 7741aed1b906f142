"""Seeded mutants of what a row becomes on its way from an object to a table."""

from __future__ import annotations

from tests.mutants.mutant import ROWS, Mutant

_EXCHANGE_WRITER = "tests/unit/spark/wire/test_exchange_writer.py::"
_TEST_LEVELS = "tests/unit/spark/task/test_levels.py::"
_TEST_LEVEL_PLAN = "tests/unit/spark/wire/test_level_plan.py::"
_SLICES = "tests/unit/spark/task/test_slices.py::"
_RESTORE = "tests/unit/jobmaster/savepoints/test_restore.py::"
_RULES = "tests/unit/dataflow/operators/test_operator_rules.py::"
_PARQUET = "tests/unit/dataflow/sinks/test_parquet.py::"
_FRESH_INPUT = "tests/unit/jobmaster/job/test_fresh_input.py::"
_EVENT_TIME = "tests/unit/jobmaster/test_event_time_ahead.py::"
_LEVEL_PLAN = "pipeline/milepost/spark/wire/level_plan.py"

MUTANTS = (
    Mutant(
        "a source's watermark follows the last batch alone",
        ROWS,
        "pipeline/milepost/dataflow/sources/event_times.py",
        "            self.newest_us = newest_us if self.newest_us is None else max(self.newest_us, newest_us)\n",
        "            self.newest_us = newest_us\n",
        ("tests/unit/spark/task/test_source_task.py::test_the_newest_event_time_is_that_of_all_batches",),
    ),
    Mutant(
        "a row of the year 9999 moves the watermark",
        ROWS,
        "pipeline/milepost/dataflow/sources/event_times.py",
        "_microseconds(newest, ns_per_unit) > limit_us:",
        "_microseconds(newest, ns_per_unit) > limit_us + 10**18:",
        ("tests/unit/dataflow/sources/test_event_times.py::test_a_row_ahead_is_counted_and_its_object_named",),
    ),
    Mutant(
        "a replay judges event times by its own trigger",
        ROWS,
        "pipeline/milepost/jobmaster/backfill/replay.py",
        "        tuple(obj for item in ranges for obj in item.objects.get(name, ())),\n",
        "        tuple(SourceObject(*version_of(obj), 0) for item in ranges for obj in item.objects.get(name, ())),\n",
        (_EVENT_TIME + "test_a_replay_reckons_from_the_trigger_that_first_read_each_object",),
    ),
    Mutant(
        "a file that may still be written is read",
        ROWS,
        "pipeline/milepost/dataflow/sources/plan.py",
        "(ages_ms < rules.settle_ms)",
        "(ages_ms < 0)",
        (_FRESH_INPUT + "test_a_young_file_is_left_for_the_next_plan_and_counts_as_unread",),
    ),
    Mutant(
        "a drained job ends while a file may still be written",
        ROWS,
        "pipeline/milepost/jobmaster/job/next_input.py",
        "not any(plan.settling for plan in plans.values())",
        "True",
        (_FRESH_INPUT + "test_a_drain_does_not_end_a_job_that_waits_for_a_young_file",),
    ),
    Mutant(
        "rows are on time for windows that have fired",
        ROWS,
        _LEVEL_PLAN,
        "        stamp_us = latest(stamp_us, fired_us)\n",
        "        stamp_us = stamp_us or fired_us\n",
        (_TEST_LEVEL_PLAN + "test_rows_of_a_source_are_late_by_its_watermark_and_never_on_time_for_what_has_fired",),
    ),
    Mutant(
        "rows of a source are stamped without a look at what has fired",
        ROWS,
        "pipeline/milepost/spark/task/levels.py",
        "lateness_us(clocks, plan.firing.get(node.uid, ()))",
        "lateness_us(clocks, ())",
        (_TEST_LEVELS + "test_the_rows_of_a_source_are_stamped_with_its_watermark_or_what_has_fired_if_that_is_later",),
    ),
    Mutant(
        "a slice of a subtask begins with the firing watermark of the slice before it",
        ROWS,
        "pipeline/milepost/spark/task/processing.py",
        "            self.fired_us = self._previous_us\n",
        "",
        (_SLICES + "test_rows_that_slices_put_out_have_the_stamps_that_they_would_have_without",),
    ),
    Mutant(
        "a job that starts from a drained one begins at the end of time",
        ROWS,
        "pipeline/milepost/jobmaster/savepoints/restored_copy.py",
        "            firing=(None,) * len(item.firing) if self._metadata.final else item.firing,\n",
        "            firing=item.firing,\n",
        (_RESTORE + "test_a_job_that_starts_from_a_drained_one_has_all_event_time_before_it",),
    ),
    Mutant(
        "an entry of the node's cache is found for a column that was added anew",
        ROWS,
        "pipeline/milepost/state/cache/cache.py",
        "[[field.name, str(field.type), stored_name(field)] for field in identity.stored]",
        "[[field.name, str(field.type)] for field in identity.stored]",
        ("tests/unit/state/cache/test_cache.py::test_an_entry_is_of_the_stored_column_and_not_of_its_name",),
    ),
    Mutant(
        "a key is remembered for a microsecond more than its ttl",
        ROWS,
        "pipeline/milepost/dataflow/operators/deduplicate.py",
        "            outlives = min(self._ttl_us + 1, END_OF_TIME_US)\n",
        "            outlives = min(self._ttl_us + 2, END_OF_TIME_US)\n",
        (_RULES + "test_a_key_is_remembered_up_to_the_microsecond_at_which_its_row_is_late",),
    ),
    Mutant(
        "a task returns from a declined epoch before its input is drained",
        ROWS,
        "pipeline/milepost/spark/task/output_stage.py",
        "        if decline is not None:\n            continue\n",
        "        if decline is not None:\n            break\n",
        (_EXCHANGE_WRITER + "test_the_input_is_drained_when_the_epoch_is_declined",),
    ),
    Mutant(
        "the pieces of one part of an upsert are staged one by one",
        ROWS,
        "pipeline/milepost/dataflow/sinks/table_schema.py",
        "groupby(pieces, key=lambda piece: piece.part)",
        "groupby(pieces, key=id)",
        (_PARQUET + "test_pieces_of_one_part_are_joined_before_the_last_row_of_each_key_is_taken",),
    ),
    Mutant(
        "an object is read past the size that was planned",
        ROWS,
        "pipeline/milepost/dataflow/sources/streams.py",
        "        stop = min(self._position + len(target), self._object.size)\n        if stop <= self._position:\n",
        "        stop = self._position + len(target)\n        if self._position >= self._object.size:\n",
        ("tests/unit/dataflow/sources/test_large_objects.py::test_no_range_ends_beyond_the_planned_size",),
    ),
    Mutant(
        "what a sender holds to fold it is not counted",
        ROWS,
        "pipeline/milepost/spark/wire/combining.py",
        "        self._bytes += rows.nbytes\n",
        "",
        (_EXCHANGE_WRITER + "test_what_is_held_is_folded_before_it_is_larger_than_a_task_may_hold",),
    ),
)
