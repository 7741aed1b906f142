"""The error of a broken head names the rollback to type: nothing is skipped silently, a person goes back."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from milepost.errors import CheckpointError, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.ancestry import timeline_ancestry
from milepost.storage.object_handles import read_handle

_LOG = logging.getLogger(__name__)


class _HasContext(Protocol):
    _context: JobContext


P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=_HasContext)


def suggest_rollback(
    method: Callable[Concatenate[M, P], R],
) -> Callable[Concatenate[M, P], R]:
    """Let the method's StateCorrupt name the rollback to type, when it is the head that is broken."""

    @functools.wraps(method)
    def wrapper(self: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except StateCorrupt as error:
            _suggest_rollback(self._context, error)
            raise

    return wrapper


def newest_intact_ancestor(context: JobContext, state: ManifestState) -> CheckpointId | None:
    """Return the newest checkpoint before the head that is whole, 0 for the empty state; None: the head is.

    Reads every object of the head, and of each candidate what is its own. Published files need to be there.
    """
    from milepost.jobmaster.job.table_contents import table_problems  # which only what reads tables has loaded

    whole: dict[ObjectHandle, bool] = {}

    def is_whole(checkpoint: CompletedCheckpoint) -> bool:
        try:
            metadata = context.stored_metadata(checkpoint)
        except StateCorrupt:
            return False
        tables = metadata.tables.items()
        return all(_is_whole(context, handle, whole) for handle in metadata.handles()) and not any(
            table_problems(context, name, contents) for name, contents in tables
        )

    newest_first = timeline_ancestry(state, state.timeline())[::-1]
    if not newest_first or is_whole(newest_first[0]):
        return None
    return next((one.checkpoint_id for one in newest_first[1:] if is_whole(one)), NO_CHECKPOINT)


def _is_whole(context: JobContext, handle: ObjectHandle, known: dict[ObjectHandle, bool]) -> bool:
    if handle not in known:
        try:
            read_handle(context.store, handle)
            known[handle] = True
        except StateCorrupt:
            known[handle] = False
    return known[handle]


def _suggest_rollback(context: JobContext, error: StateCorrupt) -> None:
    try:
        state = context.head().state
        target = newest_intact_ancestor(context, state)
    except CheckpointError as failure:  # the first error is the one to report
        if failure.message != error.message:
            _LOG.warning("no checkpoint to go back to could be looked for: %s", failure.message)
        return
    if target is None:
        return
    job = state.job
    before = f"checkpoint {target}, the newest whole one before it" if target else "the empty state: none is whole"
    error.hint = (
        f"put the objects back from a copy of the store (milepost verify {job} lists them); or go back to {before}: "
        f"milepost rollback {job} --to {target}"
    )
    error.details["rollback_to"] = int(target)
