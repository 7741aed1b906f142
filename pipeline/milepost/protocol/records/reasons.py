"""Reasons for not taking a checkpoint: one closed set for manifest, CLI and UI.

The first 24 names are Flink's `CheckpointFailureReason`; the others are ours. A reason *counts* if the epoch itself
failed, rather than being stopped from outside. Only counted reasons move a job towards FAILED (`failures.py`).
"""

from __future__ import annotations

from enum import Enum


class CheckpointFailureReason(Enum):
    """Why a checkpoint was not triggered, was declined or was aborted. The value is what the manifest stores."""

    # Flink's, before there is a checkpoint id.
    PERIODIC_SCHEDULER_SHUTDOWN = "PERIODIC_SCHEDULER_SHUTDOWN"
    TOO_MANY_CHECKPOINT_REQUESTS = "TOO_MANY_CHECKPOINT_REQUESTS"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "MINIMUM_TIME_BETWEEN_CHECKPOINTS"
    NOT_ALL_REQUIRED_TASKS_RUNNING = "NOT_ALL_REQUIRED_TASKS_RUNNING"
    IO_EXCEPTION = "IO_EXCEPTION"
    BLOCKING_OUTPUT_EXIST = "BLOCKING_OUTPUT_EXIST"
    # Flink's, for a pending checkpoint.
    CHECKPOINT_ASYNC_EXCEPTION = "CHECKPOINT_ASYNC_EXCEPTION"
    CHANNEL_STATE_SHARED_STREAM_EXCEPTION = "CHANNEL_STATE_SHARED_STREAM_EXCEPTION"
    CHECKPOINT_EXPIRED = "CHECKPOINT_EXPIRED"
    CHECKPOINT_SUBSUMED = "CHECKPOINT_SUBSUMED"
    CHECKPOINT_DECLINED = "CHECKPOINT_DECLINED"
    CHECKPOINT_DECLINED_TASK_NOT_READY = "CHECKPOINT_DECLINED_TASK_NOT_READY"
    CHECKPOINT_DECLINED_TASK_CLOSING = "CHECKPOINT_DECLINED_TASK_CLOSING"
    CHECKPOINT_DECLINED_SUBSUMED = "CHECKPOINT_DECLINED_SUBSUMED"
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER"
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = "CHECKPOINT_DECLINED_INPUT_END_OF_STREAM"
    CHECKPOINT_COORDINATOR_SHUTDOWN = "CHECKPOINT_COORDINATOR_SHUTDOWN"
    CHECKPOINT_COORDINATOR_SUSPEND = "CHECKPOINT_COORDINATOR_SUSPEND"
    JOB_FAILOVER_REGION = "JOB_FAILOVER_REGION"
    TASK_FAILURE = "TASK_FAILURE"
    TASK_CHECKPOINT_FAILURE = "TASK_CHECKPOINT_FAILURE"
    UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE = "UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE"
    FINALIZE_CHECKPOINT_FAILURE = "FINALIZE_CHECKPOINT_FAILURE"
    TRIGGER_CHECKPOINT_FAILURE = "TRIGGER_CHECKPOINT_FAILURE"
    # Ours, counted: the epoch itself failed.
    QUALITY_GATE_FAILED = "QUALITY_GATE_FAILED"
    QUALITY_GATE_ERROR = "QUALITY_GATE_ERROR"
    SOURCE_OBJECT_CHANGED = "SOURCE_OBJECT_CHANGED"
    SOURCE_OBJECT_MISSING = "SOURCE_OBJECT_MISSING"
    BAD_RECORD = "BAD_RECORD"
    SQL_ERROR = "SQL_ERROR"
    OPERATOR_ERROR = "OPERATOR_ERROR"
    SINK_PREPARE_FAILED = "SINK_PREPARE_FAILED"
    CODE_MISMATCH = "CODE_MISMATCH"
    SPEC_REFUSED = "SPEC_REFUSED"
    CHANNEL_INCOMPLETE = "CHANNEL_INCOMPLETE"
    CHANNEL_DIGEST_MISMATCH = "CHANNEL_DIGEST_MISMATCH"
    ATTEMPTS_MIXED = "ATTEMPTS_MIXED"
    ACKNOWLEDGEMENT_MISSING = "ACKNOWLEDGEMENT_MISSING"
    STATE_CORRUPT = "STATE_CORRUPT"
    # Ours, not counted: a person or an outside event stopped an epoch that had not failed.
    LEADER_LOST = "LEADER_LOST"
    LEADER_TAKEN_OVER = "LEADER_TAKEN_OVER"
    ABORTED_BY_USER = "ABORTED_BY_USER"
    INTERRUPTED = "INTERRUPTED"
    ENVIRONMENT_UNUSABLE = "ENVIRONMENT_UNUSABLE"

    @property
    def counted(self) -> bool:
        """Whether an abort for this reason counts against `tolerable_failures`."""
        return self in COUNTED_REASONS

    @property
    def remedy(self) -> str:
        """What to do about it, one line for people; "" if the error itself says so."""
        return REMEDIES.get(self, "")

    @property
    def meaning(self) -> str:
        """What happened, one line for people."""
        return MEANINGS[self]


