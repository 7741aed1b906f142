"""Store, show and delete vetoes: the rows for which the quality gate refused an epoch (I8).

Order of writes: `run_epoch` writes the veto below its token. The abort copies it to ``vetoes/<id>.json`` by
put-if-absent, then makes the transition whose event names it by digest. It is retained for `retained.daily` days, at
least one. Only that event refers to it, so an expired veto is deleted in one step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from milepost.errors import CheckpointError, CommitConflict, CommitOutcomeUnknown, NotFound
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.manifest.transaction import AbortRequest, find_pending
from milepost.protocol.records import (
    QUALITY_GATE_REASONS,
    VETOES_PREFIX,
    ObjectHandle,
    PendingCheckpoint,
    is_veto_key,
    staged_veto_key,
    veto_key,
)
from milepost.protocol.retention import veto_retention_ms
from milepost.quality import Evidence, GateVerdict, VetoedInput, build_veto, decode_veto
from milepost.storage import handle_of, read_handle

_LOG = logging.getLogger(__name__)


def stage_veto(
    context: JobContext,
    pending: PendingCheckpoint,
    verdict: GateVerdict,
    found: Mapping[str, Mapping[int, Evidence]],
    read: Mapping[str, VetoedInput],
) -> None:
    """Write the evidence of a veto below the epoch's token. Only people read it, so a failed write is only logged.

    Args:
        found: the evidence, by sink and by index of the expectation in its suite.
        read: what the epoch read, by source.
    """
    veto = build_veto(int(pending.checkpoint_id), verdict, context.spec.quality, found, read)
    try:
        context.store.put(staged_veto_key(pending.checkpoint_id, pending.token), veto.encode())
    except CheckpointError as error:
        _LOG.warning("checkpoint %s: its failing rows could not be stored: %s", pending.checkpoint_id, error.message)


def with_veto(context: JobContext, request: AbortRequest) -> AbortRequest:
    """Return the abort request with its durable veto; without one if there is none, or if storing it fails."""
    if request.reason not in QUALITY_GATE_REASONS:
        return request
    try:
        match = find_pending(context.head().state, request.checkpoint_id)
        if match is None:
            return request
        body = context.store.get(staged_veto_key(request.checkpoint_id, match[1].token))
        key = veto_key(request.checkpoint_id)
        try:
            context.store.create(key, body)
        except (CommitConflict, CommitOutcomeUnknown):  # an earlier abort was refused, or its reply was lost
            body = context.store.get(key)
    except NotFound:
        return request
    except CheckpointError as error:
        _LOG.warning("checkpoint %s: its failing rows could not be stored: %s", request.checkpoint_id, error.message)
        return request
    return replace(request, veto=handle_of(key, body))


def read_veto(context: JobContext, handle: ObjectHandle) -> dict[str, Any]:
    """Return the veto that an abort event names, for display; its `problem` if it cannot be read."""
    try:
        return decode_veto(read_handle(context.store, handle), handle.key)
    except CheckpointError as error:
        days = max(1, context.spec.checkpointing.retained.daily)
        return {"problem": f"{error.message} Failing rows are retained for {days} days.", "refusals": []}


def vetoing_rules(context: JobContext, handle: ObjectHandle | None) -> list[str]:
    """Return the names of the rules that vetoed an epoch, with their sinks; [] without a readable veto."""
    refusals = [] if handle is None else read_veto(context, handle)["refusals"]
    return [f"{one['sink']}: {one['type']}{'(' + one['column'] + ')' if one['column'] else ''}" for one in refusals]


def is_expired(context: JobContext, last_modified_ms: int, now_ms: int) -> bool:
    """Return whether a veto of this age has expired."""
    return now_ms - last_modified_ms >= veto_retention_ms(context.spec.checkpointing.retained.daily)


def collect_vetoes(context: JobContext) -> int:
    """Delete the expired vetoes. Returns how many."""
    now_ms = context.store.clock_ms()
    expired = [
        stat.key
        for stat in context.store.list(VETOES_PREFIX)
        if is_veto_key(stat.key) and is_expired(context, stat.last_modified_ms, now_ms)
    ]
    context.store.delete(expired)
    return len(expired)
