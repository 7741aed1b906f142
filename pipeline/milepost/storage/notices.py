"""Notices of aborted checkpoints, for subtasks of a Spark job that still runs: late work is skipped.

A fenced job cannot harm: it writes below its own token's prefix, which nobody reads. But it would go on uploading, also
after that prefix was deleted as garbage. A notice lies below the prefix itself, so it goes with it.

Source: Ray's `JobWorker.notifyCheckpointTimeout`; Flink's abort, which carries the latest completed id.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from milepost.protocol.records.errors import NotFound, StateCorrupt
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import ObjectStore
from milepost.protocol.records.reasons import CheckpointFailureReason, reason_of
from milepost.storage.layout import abort_notice_key


@dataclass(frozen=True, slots=True)
class AbortNotice:
    """What a subtask is told of its checkpoint's abort.

    Attributes:
        reason: why. latest_completed: the newest completed checkpoint at that time; 0 when there is none (I11).
    """

    reason: CheckpointFailureReason
    latest_completed: CheckpointId


def write_notice(store: ObjectStore, checkpoint_id: CheckpointId, token: FencingToken, notice: AbortNotice) -> None:
    """Tell the subtasks that run under this token. Writing it again is harmless."""
    document = {"reason": notice.reason.value, "latest_completed": int(notice.latest_completed)}
    store.put(abort_notice_key(checkpoint_id, token), json.dumps(document, sort_keys=True).encode())


def read_notice(store: ObjectStore, checkpoint_id: CheckpointId, token: FencingToken) -> AbortNotice | None:
    """Return the notice for a token's subtasks; None: as far as anybody said, the checkpoint may still complete.

    Raises:
        StateCorrupt: there is one, and it cannot be read.
    """
    key = abort_notice_key(checkpoint_id, token)
    try:
        body = store.get(key)
    except NotFound:
        return None
    try:
        document = json.loads(body)
        return AbortNotice(reason_of(document["reason"]), CheckpointId(int(document["latest_completed"])))
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorrupt(f"{key}: not a readable notice of an abort: {error!r}. Nothing was uploaded.") from error