_R = CheckpointFailureReason

FLINK_COUNTED_REASONS: frozenset[CheckpointFailureReason] = frozenset(
    {
        _R.IO_EXCEPTION,
        _R.CHECKPOINT_ASYNC_EXCEPTION,
        _R.CHECKPOINT_EXPIRED,
        _R.CHECKPOINT_DECLINED,
        _R.FINALIZE_CHECKPOINT_FAILURE,
    }
)
"""The only five of Flink's 24 that its failure manager counts."""

QUALITY_GATE_REASONS: frozenset[CheckpointFailureReason] = frozenset({_R.QUALITY_GATE_FAILED, _R.QUALITY_GATE_ERROR})
"""The gate examined all rows of the epoch and refused them."""

COUNTED_REASONS: frozenset[CheckpointFailureReason] = (
    FLINK_COUNTED_REASONS
    | QUALITY_GATE_REASONS
    | {
        _R.SOURCE_OBJECT_CHANGED,
        _R.SOURCE_OBJECT_MISSING,
        _R.BAD_RECORD,
        _R.SQL_ERROR,
        _R.OPERATOR_ERROR,
        _R.SINK_PREPARE_FAILED,
        _R.CHANNEL_INCOMPLETE,
        _R.CHANNEL_DIGEST_MISMATCH,
        _R.ATTEMPTS_MIXED,
        _R.ACKNOWLEDGEMENT_MISSING,
        _R.STATE_CORRUPT,
    }
)
"""Flink's five, and ours of the same kind: a subtask declined, or the checkpoint could not be finalized."""

QUOTING_REASONS: frozenset[CheckpointFailureReason] = frozenset(
    {
        _R.BAD_RECORD,
        _R.SQL_ERROR,
        _R.OPERATOR_ERROR,
        _R.TASK_FAILURE,
        _R.CHECKPOINT_DECLINED,
        _R.SINK_PREPARE_FAILED,
        _R.CHECKPOINT_ASYNC_EXCEPTION,
        _R.FINALIZE_CHECKPOINT_FAILURE,
    }
)
"""Reasons whose details may quote values of rows: text of a parser, an operator, Spark, a sink or a database."""

RESERVED_REASONS: dict[CheckpointFailureReason, str] = {
    _R.PERIODIC_SCHEDULER_SHUTDOWN: "Airflow owns the schedule, and a paused DAG creates no run to refuse",
    _R.NOT_ALL_REQUIRED_TASKS_RUNNING: "an epoch starts its own subtasks; without Spark it is ENVIRONMENT_UNUSABLE",
    _R.BLOCKING_OUTPUT_EXIST: "every exchange ends with a barrier, so no output can block a checkpoint",
    _R.CHECKPOINT_SUBSUMED: "a timeline has one pending checkpoint, so no newer one completes before it",
    _R.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM: "a channel of an epoch never ends before its barrier",
    _R.CHECKPOINT_COORDINATOR_SUSPEND: "a run that is requested to stop is INTERRUPTED; one that dies is LEADER_LOST",
    _R.JOB_FAILOVER_REGION: "an epoch is aborted as a whole",
    _R.TASK_CHECKPOINT_FAILURE: "a subtask declines what it cannot snapshot; a bug in it is TASK_FAILURE",
    _R.UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE: "such a notification is its sender's ProtocolViolation",
}
"""Flink's reasons that Milepost never gives, and why; they are included so that Flink's list stays complete."""

