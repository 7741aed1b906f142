"""Notices of aborted checkpoints, for subtasks of a Spark job that still runs: late work is skipped.

A fenced job cannot harm: it writes below its own token's prefix, which nobody reads. But it would go on uploading, also
after that prefix was deleted as garbage. A notice lies below the prefix itself, so it goes with it.

Source: Ray's `JobWorker.notifyCheckpointTimeout`; Flink's abort, which carries the latest completed id.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from milepost.protocol.codec.records import decode, to_json
from milepost.protocol.records.errors import NotFound
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import abort_notice_key
from milepost.protocol.records.object_store import ObjectStore
from milepost.protocol.records.reasons import CheckpointFailureReason, parse_reason
from milepost.protocol.records.stored_fields import StoredAs


def _stored_reason(reason: CheckpointFailureReason) -> str:
    return reason.value


@dataclass(frozen=True, slots=True)
class AbortNotice:
    """What a subtask is told of its checkpoint's abort.

    Attributes:
        reason: why. latest_completed: the newest completed checkpoint at that time; 0 when there is none (I11).
    """

    reason: Annotated[CheckpointFailureReason, StoredAs(str, _stored_reason, parse_reason)]
    latest_completed: CheckpointId


def write_notice(store: ObjectStore, checkpoint_id: CheckpointId, token: FencingToken, notice: AbortNotice) -> None:
    """Tell the subtasks that run under this token. Writing it again is harmless."""
    body = json.dumps(to_json(notice), sort_keys=True).encode()
    store.put(abort_notice_key(checkpoint_id, token), body)


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
    return decode(AbortNotice, body, f"notice of an abort {key}", hint="nothing was uploaded; run the epoch again")
