"""Mutants of what is kept and what may go: I8."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RETENTION = "pipeline/milepost/protocol/retention/retention.py"
_REACH = "pipeline/milepost/protocol/retention/reach.py"
_COLLECTION = "pipeline/milepost/protocol/manifest/upkeep/collection.py"
_PRECONDITIONS = "pipeline/milepost/protocol/manifest/transaction/preconditions.py"
_AFTER_COMMIT = "pipeline/milepost/protocol/manifest/upkeep/after_commit.py"

_TEST_AFTER_COMMIT = "tests/unit/protocol/manifest/upkeep/test_after_commit.py::"
_TEST_COLLECTION = "tests/unit/protocol/manifest/upkeep/test_collection.py::"
_TEST_DELETION = "tests/unit/jobmaster/retention/test_deletion.py::"
_TEST_TRIGGER = "tests/unit/protocol/manifest/test_trigger_and_rebind.py::"
_TEST_COMPLETE = "tests/unit/protocol/manifest/test_complete_and_abort.py::"
_TEST_PENDING = "tests/conformance/protocol/coordinator/test_pending_checkpoint.py::"
_TEST_SHARED = "tests/conformance/protocol/retention/test_shared_state.py::"
_TEST_GC = "tests/unit/jobmaster/retention/test_garbage_collection.py::"
_PRUNING = "pipeline/milepost/protocol/retention/pruning.py"
_NEEDS = "pipeline/milepost/jobmaster/retention/table_references.py"
_TEST_PRUNING = "tests/unit/protocol/retention/test_pruning.py::"
_TEST_TABLES = "tests/unit/jobmaster/retention/test_pruning.py::"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "delete before publish: the commit point deletes what the winner staged too",
        "I8",
        "pipeline/milepost/jobmaster/retention/subsumption.py",
        "        if token != winner:\n",
        "        if token > 0:\n",
        (_TEST_DELETION + "test_what_a_losing_try_staged_is_deleted_at_the_commit_point",),
    ),
    Mutant(
        "a checkpoint that a sink has not confirmed is subsumed",
        "I8",
        _RETENTION,
        "    kept.update(checkpoint.checkpoint_id for checkpoint in ordered if checkpoint.unconfirmed)\n",
        "",
        (_TEST_AFTER_COMMIT + "test_retention_keeps_the_newest_the_unconfirmed_and_every_root",),
    ),
    Mutant(
        "a checkpoint that a reader has pinned is subsumed",
        "I8",
        _RETENTION,
        "    roots.update(pin.checkpoint_id for pin in state.pins)\n",
        "",
        ("tests/unit/protocol/manifest/upkeep/test_pins.py::test_a_pinned_checkpoint_is_a_root_until_it_is_let_go",),
    ),
    Mutant(
        "a run that a kept checkpoint refers to becomes garbage with the one that wrote it",
        "I8",
        _RETENTION,
        "    for key in {key for keys in dropped for key in keys} - referenced:\n",
        "    for key in {key for keys in dropped for key in keys}:\n",
        (
            _TEST_AFTER_COMMIT + "test_a_key_is_garbage_only_when_no_kept_checkpoint_refers_to_it",
            _TEST_SHARED + "test_a_run_stays_while_any_kept_checkpoint_refers_to_it_and_goes_with_the_last",
        ),
    ),
    Mutant(
        "garbage is deleted by the very leader that listed it",
        "I8",
        _RETENTION,
        "if entry.since_version < leader.token and now_ms - entry.since_ms >= grace_ms:",
        "if now_ms - entry.since_ms >= grace_ms:",
        (_TEST_AFTER_COMMIT + "test_garbage_of_the_present_leader_waits_for_a_later_one",),
    ),
    Mutant(
        "garbage is deleted without a grace period",
        "I8",
        _RETENTION,
        "if entry.since_version < leader.token and now_ms - entry.since_ms >= grace_ms:",
        "if entry.since_version < leader.token:",
        (_TEST_AFTER_COMMIT + "test_garbage_is_deleted_by_a_later_leader_after_the_grace_period",),
    ),
    Mutant(
        "the grace period is shorter than a try may last",
        "I8",
        _RETENTION,
        "return 2 * timeout_ms + _GRACE_MARGIN_MS",
        "return timeout_ms",
        (_TEST_AFTER_COMMIT + "test_the_grace_period_is_longer_than_any_timeout",),
    ),
    Mutant(
        "a session that was replaced still subsumes by its old policy",
        "I8",
        _AFTER_COMMIT,
        """return AlreadyDone(Outcome.NOT_LEADER, "a newer session leads: it subsumes")""",
        "assert request.policy",
        (_TEST_AFTER_COMMIT + "test_subsumption_is_left_to_the_session_that_leads",),
    ),
    Mutant(
        "what is subsumed is not held to the policy and the roots",
        "I8",
        _AFTER_COMMIT,
        "    kept = set(dropped) - set(subsumable(state, request.policy))\n",
        "    kept: set[int] = set()\n",
        (_TEST_AFTER_COMMIT + "test_what_the_policy_or_a_root_keeps_cannot_be_subsumed",),
    ),
    Mutant(
        "what lies below a pending checkpoint may be listed as garbage",
        "I8",
        _PRECONDITIONS,
        "live = lowest is not None and checkpoint_id is not None and checkpoint_id >= lowest",
        "live = False",
        (_TEST_AFTER_COMMIT + "test_a_garbage_key_that_could_be_live_is_a_violation",),
    ),
    Mutant(
        "epochs go on, however many completed checkpoints wait for a sink",
        "I8",
        _PRECONDITIONS,
        "if len(waiting) > MAX_UNCONFIRMED:",
        "if len(waiting) > 1_000 * MAX_UNCONFIRMED:",
        (_TEST_TRIGGER + "test_more_than_three_unconfirmed_checkpoints_stop_triggering",),
    ),
    Mutant(
        "gc takes what lies below a pending checkpoint for unreachable",
        "I8",
        _REACH,
        "    if in_use(state, checkpoint_id):\n        return ObjectStatus.IN_USE\n    if listed.covers",
        "    if listed.covers",
        (_TEST_GC + "test_nothing_of_a_pending_checkpoint_is_touched_however_old_it_is",),
    ),
    Mutant(
        "gc lists garbage by the walk of an older manifest version",
        "I8",
        _COLLECTION,
        "if state.version != request.walked_version:",
        "if state.version < request.walked_version:",
        (_TEST_COLLECTION + "test_a_walk_of_an_older_version_proves_nothing",),
    ),
    Mutant(
        "gc deletes beside an epoch that was triggered before the listing",
        "I8",
        _RETENTION,
        "if now_ms - entry.since_ms >= grace_ms and all(token > entry.since_version for token in triggered):",
        "if now_ms - entry.since_ms >= grace_ms:",
        (_TEST_COLLECTION + "test_an_epoch_that_was_triggered_before_the_listing_keeps_the_entry_until_it_ends",),
    ),
    Mutant(
        "gc goes on although a root cannot be walked",
        "I8",
        "pipeline/milepost/jobmaster/retention/garbage_collection.py",
        "    if not reach.complete:\n",
        "    if reach is None:\n",
        (_TEST_GC + "test_while_a_root_cannot_be_walked_nothing_is_listed_or_deleted",),
    ),
    Mutant(
        "a replay that died keeps all that is newer from being subsumed and deleted, for ever",
        "I8",
        "pipeline/milepost/jobmaster/run/epochs.py",
        "        sweep_forks(context, session)\n",
        "",
        (_TEST_DELETION + "test_a_replay_that_died_does_not_keep_what_is_newer_for_ever",),
    ),
    Mutant(
        "gc takes staged files away that wait for their commit",
        "I8",
        _REACH,
        "    if outcome.winner == token and retained is not None and sink in retained.unpublished:\n"
        "        return ObjectStatus.IN_USE\n",
        "",
        (_TEST_GC + "test_a_leftover_beside_files_that_wait_for_their_commit_does_not_take_them_along",),
    ),
    Mutant(
        "the prefixes of losing tries are not listed as garbage",
        "I8",
        "pipeline/milepost/protocol/manifest/coordinator.py",
        "garbage=with_garbage(state, [*losers, heartbeat_key(pending.checkpoint_id, pending.token)], now_ms),",
        "garbage=with_garbage(state, [heartbeat_key(pending.checkpoint_id, pending.token)], now_ms),",
        (
            _TEST_COMPLETE + "test_prefixes_of_earlier_tries_become_garbage_and_the_winners_does_not",
            _TEST_PENDING + "test_what_a_late_try_has_written_is_garbage_of_its_checkpoint",
        ),
    ),
    Mutant(
        "files of a retained checkpoint's table are pruned once the head has others",
        "I8",
        _NEEDS,
        "            found += [TableReference(one.key, one.size, (*top, *one.chain)) for one in published]\n",
        "",
        (_TEST_TABLES + "test_what_compaction_replaced_is_listed_and_then_deleted_once_no_retained_checkpoint_has_it",),
    ),
    Mutant(
        "what waits to be published on the way back to a checkpoint that was left is pruned",
        "I8",
        _NEEDS,
        '        found += list(_staged(snapshot, (*top, f"staged for checkpoint {at}")))\n',
        "",
        (_TEST_TABLES + "test_what_was_staged_for_a_checkpoint_that_was_left_stays_while_one_can_come_back_to_it",),
    ),
    Mutant(
        "a table that somebody else has moved on is pruned by what this job retains",
        "I8",
        _NEEDS,
        "    if not history.shows(state.live, head.checkpoint_id, snapshot.committable):\n",
        "    if history.newest() is None:\n",
        (_TEST_TABLES + "test_a_table_that_another_life_of_the_job_has_moved_on_is_kept_whole",),
    ),
    Mutant(
        "published files are deleted because a list names them",
        "I8",
        "pipeline/milepost/jobmaster/retention/table_pruning.py",
        "files = tuple(file for file in one.files if needs.frees(state, file))",
        "files = one.files",
        (_TEST_TABLES + "test_a_list_that_names_what_is_needed_takes_nothing_of_it",),
    ),
    Mutant(
        "a session that was replaced looks at the tables by an older state",
        "I8",
        "pipeline/milepost/jobmaster/retention/table_pruning.py",
        "    if leader is None or leader.session_id != session_id:\n        return 0\n",
        "",
        (_TEST_TABLES + "test_a_session_that_was_replaced_prunes_nothing",),
    ),
    Mutant(
        "published files are deleted without a grace period",
        "I8",
        _PRUNING,
        "now_ms - since_ms >= grace_ms and all(",
        "all(",
        (_TEST_PRUNING + "test_files_go_after_the_grace_period_and_not_a_millisecond_before",),
    ),
    Mutant(
        "published files are deleted by the very leader that listed them",
        "I8",
        _PRUNING,
        " or leader.token <= since_version:",
        ":",
        (_TEST_PRUNING + "test_of_those_who_lead_only_one_that_was_granted_its_token_later_deletes",),
    ),
    Mutant(
        "published files are deleted beside an epoch that was triggered before they were listed",
        "I8",
        _PRUNING,
        "now_ms - since_ms >= grace_ms and all(token > since_version for token in triggered)",
        "now_ms - since_ms >= grace_ms and triggered is not None",
        (_TEST_PRUNING + "test_an_epoch_that_was_triggered_before_the_listing_keeps_the_files_until_it_ends",),
    ),
    Mutant(
        "what an epoch has staged so far is listed as garbage of its table",
        "I8",
        _PRUNING,
        "(state.next_checkpoint_id if lowest is None else lowest)",
        "state.next_checkpoint_id",
        (_TEST_PRUNING + "test_a_file_is_listed_only_below_a_checkpoint_that_this_job_has_ended",),
    ),
    Mutant(
        "a file that somebody else put below a table is pruned",
        "I8",
        "pipeline/milepost/dataflow/sinks/sink_head.py",
        'r"data/chk-(\\d{20})/t(\\d+)/(?:\\d+|all)-[0-9a-f]{64}\\.parquet"',
        'r"data/chk-(\\d{20})/t(\\d+)/.+"',
        (_TEST_TABLES + "test_what_milepost_did_not_write_is_never_touched",),
    ),
)