MEANINGS: dict[CheckpointFailureReason, str] = {
    **{reason: f"reserved, never given here: {why}" for reason, why in RESERVED_REASONS.items()},
    _R.TOO_MANY_CHECKPOINT_REQUESTS: "another checkpoint is pending, or too many wait for a sink",
    _R.MINIMUM_TIME_BETWEEN_CHECKPOINTS: "`min_pause` has not passed since the last completed checkpoint",
    _R.IO_EXCEPTION: "the store did not answer while the epoch ran",
    _R.CHECKPOINT_ASYNC_EXCEPTION: "uploading a subtask's state failed",
    _R.CHANNEL_STATE_SHARED_STREAM_EXCEPTION: "another subtask broke the channel-state file that both were writing",
    _R.CHECKPOINT_EXPIRED: "the epoch was still running at its deadline",
    _R.CHECKPOINT_DECLINED: "a subtask declined, with an unknown reason",
    _R.CHECKPOINT_DECLINED_TASK_NOT_READY: "a subtask was not ready",
    _R.CHECKPOINT_DECLINED_TASK_CLOSING: "a subtask was closing",
    _R.CHECKPOINT_DECLINED_SUBSUMED: "a subtask saw the barrier of a newer checkpoint",
    _R.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER: "a subtask received a cancel marker",
    _R.CHECKPOINT_COORDINATOR_SHUTDOWN: "the job ended",
    _R.TASK_FAILURE: "the Spark job failed, or the epoch's request is invalid",
    _R.FINALIZE_CHECKPOINT_FAILURE: "all acknowledged, but `_metadata` or the commit itself could not be written",
    _R.TRIGGER_CHECKPOINT_FAILURE: "the trigger died after it had recorded the checkpoint",
    _R.QUALITY_GATE_FAILED: "a critical expectation failed on the rows about to be published",
    _R.QUALITY_GATE_ERROR: "an expectation raised instead of returning a result",
    _R.SOURCE_OBJECT_CHANGED: "a planned object no longer has the planned version",
    _R.SOURCE_OBJECT_MISSING: "a planned object was deleted",
    _R.BAD_RECORD: "a source object contains a record that does not match the schema, or too many of them",
    _R.SQL_ERROR: "an SQL operator failed on a row",
    _R.OPERATOR_ERROR: "an operator raised an error on its rows",
    _R.SINK_PREPARE_FAILED: "a sink refused the staged output before the commit point",
    _R.CODE_MISMATCH: "a subtask ran different code than the driver recorded",
    _R.SPEC_REFUSED: "the spec is incompatible with the head, or a sink's table has moved; nothing ran",
    _R.CHANNEL_INCOMPLETE: "a channel lacks its barrier, its acknowledgement, or buffers that the barrier counts",
    _R.CHANNEL_DIGEST_MISMATCH: "the buffers of a channel do not match the digest in its barrier",
    _R.ATTEMPTS_MIXED: "two attempts of one subtask were consumed in one epoch",
    _R.ACKNOWLEDGEMENT_MISSING: "an expected subtask did not acknowledge",
    _R.STATE_CORRUPT: "a stored object is missing or does not match its recorded checksum",
    _R.LEADER_LOST: "the process that ran the epoch died",
    _R.LEADER_TAKEN_OVER: "another session took over while the lease was alive",
    _R.ABORTED_BY_USER: "a person aborted the epoch",
    _R.INTERRUPTED: "the run was interrupted",
    _R.ENVIRONMENT_UNUSABLE: "the machine or a service cannot be used as configured",
}


REMEDIES: dict[CheckpointFailureReason, str] = {
    _R.SOURCE_OBJECT_CHANGED: "Run again: the new epoch plans the current objects.",
    _R.SOURCE_OBJECT_MISSING: "Restore the object, or run again. `on_missing: skip` skips objects deleted before they "
    "are read.",
    _R.BAD_RECORD: "Correct the object, quarantine it, or correct the source's `schema`, `options` or `value`, and "
    "run again. A landed message stays as it is. With `bad_records: dead_letter` such records go to a separate table; "
    "add `on_bad_object: dead_letter` for objects that cannot be read at all.",
    _R.SQL_ERROR: "Correct the operator's `sql` (`try_cast` and the like give NULL for a bad value), or the input.",
    _R.OPERATOR_ERROR: "Correct the input or the operator, and run again.",
    _R.CODE_MISMATCH: "Run again, in a new process: the code changed during the run.",
    _R.IO_EXCEPTION: "Run again; if it persists, check the store.",
    _R.CHECKPOINT_ASYNC_EXCEPTION: "Run again; if it persists, check the store.",
    _R.CHANNEL_INCOMPLETE: "Run again.",
    _R.CHANNEL_DIGEST_MISMATCH: "Run again.",
    _R.TASK_FAILURE: "`-v` shows the stack trace and what Spark logged.",
}


def parse_reason(name: str) -> CheckpointFailureReason:
    """Return the reason with this name; CHECKPOINT_DECLINED for any other text, such as a subtask's own words.

    This never raises: an unknown reason must not prevent a checkpoint from being aborted.
    """
    return CheckpointFailureReason.__members__.get(name, CheckpointFailureReason.CHECKPOINT_DECLINED)
