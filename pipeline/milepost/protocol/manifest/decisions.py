"""Map each type of request to the pure function that decides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milepost.protocol.manifest import coordinator
from milepost.protocol.manifest.timelines import incarnation, timelines
from milepost.protocol.manifest.transaction import requests
from milepost.protocol.manifest.transaction.answers import Answer
from milepost.protocol.manifest.upkeep import (
    after_commit,
    collection,
    compaction,
    garbage,
    pins,
    quarantine,
    savepoints,
)
from milepost.protocol.records.manifest_state import ManifestState

Request = (
    requests.CreateRequest
    | requests.TriggerRequest
    | requests.RebindRequest
    | requests.CompleteRequest
    | requests.AbortRequest
    | requests.ConfirmSinksRequest
    | requests.SubsumeRequest
    | requests.GarbageDeletedRequest
    | requests.ResumeRequest
    | requests.CancelRequest
    | requests.FinishRequest
    | requests.CleanRequest
    | requests.StartRequest
    | requests.PinRequest
    | requests.UnpinRequest
    | requests.QuarantineRequest
    | requests.ReleaseRequest
    | requests.RollbackRequest
    | requests.ForkRequest
    | requests.FreezeRequest
    | requests.ThawRequest
    | requests.FastForwardRequest
    | requests.DisposeForkRequest
    | requests.ReconcileSinkRequest
    | requests.RealignSinkRequest
    | requests.RecordSavepointRequest
    | requests.DisposeSavepointRequest
    | requests.ListGarbageRequest
    | requests.ForgetCollectedRequest
    | requests.RecordCompactionRequest
    | requests.FoldGarbageRequest
)
"""Every request that the manifest accepts."""

_DECISIONS: dict[type, Callable[[Any, Any, int], Answer]] = {
    requests.CreateRequest: coordinator.create,
    requests.TriggerRequest: coordinator.trigger,
    requests.RebindRequest: coordinator.rebind,
    requests.CompleteRequest: coordinator.complete,
    requests.AbortRequest: coordinator.abort,
    requests.ConfirmSinksRequest: after_commit.confirm_sinks,
    requests.SubsumeRequest: after_commit.subsume,
    requests.GarbageDeletedRequest: after_commit.forget_garbage,
    requests.ResumeRequest: incarnation.resume,
    requests.CancelRequest: incarnation.cancel,
    requests.FinishRequest: incarnation.finish,
    requests.CleanRequest: incarnation.clean,
    requests.StartRequest: incarnation.start,
    requests.PinRequest: pins.pin,
    requests.UnpinRequest: pins.unpin,
    requests.QuarantineRequest: quarantine.quarantine,
    requests.ReleaseRequest: quarantine.release,
    requests.RollbackRequest: timelines.rollback,
    requests.ForkRequest: timelines.fork,
    requests.FreezeRequest: timelines.freeze,
    requests.ThawRequest: timelines.thaw,
    requests.FastForwardRequest: timelines.fast_forward,
    requests.DisposeForkRequest: timelines.dispose_fork,
    requests.ReconcileSinkRequest: timelines.reconcile_sink,
    requests.RealignSinkRequest: timelines.realign_sink,
    requests.RecordSavepointRequest: savepoints.record_savepoint,
    requests.DisposeSavepointRequest: savepoints.dispose_savepoint,
    requests.ListGarbageRequest: collection.list_garbage,
    requests.ForgetCollectedRequest: collection.forget_collected,
    requests.RecordCompactionRequest: compaction.record_compaction,
    requests.FoldGarbageRequest: garbage.fold_garbage,
}


def decide(state: ManifestState | None, request: Request, now_ms: int) -> Answer:
    """Return the answer to a request, given the head's state; None is the state before the job's first entry.

    Raises: whatever the request's function raises. Nothing is changed then.
    """
    return _DECISIONS[type(request)](state, request, now_ms)
