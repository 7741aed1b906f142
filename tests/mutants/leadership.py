"""Mutants of who may do what, and of what is told to whom: I3, I4, I10, I11."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COORDINATOR = "pipeline/milepost/protocol/manifest/coordinator.py"
_PRECONDITIONS = "pipeline/milepost/protocol/manifest/transaction/preconditions.py"
_INCARNATION = "pipeline/milepost/protocol/manifest/timelines/incarnation.py"
_LEASE = "pipeline/milepost/protocol/manifest/transaction/lease.py"
_AFTER_COMMIT = "pipeline/milepost/protocol/manifest/upkeep/after_commit.py"
_LIFECYCLE = "pipeline/milepost/protocol/subtask/task_lifecycle.py"
_LEADERSHIP = "pipeline/milepost/jobmaster/leadership/leadership.py"

_TEST_COMPLETE = "tests/unit/protocol/manifest/test_complete_and_abort.py::"
_TEST_TRIGGER = "tests/unit/protocol/manifest/test_trigger_and_rebind.py::"
_TEST_AFTER_COMMIT = "tests/unit/protocol/manifest/upkeep/test_after_commit.py::"
_TEST_ACKNOWLEDGEMENTS = "tests/unit/protocol/exchange/test_acknowledgements.py::"
_TEST_PENDING = "tests/conformance/protocol/coordinator/test_pending_checkpoint.py::"
_TEST_LEASE = "tests/unit/protocol/manifest/transaction/test_lease.py::"
_TEST_RESULTS = "tests/conformance/protocol/leadership/test_job_result_store.py::"
_TEST_LEADERSHIP = "tests/conformance/protocol/leadership/test_leadership.py::"
_TEST_LIFECYCLE = "tests/conformance/protocol/task/test_task_lifecycle.py::"
_TEST_CONTROL = "tests/unit/jobmaster/leadership/test_lifecycle.py::"
_TEST_NOTIFICATIONS = "tests/unit/jobmaster/run/test_notifications.py::"
_TEST_DECLINES = "tests/unit/spark/task/test_subtask_declines.py::"
_TEST_CACHE = "tests/unit/state/cache/test_cache.py::"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the fencing token is not checked",
        "I3",
        _PRECONDITIONS,
        "    if token == pending.token:\n        return\n",
        "    return\n",
        (
            _TEST_COMPLETE + "test_a_complete_of_an_earlier_try_is_fenced",
            _TEST_COMPLETE + "test_an_abort_by_a_driver_that_was_replaced_is_fenced",
        ),
    ),
    Mutant(
        "an older token passes as well as the one in force",
        "I3",
        _PRECONDITIONS,
        "    if token == pending.token:\n",
        "    if token <= pending.token:\n",
        (_TEST_COMPLETE + "test_a_complete_of_an_earlier_try_is_fenced",),
    ),
    Mutant(
        "a session may complete or abort another session's checkpoint",
        "I3",
        _PRECONDITIONS,
        "if session_id is not None and found[2].session_id != session_id:",
        "if session_id is not None and found[2].session_id == '':",
        (
            _TEST_COMPLETE + "test_a_complete_by_another_session_or_of_an_aborted_checkpoint_is_fenced",
            _TEST_TRIGGER + "test_a_rebind_of_anothers_checkpoint_or_of_none_is_fenced",
        ),
    ),
    Mutant(
        "a retried run_epoch keeps the token of the try before it",
        "I3",
        _COORDINATOR,
        "    token = FencingToken(state.version + 1)\n    deadline_ms",
        "    token = pending.token\n    deadline_ms",
        (_TEST_TRIGGER + "test_each_rebind_raises_the_token_renews_the_lease_and_adds_a_prefix",),
    ),
    Mutant(
        "acknowledgements of an older token are accepted",
        "I3",
        "pipeline/milepost/protocol/exchange/acknowledgements.py",
        "if answer.checkpoint_id != checkpoint_id or answer.token != token:",
        "if answer.checkpoint_id != checkpoint_id:",
        (
            _TEST_ACKNOWLEDGEMENTS + "test_an_answer_of_a_fenced_job_or_of_another_checkpoint_is_discarded",
            _TEST_PENDING + "test_answers_nobody_waits_for_are_counted_and_ignored",
        ),
    ),
    Mutant(
        "a session that has done its work already is fenced instead of told so",
        "I3",
        _COORDINATOR,
        "    done = completed_by(state, None if request.swept else request.session_id, request.checkpoint_id)\n",
        "    done = None\n",
        (_TEST_COMPLETE + "test_a_repeated_complete_is_already_done_whatever_its_token",),
    ),
    Mutant(
        "a run whose checkpoint was aborted opens another one",
        "I3",
        _PRECONDITIONS,
        "        if aborted_session == session_digest(session_id):\n",
        "        if aborted_session != session_digest(session_id):\n",
        (_TEST_TRIGGER + "test_a_run_whose_checkpoint_was_aborted_cannot_trigger_another",),
    ),
    Mutant(
        "an incarnation that has ended is run again",
        "I4",
        _PRECONDITIONS,
        "if state.status is not JobStatus.RUNNING:",
        "if state.status is None:",
        (_TEST_TRIGGER + "test_a_finished_incarnation_is_never_run_again",),
    ),
    Mutant(
        "a failed job goes on without anybody having resumed it",
        "I4",
        _PRECONDITIONS,
        "if state.status is JobStatus.FAILED:",
        "if state.status is None:",
        (_TEST_TRIGGER + "test_a_failed_job_is_not_run_until_resumed",),
    ),
    Mutant(
        "a job starts again before the clean-up of its last incarnation is over",
        "I4",
        _INCARNATION,
        "    if dirty_results(state.results):\n",
        "    if dirty_results(()):\n",
        (_TEST_RESULTS + "test_a_start_waits_for_the_clean_up_and_opens_the_next_incarnation",),
    ),
    Mutant(
        "a result is clean while a completed checkpoint is unpublished",
        "I4",
        _INCARNATION,
        "    waiting = state.unconfirmed()\n    if waiting:\n        sinks",
        "    waiting = state.unconfirmed()\n    if not waiting and state.version == 0:\n        sinks",
        (_TEST_RESULTS + "test_a_result_is_not_clean_while_a_completed_checkpoint_is_unpublished",),
    ),
    Mutant(
        "an incarnation gets a second result",
        "I4",
        _INCARNATION,
        "if known is not None or result.clean_up is not CleanUp.DIRTY:",
        "if result.clean_up is not CleanUp.DIRTY:",
        (_TEST_RESULTS + "test_a_clean_incarnation_never_becomes_dirty_again",),
    ),
    Mutant(
        "an outdated leader finishes the job",
        "I4",
        _INCARNATION,
        "if request.final != head or head == 0:",
        "if head == 0:",
        (_TEST_LEADERSHIP + "test_the_result_of_an_outdated_leader_is_ignored",),
    ),
    Mutant(
        "a try that was replaced takes itself for the leader",
        "I4",
        _LEASE,
        "            if pending.token == mine.token:\n                return None\n",
        "            return None\n",
        (_TEST_LEADERSHIP + "test_leading_is_judged_by_the_checkpoint_and_its_token",),
    ),
    Mutant(
        "a grant does not finish what the end of an incarnation has left to do",
        "I4",
        "pipeline/milepost/jobmaster/run/trigger.py",
        "if state.status in ENDED:  # a grant",
        "if not ENDED:  # a grant",
        (_TEST_CONTROL + "test_a_crash_between_dirty_and_clean_is_finished_by_the_next_command",),
    ),
    Mutant(
        "a living lease is taken from its holder unasked",
        "I10",
        _LEASE,
        "if status is LeaseStatus.HELD:",
        "if status is None:",
        (_TEST_LEASE + "test_a_living_lease_answers_busy_with_who_holds_it_and_how_long",),
    ),
    Mutant(
        "a heartbeat that stopped keeps its lease until the deadline",
        "I10",
        _LEASE,
        "if facts.heartbeat_ms is not None and now_ms - facts.heartbeat_ms >= HEARTBEAT_TIMEOUT_MS:",
        "if facts.heartbeat_ms is not None and now_ms - facts.heartbeat_ms >= 1_000 * HEARTBEAT_TIMEOUT_MS:",
        (_TEST_LEASE + "test_a_heartbeat_that_has_begun_must_go_on",),
    ),
    Mutant(
        "a lease never ends",
        "I10",
        _LEASE,
        "if now_ms >= pending.deadline_ms:",
        "if now_ms < 0:",
        (_TEST_LEASE + "test_a_lease_without_heartbeat_lives_until_its_deadline",),
    ),
    Mutant(
        "a holder that is gone is taken for one that failed, which counts",
        "I10",
        _LEASE,
        "LeaseStatus.HOLDER_DEAD: CheckpointFailureReason.LEADER_LOST",
        "LeaseStatus.HOLDER_DEAD: CheckpointFailureReason.CHECKPOINT_EXPIRED",
        (_TEST_LEASE + "test_a_holder_that_is_gone_does_not_fail_the_job",),
    ),
    Mutant(
        "a sweep adopts a checkpoint whose gate had failed",
        "I10",
        _LEASE,
        "    if facts.gate_passed:\n",
        "    if facts.gate_passed is not None:\n",
        (_TEST_LEASE + "test_a_checkpoint_whose_gate_had_failed_is_abandoned_for_that_reason",),
    ),
    Mutant(
        "a sweep ends the newcomer when the holder comes back meanwhile",
        "I10",
        _LEADERSHIP,
        "            except (CommitConflict, Fenced) as moved:\n",
        "            except NotFound as moved:\n",
        ("tests/unit/jobmaster/leadership/test_sweep.py::test_a_holder_that_comes_back_is_judged_again",),
    ),
    Mutant(
        "a confirmation counts only when its session leads",
        "I11",
        _AFTER_COMMIT,
        "if checkpoint is None or request.sink not in checkpoint.unconfirmed:",
        "if checkpoint is None or not leads(state, request.session_id):",
        (_TEST_AFTER_COMMIT + "test_a_confirmation_is_accepted_once_from_anybody_and_stays",),
    ),
    Mutant(
        "a sink is confirmed before its checkpoint is completed",
        "I11",
        _AFTER_COMMIT,
        "        if pending or not 0 < request.checkpoint_id < state.next_checkpoint_id:\n",
        "        if not 0 < request.checkpoint_id < state.next_checkpoint_id:\n",
        (_TEST_AFTER_COMMIT + "test_a_confirmation_before_the_commit_point_is_a_violation",),
    ),
    Mutant(
        "a sink is confirmed before it is committed, so a crash between loses the epoch's rows",
        "I11",
        _LEADERSHIP,
        "        try:\n            published = self.context.sink(name).commit(snapshot.committable, mark)\n",
        "        request = ConfirmSinkRequest(session.session_id, checkpoint.checkpoint_id, name)\n"
        "        self.context.transact(request)\n"
        "        try:\n            published = self.context.sink(name).commit(snapshot.committable, mark)\n",
        (_TEST_CONTROL + "test_a_commit_that_fails_is_confirmed_by_nobody",),
    ),
    Mutant(
        "a completion that is told twice counts twice",
        "I11",
        _LIFECYCLE,
        "        if checkpoint_id <= self._last_reported:\n            return ()\n",
        "",
        (_TEST_LIFECYCLE + "test_a_completion_told_again_or_replayed_by_an_abort_counts_once",),
    ),
    Mutant(
        "an abort does not replay the completion that it carries",
        "I11",
        _LIFECYCLE,
        "        replayed = self.notify_complete(latest_completed)\n",
        "        replayed: Commands = ()\n",
        (_TEST_LIFECYCLE + "test_a_replayed_completion_is_told_before_the_abort_that_carries_it",),
    ),
    Mutant(
        "a subtask is told nothing of what became of other checkpoints",
        "I11",
        "pipeline/milepost/spark/task/operator_subtask.py",
        "            self._run(self._lifecycle.notify(self._plan.notifications))\n",
        "",
        (
            _TEST_NOTIFICATIONS + "test_each_completed_checkpoint_is_told_by_the_epoch_that_continues_it",
            _TEST_DECLINES + "test_the_node_forgets_what_an_aborted_checkpoint_staged_there",
        ),
    ),
    Mutant(
        "the completion of the restored checkpoint counts as told",
        "I11",
        _LIFECYCLE,
        "        self._last_reported = checkpoint_id if reported is None else reported\n",
        "        self._last_reported = checkpoint_id\n",
        (_TEST_NOTIFICATIONS + "test_each_completed_checkpoint_is_told_by_the_epoch_that_continues_it",),
    ),
    Mutant(
        "a restore removes what another try has staged on the node",
        "I11",
        "pipeline/milepost/state/cache/cache.py",
        "path.suffix == _SUFFIX and _checkpoint_of(path) <= restored\n",
        "path.suffix == _SUFFIX\n",
        (_TEST_CACHE + "test_what_an_aborted_checkpoint_staged_goes_when_that_is_told",),
    ),
    Mutant(
        "what a subsumed checkpoint alone has used stays on the node",
        "I11",
        "pipeline/milepost/state/cache/cache.py",
        "                        if _newest(folder) < checkpoint_id:\n",
        "                        if checkpoint_id < 0:\n",
        (_TEST_CACHE + "test_what_no_newer_checkpoint_uses_goes_when_its_last_one_is_subsumed",),
    ),
)
