"""Add the rollback command to the error of a corrupt head checkpoint.

A corrupt head is never skipped automatically. A person decides to roll back.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from milepost.errors import CheckpointError, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records import NO_CHECKPOINT, CheckpointId, CompletedCheckpoint, ManifestState, ObjectHandle
from milepost.protocol.retention import timeline_ancestry
from milepost.storage import read_handle

_LOG = logging.getLogger(__name__)


class _HasContext(Protocol):
    _context: JobContext


P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=_HasContext)


def suggest_rollback(
    method: Callable[Concatenate[M, P], R],
) -> Callable[Concatenate[M, P], R]:
    """Decorate a method so that its StateCorrupt names the rollback command, if the head is corrupt."""

    @functools.wraps(method)
    def wrapper(self: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except StateCorrupt as error:
            _suggest_rollback(self._context, error)
            raise

    return wrapper


def newest_intact_ancestor(context: JobContext, state: ManifestState) -> CheckpointId | None:
    """Return the newest intact checkpoint before the head: 0 is the empty state, None means that the head is intact.

    Reads every object of the head and, per candidate, the objects that were not read yet. Published files only have
    to exist.
    """
    from milepost.jobmaster.job.table_contents import table_problems  # imports Arrow

    checked: dict[ObjectHandle, bool] = {}

    def is_intact(checkpoint: CompletedCheckpoint) -> bool:
        try:
            metadata = context.stored_metadata(checkpoint)
        except StateCorrupt:
            return False
        tables = metadata.tables.items()
        return all(_is_intact(context, handle, checked) for handle in metadata.handles()) and not any(
            table_problems(context, name, contents) for name, contents in tables
        )

    newest_first = timeline_ancestry(state, state.timeline())[::-1]
    if not newest_first or is_intact(newest_first[0]):
        return None
    return next((candidate.checkpoint_id for candidate in newest_first[1:] if is_intact(candidate)), NO_CHECKPOINT)


def _is_intact(context: JobContext, handle: ObjectHandle, checked: dict[ObjectHandle, bool]) -> bool:
    if handle not in checked:
        try:
            read_handle(context.store, handle)
            checked[handle] = True
        except StateCorrupt:
            checked[handle] = False
    return checked[handle]


def _suggest_rollback(context: JobContext, error: StateCorrupt) -> None:
    try:
        state = context.head().state
        target = newest_intact_ancestor(context, state)
    except CheckpointError as failure:  # the original error is the one to report
        if failure.message != error.message:
            _LOG.warning("cannot search for a checkpoint to roll back to: %s", failure.message)
        return
    if target is None:
        return
    job = state.job
    before = f"checkpoint {target}, the newest intact one" if target else "the empty state, as no checkpoint is intact"
    error.hint = (
        f"restore the objects from a backup of the store (milepost verify {job} lists them); or roll back to {before}: "
        f"milepost rollback {job} --to {target}"
    )
    error.details["rollback_to"] = int(target)
