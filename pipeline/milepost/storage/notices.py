"""Notify running subtasks that their checkpoint is aborted, so that they skip late work.

A fenced job does no harm: it writes below the prefix of its own token, which nothing reads. But without a notice it
would continue to upload, even after that prefix was deleted as garbage. The notice is stored below the same prefix and
is deleted with it.

Source: Ray's `JobWorker.notifyCheckpointTimeout`; Flink's abort, which carries the latest completed id.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from milepost.codec import StoredAs, decode, to_json
from milepost.errors import NotFound
from milepost.protocol.records import (
    CheckpointFailureReason,
    CheckpointId,
    FencingToken,
    ObjectStore,
    abort_notice_key,
    parse_reason,
)


def _stored_reason(reason: CheckpointFailureReason) -> str:
    return reason.value


@dataclass(frozen=True, slots=True)
class AbortNotice:
    """Why a checkpoint was aborted, for its subtasks.

    Attributes:
        latest_completed: newest completed checkpoint at that time, or 0 when there is none (I11).
    """

    reason: Annotated[CheckpointFailureReason, StoredAs(str, _stored_reason, parse_reason)]
    latest_completed: CheckpointId


def write_notice(store: ObjectStore, checkpoint_id: CheckpointId, token: FencingToken, notice: AbortNotice) -> None:
    """Write the notice for the subtasks that run under this token. A repeated write is harmless."""
    body = json.dumps(to_json(notice), sort_keys=True).encode()
    store.put(abort_notice_key(checkpoint_id, token), body)


def read_notice(store: ObjectStore, checkpoint_id: CheckpointId, token: FencingToken) -> AbortNotice | None:
    """Return the notice for a token's subtasks, or None while no abort was announced.

    Raises:
        StateCorrupt: the notice cannot be read.
    """
    key = abort_notice_key(checkpoint_id, token)
    try:
        body = store.get(key)
    except NotFound:
        return None
    return decode(AbortNotice, body, f"notice of an abort {key}", hint="nothing was uploaded; run the epoch again")
