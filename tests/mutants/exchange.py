"""Mutants of the exchange, of the code that runs, and of the sink chain: I12, I13, I14."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CHECK = "pipeline/milepost/protocol/exchange/channel_check.py"
_ACKNOWLEDGEMENTS = "pipeline/milepost/protocol/exchange/acknowledgements.py"
_CODE = "pipeline/milepost/jobmaster/job/code.py"
_CHAIN = "pipeline/milepost/dataflow/sinks/sink_chain.py"
_READER = "pipeline/milepost/dataflow/sinks/chain_reader.py"
_LEADERSHIP = "pipeline/milepost/jobmaster/leadership/leadership.py"

_TEST_BARRIER = "tests/unit/protocol/exchange/test_barrier.py::"
_TEST_ACKNOWLEDGEMENTS = "tests/unit/protocol/exchange/test_acknowledgements.py::"
_TEST_CODE = "tests/unit/jobmaster/job/test_recorded_code.py::"
_TEST_SINK = "tests/unit/dataflow/sinks/test_parquet_conformance.py::TestUpsert::"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a channel's content is not compared with what its barrier states",
        "I12",
        _CHECK,
        "elif (stated := barrier.channels.get(identity.subtask)) != (found := state.digest.sum()):",
        "elif (stated := barrier.channels.get(identity.subtask)) is None and (found := state.digest.sum()):",
        (
            _TEST_BARRIER + "test_a_dropped_last_buffer_is_a_decline",
            _TEST_BARRIER + "test_other_content_than_the_barrier_states_is_a_digest_mismatch",
        ),
    ),
    Mutant(
        "a barrier of another epoch or token is taken",
        "I12",
        _CHECK,
        "elif (barrier.checkpoint_id, barrier.token) != (identity.checkpoint_id, identity.token):",
        "elif barrier.checkpoint_id < 0:",
        (_TEST_BARRIER + "test_a_barrier_of_another_epoch_or_token_is_refused",),
    ),
    Mutant(
        "an acknowledgement is not held to the barrier that came before it",
        "I12",
        _CHECK,
        "elif event.own.barrier != state.barrier.digest:",
        "elif not event.own.barrier:",
        (_TEST_BARRIER + "test_an_acknowledgement_of_another_barrier_than_the_one_that_came_is_a_digest_mismatch",),
    ),
    Mutant(
        "a buffer that is missing between two others is not noticed",
        "I12",
        _CHECK,
        "if sequence != state.digest.count:",
        "if sequence < state.digest.count:",
        (_TEST_BARRIER + "test_a_dropped_middle_buffer_is_a_decline",),
    ),
    Mutant(
        "two attempts of one subtask are taken for copies of one",
        "I12",
        _ACKNOWLEDGEMENTS,
        "return one.attempt_digest == other.attempt_digest and set(one.consumed) == set(other.consumed)",
        "return True",
        (_TEST_ACKNOWLEDGEMENTS + "test_two_attempts_of_one_subtask_decline",),
    ),
    Mutant(
        "the driver does not compare the attempts that were consumed with those that acknowledged",
        "I12",
        _ACKNOWLEDGEMENTS,
        "    _check_consumed(checkpoint_id, ordered, first)\n",
        "",
        (_TEST_ACKNOWLEDGEMENTS + "test_a_consumed_attempt_that_is_not_the_acknowledged_one_declines",),
    ),
    Mutant(
        "code that was edited after the trigger runs and is recorded as what it was",
        "I13",
        _CODE,
        "    if code is not None and code.hash == pending.code_hash:\n",
        "    if code is not None:\n",
        (_TEST_CODE + "test_code_that_changes_between_trigger_and_run_declines_the_epoch",),
    ),
    Mutant(
        "a spec that was edited after the trigger runs under the plan of the old one",
        "I13",
        _CODE,
        "    if context.job.spec_hash != pending.spec_hash:\n",
        "    if not context.job.spec_hash:\n",
        (_TEST_CODE + "test_a_spec_that_changes_between_trigger_and_run_declines_the_epoch",),
    ),
    Mutant(
        "the hash of a job's code leaves its process functions out",
        "I13",
        "pipeline/milepost/epoch/code_hash.py",
        "    if not functions:\n        return CODE_HASH\n",
        "    return CODE_HASH\n",
        (_TEST_CODE + "test_code_that_changes_between_trigger_and_run_declines_the_epoch",),
    ),
    Mutant(
        "a sink's head is overwritten instead of created",
        "I14",
        _CHAIN,
        "self._store.create(key, head_to_bytes(head))",
        "self._store.put(key, head_to_bytes(head))",
        ("tests/unit/dataflow/sinks/test_parquet.py::test_a_head_that_lands_just_before_ours_is_never_overwritten",),
    ),
    Mutant(
        "a commit does not ask whether the head is its predecessor",
        "I14",
        _CHAIN,
        "if (at or None) != (mark.predecessor or None):",
        "if at is not None and at < 0:",
        (
            _TEST_SINK + "test_a_commit_out_of_order_is_refused",
            _TEST_SINK + "test_a_stalled_commit_whose_place_was_taken_is_superseded",
        ),
    ),
    Mutant(
        "the highest checkpoint id wins",
        "I14",
        _CHAIN,
        "if (at or None) != (mark.predecessor or None):",
        "if (at or 0) > mark.checkpoint_id:",
        (_TEST_SINK + "test_a_commit_out_of_order_is_refused",),
    ),
    Mutant(
        "a commit that is repeated publishes again",
        "I14",
        _CHAIN,
        "            if self.already(head, mark, committable_sha256):\n                return False\n",
        "",
        (_TEST_SINK + "test_a_commit_that_is_repeated_publishes_once",),
    ),
    Mutant(
        "a mark that is there with other content is called done",
        "I14",
        _CHAIN,
        "if not ours or entry.committable_sha256 != committable_sha256:",
        "if not entry.timeline:",
        (_TEST_SINK + "test_the_same_checkpoint_with_other_content_is_never_called_done",),
    ),
    Mutant(
        "any head of our version is taken for our own lost reply",
        "I14",
        _CHAIN,
        "return there.write_id == head.write_id",
        "return there.version == head.version",
        (_TEST_SINK + "test_a_stalled_commit_whose_place_was_taken_is_superseded",),
    ),
    Mutant(
        "a commit of the timeline that was left lands on the new one",
        "I14",
        _CHAIN,
        "            if head is not None and head.mark.timeline != mark.timeline:\n"
        "                raise self._superseded(mark, head)\n",
        "",
        (
            _TEST_SINK + "test_a_commit_of_the_timeline_that_was_left_never_lands_again",
            _TEST_SINK + "test_a_table_that_was_never_published_follows_too",
        ),
    ),
    Mutant(
        "a table goes back to an older decision",
        "I14",
        _CHAIN,
        "        if head.decision > decision:\n",
        "        if head.decision < 0:\n",
        (_TEST_SINK + "test_of_two_decisions_the_newer_one_counts_in_either_order",),
    ),
    Mutant(
        "a follow that is repeated undoes what came since",
        "I14",
        _CHAIN,
        "if head is None or head.decision < decision:",
        "if head is None or head.decision <= decision:",
        (_TEST_SINK + "test_a_follow_that_is_repeated_undoes_nothing_that_came_since",),
    ),
    Mutant(
        "what was never published does not come with the follow",
        "I14",
        _CHAIN,
        "            files += addition.files\n",
        "",
        (_TEST_SINK + "test_what_was_completed_and_never_published_comes_with_the_follow",),
    ),
    Mutant(
        "the lineages that a follow left are forgotten",
        "I14",
        _READER,
        "left = head.followed_at - 1",
        "left = 0",
        (
            _TEST_SINK + "test_a_rollback_can_be_rolled_back",
            _TEST_SINK + "test_an_abort_keeps_what_any_lineage_published",
        ),
    ),
    Mutant(
        "files that came with a follow count as never published",
        "I8",
        _CHAIN,
        "added=tuple(file for addition in additions for file in addition.files),",
        "added=(),",
        (_TEST_SINK + "test_what_the_lineages_that_were_left_published_is_known_and_so_is_what_each_checkpoint_needs",),
    ),
)
