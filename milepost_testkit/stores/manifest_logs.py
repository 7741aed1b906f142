"""Manifest logs on a store, and small transitions to write to them."""

from __future__ import annotations

from uuid import uuid4

from milepost.errors import ProtocolViolation
from milepost.protocol.manifest.coordinator import create, trigger
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Transition
from milepost.protocol.manifest.transaction.requests import CreateRequest, TriggerRequest
from milepost.protocol.records.checkpoints import Holder, ObjectHandle, Run, SubtaskKey
from milepost.protocol.records.ids import CheckpointId, SessionId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.log.manifest_log import Decide, ManifestLog

MAX_TOMBSTONE_BYTES = 250
"""No tombstone is larger while versions and ids have up to eight digits."""


def new_log(store: ObjectStore) -> ManifestLog:
    """Open the log of the job that the store is rooted at."""
    return ManifestLog(store, lambda: uuid4().hex)


def create_job(job: str) -> Decide:
    """Decide: version 1, or already done."""

    def decide(state: ManifestState | None, now_ms: int) -> Transition | AlreadyDone:
        return create(state, CreateRequest(job, "0f" * 16), now_ms)

    return decide


def trigger_checkpoint(session: str) -> Decide:
    """Decide: this session claims the timeline; Busy while another's checkpoint is pending."""
    holder = Holder(kind="cli", host="host", pid=1, create_time_ms=1)

    def decide(state: ManifestState | None, now_ms: int) -> Transition | AlreadyDone:
        if state is None:
            raise ProtocolViolation("there is no job to trigger")
        request = TriggerRequest(
            session_id=SessionId(session),
            holder=holder,
            run=Run(),
            base=CheckpointId(0),
            plan=ObjectHandle(f"inputs/{'0' * 64}.json", 2, "0" * 64),
            expected=(SubtaskKey(0, 0),),
            timeout_ms=60_000,
            code_hash="c" * 64,
            spec_hash="s" * 64,
        )
        return trigger(state, request, now_ms)

    return decide
