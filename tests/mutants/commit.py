"""Mutants of the manifest log, of its state, and of the commit point: I1, I2, I5, I6, I7, I9."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LOG = "pipeline/milepost/storage/manifest_log.py"
_COORDINATOR = "pipeline/milepost/protocol/manifest/coordinator.py"
_PRECONDITIONS = "pipeline/milepost/protocol/manifest/transaction/preconditions.py"
_ACKNOWLEDGEMENTS = "pipeline/milepost/protocol/exchange/acknowledgements.py"
_FAILURES = "pipeline/milepost/protocol/failure/failures.py"
_ANSWERS = "pipeline/milepost/protocol/manifest/transaction/answers.py"
_LEADERSHIP = "pipeline/milepost/jobmaster/leadership/leadership.py"

_TEST_LOG = "tests/unit/storage/test_manifest_log.py::"
_TEST_COMPLETE = "tests/unit/protocol/manifest/test_complete_and_abort.py::"
_TEST_TRIGGER = "tests/unit/protocol/manifest/test_trigger_and_rebind.py::"
_TEST_INCARNATION = "tests/unit/protocol/manifest/timelines/test_incarnation.py::"
_TEST_ACKNOWLEDGEMENTS = "tests/unit/protocol/exchange/test_acknowledgements.py::"
_TEST_PENDING = "tests/conformance/protocol/coordinator/test_pending_checkpoint.py::"
_TEST_FAILURES = "tests/conformance/protocol/coordinator/test_failure_manager.py::"
_TEST_FINALIZING = "tests/conformance/protocol/coordinator/test_finalizing.py::"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a put of the manifest overwrites what another session wrote",
        "I1",
        _LOG,
        "self._store.create(manifest_key(entry.version), body)",
        "self._store.put(manifest_key(entry.version), body)",
        (_TEST_LOG + "test_an_entry_that_lands_just_before_ours_is_never_overwritten",),
    ),
    Mutant(
        "any entry under our version is taken for ours, without comparing write ids",
        "I1",
        _LOG,
        "if stored == entry.write_id:",
        "if stored is not None:",
        (_TEST_LOG + "test_a_lost_race_is_decided_again_on_the_new_head",),
    ),
    Mutant(
        "our own put whose reply was lost is taken for a lost race",
        "I1",
        _LOG,
        "if stored == entry.write_id:",
        "if stored == 'nobody':",
        (_TEST_LOG + "test_a_lost_reply_is_found_to_have_landed",),
    ),
    Mutant(
        "a put that was accepted is taken for authority: the head is not read again",
        "I1",
        _LOG,
        "return Transacted(version, outcome, self._head_from(version))",
        "return Transacted(version, outcome, Head(version, entry.write_id, outcome.state))",
        (_TEST_LOG + "test_who_moved_on_right_after_our_put_is_seen_before_anything_is_done",),
    ),
    Mutant(
        "a put that may still land is reported as refused",
        "I1",
        _LOG,
        "raise (self._unknown(entry, refusal) if in_flight else refusal) from refusal",
        "raise refusal",
        (_TEST_LOG + "test_a_refusal_after_a_lost_request_is_unknown_for_that_one_may_still_land",),
    ),
    Mutant(
        "a commit of unknown outcome is aborted, and what it staged is deleted",
        "I1",
        _LEADERSHIP,
        "if isinstance(error, Fenced | CommitOutcomeUnknown):",
        "if isinstance(error, Fenced):",
        (_TEST_FINALIZING + "test_a_commit_of_unknown_outcome_deletes_nothing",),
    ),
    Mutant(
        "a transition of one timeline is written over all of them",
        "I2",
        _ANSWERS,
        "return tuple(changed if kept.timeline_id == changed.timeline_id else kept for kept in state.timelines)",
        "return (changed,)",
        (_TEST_INCARNATION + "test_a_cancel_gives_up_what_is_pending_on_every_timeline",),
    ),
    Mutant(
        "a manifest value that breaks an invariant is read as if it were sound",
        "I2",
        "pipeline/milepost/protocol/manifest/invariants.py",
        "return found + lineage_faults(state) + _garbage_faults(state) + _result_faults(state) + _held_faults(state)",
        "return []",
        ("tests/unit/protocol/codec/test_codec.py::test_a_state_that_breaks_an_invariant_is_corrupt",),
    ),
    Mutant(
        "the failure counters are not part of the state that an abort writes",
        "I2",
        _COORDINATOR,
        "        failures=left.failures,\n",
        "",
        (_TEST_COMPLETE + "test_the_failure_after_the_tolerated_ones_makes_the_job_failed",),
    ),
    Mutant(
        "one checkpoint that fails twice counts as two failures",
        "I2",
        _FAILURES,
        " or checkpoint_id in failures.counted:",
        ":",
        (_TEST_FAILURES + "test_one_checkpoint_counts_once_however_often_it_fails",),
    ),
    Mutant(
        "a failure of a checkpoint that came before the last success counts",
        "I2",
        _FAILURES,
        "if not reason.counted or checkpoint_id <= failures.last_success or",
        "if not reason.counted or",
        (_TEST_FAILURES + "test_a_failure_of_a_checkpoint_up_to_the_last_success_is_ignored",),
    ),
    Mutant(
        "one failure fewer is tolerated than was said",
        "I2",
        _FAILURES,
        "noted.consecutive <= tolerable",
        "noted.consecutive < tolerable",
        (_TEST_FAILURES + "test_the_failure_after_the_tolerated_ones_fails_the_job",),
    ),
    Mutant(
        "epochs follow each other without the minimum pause",
        "I2",
        _PRECONDITIONS,
        "if 0 <= since_ms < min_pause_ms:",
        "if 0 <= since_ms < 0:",
        (_TEST_TRIGGER + "test_min_pause_counts_from_the_last_completion",),
    ),
    Mutant(
        "an aborted checkpoint's id is given again",
        "I5",
        _COORDINATOR,
        "checkpoint_id = max(state.next_checkpoint_id, CheckpointId(request.above + 1))",
        "checkpoint_id = max(CheckpointId(timeline.head + 1), CheckpointId(request.above + 1))",
        (_TEST_TRIGGER + "test_checkpoint_ids_rise_over_aborts_while_epochs_count_from_the_head",),
    ),
    Mutant(
        "the next checkpoint id is not counted on",
        "I5",
        _COORDINATOR,
        "next_checkpoint_id=CheckpointId(checkpoint_id + 1),",
        "next_checkpoint_id=state.next_checkpoint_id,",
        (_TEST_TRIGGER + "test_checkpoint_ids_rise_over_aborts_while_epochs_count_from_the_head",),
    ),
    Mutant(
        "a version that is missing from the log is passed over",
        "I6",
        _LOG,
        "if expected is not None and version != expected:",
        "if expected is not None and version > expected:",
        (_TEST_LOG + "test_a_version_that_is_missing_is_corruption_not_history",),
    ),
    Mutant(
        "an entry of the manifest log is called unreachable, so that gc frees its key",
        "I6",
        "pipeline/milepost/protocol/retention/reach.py",
        "return ObjectStatus.LOG if _is_log_entry(key) else ObjectStatus.FOREIGN",
        "return ObjectStatus.UNREACHABLE",
        ("tests/unit/jobmaster/retention/test_fsck.py::test_a_sound_job_has_nothing_missing_and_nothing_unreachable",),
    ),
    Mutant(
        "an old head of a sink is called unreachable",
        "I6",
        "pipeline/milepost/dataflow/sinks/chain_walk.py",
        "permanent=stat.key.startswith(HEADS)",
        "permanent=False",
        ("tests/unit/jobmaster/retention/test_fsck.py::test_a_sound_job_has_nothing_missing_and_nothing_unreachable",),
    ),
    Mutant(
        "a checkpoint completes with a missing acknowledgement",
        "I7",
        _PRECONDITIONS,
        "missing = set(pending.expected) - set(request.acknowledged)",
        "missing = set(pending.expected) - set(pending.expected)",
        (_TEST_COMPLETE + "test_a_missing_acknowledgement_refuses_the_commit",),
    ),
    Mutant(
        "the driver does not miss a subtask that never answered",
        "I7",
        _ACKNOWLEDGEMENTS,
        "for key in wanted - first.keys())",
        "for key in first.keys() - wanted)",
        (
            _TEST_ACKNOWLEDGEMENTS + "test_a_missing_acknowledgement_declines",
            _TEST_PENDING + "test_a_checkpoint_completes_when_every_subtask_has_acknowledged",
        ),
    ),
    Mutant(
        "a checkpoint completes although the quality gate vetoed it",
        "I7",
        _PRECONDITIONS,
        "if not request.gate_passed:",
        "if request.gate_passed is None:",
        (_TEST_COMPLETE + "test_a_failed_gate_refuses_the_commit",),
    ),
    Mutant(
        "metadata of any key is committed, also of another token",
        "I7",
        _PRECONDITIONS,
        "if not request.metadata.key.startswith(prefix) or key_fault(request.metadata.key) is not None:",
        "if key_fault(request.metadata.key) is not None:",
        (_TEST_COMPLETE + "test_metadata_outside_of_the_tokens_prefix_is_a_violation",),
    ),
    Mutant(
        "a completed checkpoint can be aborted as well",
        "I9",
        _COORDINATOR,
        "    done = completed_by(state, None, request.checkpoint_id)\n",
        "    done = None\n",
        (_TEST_COMPLETE + "test_abort_of_a_completed_checkpoint_answers_so_and_deletes_nothing",),
    ),
    Mutant(
        "an abort that came after the commit point deletes what is to be published",
        "I9",
        _LEADERSHIP,
        "        if isinstance(result.outcome, AlreadyDone):\n"
        "            already = result.outcome.outcome is Outcome.ALREADY_COMPLETED\n",
        "        if isinstance(result.outcome, AlreadyDone):\n"
        "            already = result.outcome.outcome is Outcome.ALREADY_COMPLETED\n"
        "            for name in [sink.name for sink in self.context.spec.sinks]:\n"
        "                for token in range(result.state.version + 1):\n"
        "                    self.context.sink(name).abort(checkpoint_id=request.checkpoint_id, token=token)\n",
        ("tests/unit/jobmaster/retention/test_deletion.py::test_an_abort_after_the_commit_point_deletes_nothing",),
    ),
    Mutant(
        "an aborted checkpoint stays pending, so that it can still complete",
        "I9",
        "pipeline/milepost/protocol/manifest/timelines/aborts.py",
        "replace(timeline, pending=None)",
        "timeline",
        (_TEST_COMPLETE + "test_abort_lists_all_prefixes_and_records_what_the_history_shows",),
    ),
    Mutant(
        "a checkpoint that could not be committed leaves what its sinks have staged",
        "I9",
        _LEADERSHIP,
        "        discard_staged(self.context, event.pending, AbortNotice(event.reason, event.pending.base))\n",
        "",
        (_TEST_FINALIZING + "test_a_commit_that_the_store_refuses_for_good_discards_the_checkpoint",),
    ),
)
