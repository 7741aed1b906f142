"""Create, export, list and dispose of savepoints: self-contained copies of checkpoints.

Order of a creation:
1. The checkpoint is pinned.
2. Everything is copied below the savepoint's root, `savepoint.json` last.
3. One manifest transition lists the savepoint.
4. The pin is removed.
After a crash before step 3 there is no savepoint, and copies in the job's storage are unreachable. A disposal first
removes the savepoint from the list, then deletes `savepoint.json`, then the objects that it named. Nothing is ever
overwritten, and nothing is deleted that the savepoint does not name.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    InvalidRequest,
    NotFound,
    StateCorrupt,
    with_hint,
)
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.pins import CopyPin, pin_for_copy
from milepost.jobmaster.job.savepoint_document import SavepointDocument
from milepost.jobmaster.job.session import Session
from milepost.jobmaster.job.use_case import use_case
from milepost.jobmaster.leadership.incarnations import HeadMoved, Incarnations
from milepost.jobmaster.leadership.outcomes import CanceledJob, CheckpointCopy, CopiedTable, SavedHead
from milepost.jobmaster.savepoints.listed import savepoint_named, savepoint_store
from milepost.jobmaster.savepoints.reader import read_listed_document
from milepost.jobmaster.savepoints.savepoint_copy import Contents, contents_of, require_free, write_copy
from milepost.jobmaster.savepoints.savepoint_places import require_outside, require_unread
from milepost.protocol.manifest.transaction import (
    DisposeSavepointRequest,
    RecordSavepointRequest,
    SavepointDisposed,
    Transition,
)
from milepost.protocol.records import (
    SAVEPOINT_DOCUMENT,
    SAVEPOINTS_PREFIX,
    CheckpointId,
    Decision,
    ManifestState,
    ObjectStore,
    child_url,
    copy_pin_name,
    savepoint_name_fault,
    savepoint_root,
)
from milepost.storage import OnCopied, PrefixedStore

_LOG = logging.getLogger(__name__)

_TRIES = 5


def _unwatched(size: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class DisposedSavepoint:
    """A disposed savepoint. left: what could not be deleted, or None."""

    name: str
    checkpoint_id: int
    location: str
    deleted_objects: int
    left: str | None


class Savepoints:
    """The use cases of one job's savepoints."""

    def __init__(self, context: JobContext, incarnations: Incarnations) -> None:
        self._context, self._incarnations = context, incarnations

    @use_case
    def create(
        self,
        name: str | None = None,
        *,
        at: int | None = None,
        target: str | None = None,
        with_input: bool = False,
        copied: OnCopied = _unwatched,
        session: Session | None = None,
    ) -> CheckpointCopy:
        """Copy a completed checkpoint, and all tables as of it, and list the copy as a savepoint of the job.

        Args:
            name: None for `checkpoint-<id>`. at: a retained checkpoint; None for the head.
            target: where its folder `<name>` is written: a URL, or a path relative to the spec; None for the job's
                storage.
            with_input: also copy the input landed after the checkpoint, so that a job elsewhere does not need the
                external system for it.
            copied: called with the bytes of each copied object. session: None for a new one of the command line.
        Raises:
            NotFound: no such checkpoint. InvalidRequest: a bad name or target. CommitConflict: the name is taken, or a
            savepoint exists there. StateCorrupt: the checkpoint is damaged. In all cases there is no new savepoint.
        """
        context, own = self._context, Session.cli()  # a pin of its own for each call
        session = session or own
        state = context.head().state
        checkpoint_id = self._saved_id(state, at)
        name = f"checkpoint-{checkpoint_id}" if name is None else name
        fault = savepoint_name_fault(name)
        if fault is not None:
            raise InvalidRequest(f"savepoint name {name!r} refused: {fault}. Nothing was written.")
        _require_unlisted(state, name)
        prefix = savepoint_root(name, uuid.uuid4().hex) if target is None else ""
        location = None if target is None else child_url(context.job.url(target), name)
        root = self._below(prefix) if location is None else context.store_at(location)
        if location is not None:
            require_outside(context, root)
        require_free(root)
        pin = copy_pin_name(prefix) if prefix else own.session_id
        with pin_for_copy(context, session.session_id, pin, checkpoint_id) as hold, self._with_recovery_hint():
            try:
                contents = self._contents(hold.state, checkpoint_id, with_input=with_input)
                require_unread(context, root, contents.keys)
                document = write_copy(contents, root, _renewing(hold, copied))
            except CheckpointError:
                self._clear(prefix)
                raise
            if location is None:
                document = replace(document, key=prefix.removeprefix(_home(name)) + document.key)
            request = RecordSavepointRequest(session.session_id, name, checkpoint_id, location, document)
            self._record(request, prefix)
        return replace(_made(contents, root), name=name)

    @use_case
    def export(
        self, checkpoint_id: int, target: str, *, with_input: bool = False, copied: OnCopied = _unwatched
    ) -> CheckpointCopy:
        """Copy a retained checkpoint, and all tables as of it, to a location that the job does not list.

        Args:
            target: the root of the copy, without a savepoint: a URL, or a path relative to the spec.
            with_input: as in `create`.
        Raises: as `create`.
        """
        context = self._context
        root = context.store_at(target)
        chosen = self._saved_id(context.head().state, checkpoint_id)
        require_outside(context, root)
        require_free(root)
        session_id = Session.cli().session_id
        with pin_for_copy(context, session_id, session_id, chosen) as hold, self._with_recovery_hint():
            contents = self._contents(hold.state, chosen, with_input=with_input)
            require_unread(context, root, contents.keys)
            write_copy(contents, root, _renewing(hold, copied))
        return _made(contents, root)

    @use_case
    def dispose(self, name: str, session: Session | None = None) -> DisposedSavepoint:
        """Remove a savepoint from the list, then delete the objects that its document names below its own root.

        Args:
            session: None for a new one of the command line.
        Raises: NotFound: the job has no savepoint of that name.
        """
        context, session = self._context, session or Session.cli()
        savepoint = savepoint_named(context.head().state, name)
        root = savepoint_store(context, savepoint)
        try:
            document: SavepointDocument | None = read_listed_document(savepoint, root)
            left = None
        except (StateCorrupt, NotFound) as error:
            fault = error.message.removesuffix(" Nothing was changed.")
            document, left = None, f"{fault} It lists the objects to delete, so none of them were deleted."
        request = DisposeSavepointRequest(session.session_id, name)

        def check(state: ManifestState) -> None:
            if next((item for item in state.savepoints if item.name == name), savepoint) != savepoint:
                raise CommitConflict(f"savepoint {name} was replaced concurrently. Nothing was changed.")

        decided = context.transact(request, check=check)
        mine = isinstance(decided.outcome, Transition) and isinstance(decided.outcome.event, SavepointDisposed)
        deleted = 0
        if mine and document is not None:
            try:
                deleted = delete_copy(document, root)
            except CheckpointError as error:
                left = f"not everything was deleted: {error.message}"
        return DisposedSavepoint(name, int(savepoint.checkpoint_id), root.config.url, deleted, left)

    @use_case
    def cancel(
        self,
        *,
        savepoint: bool = False,
        session: Session | None = None,
        decision: Decision | None = None,
    ) -> CanceledJob:
        """End the incarnation as CANCELED, then clean up: publish completed checkpoints, delete staged files.

        Args:
            savepoint: first save the checkpoint that the job ends at. If that fails, the job continues.
            session: None for a new one of the command line. decision: who decided and why, for the history.
        Returns: a result with the outcome ``canceled``, ``already_canceled`` or ``already_finished``.
        Raises: as `create`. HeadMoved: the head moved during each of several savepoints. Also errors of the clean-up;
            the job is CANCELED nevertheless, and the message says so.
        """
        session = session or Session.cli()
        decision = decision or session.decision()
        if not savepoint:
            return self._incarnations.cancel(session=session, decision=decision)
        for _ in range(_TRIES):
            saved = self._save_head(session)
            try:
                head = CheckpointId(saved.checkpoint_id)
                ended = self._incarnations.cancel(expected_head=head, session=session, decision=decision)
            except HeadMoved as moved:
                _LOG.info("%s; saving that one", moved.message)
                if isinstance(saved, CheckpointCopy):
                    self.dispose(str(saved.name), session)
            else:
                return replace(ended, savepoint=saved)
        raise HeadMoved(
            f"job {self._context.spec.name}: an epoch completed during each of {_TRIES} savepoints. The job was not "
            "canceled, and the savepoints were disposed of.",
            hint="stop its schedule, then cancel again",
        )

    def _save_head(self, session: Session) -> CheckpointCopy | SavedHead:
        """Return a savepoint of the head: an existing one, or a new copy."""
        state = self._context.head().state
        there = next((item for item in state.savepoints if item.checkpoint_id == state.timeline().head), None)
        if there is not None:
            return SavedHead(there.name, int(there.checkpoint_id))
        return self.create(session=session)

    def _below(self, prefix: str) -> ObjectStore:
        return PrefixedStore(self._context.store, prefix)

    def _contents(self, state: ManifestState, checkpoint_id: CheckpointId, *, with_input: bool) -> Contents:
        checkpoint = state.checkpoint(checkpoint_id)
        assert checkpoint is not None, "it is pinned"
        return contents_of(self._context, checkpoint, with_input=with_input)

    def _saved_id(self, state: ManifestState, at: int | None) -> CheckpointId:
        wanted = state.timeline().head if at is None else CheckpointId(at)
        if state.checkpoint(wanted) is None:
            retained = ", ".join(str(item.checkpoint_id) for item in state.checkpoints) or "none"
            raise NotFound(
                f"job {state.job} retains no completed checkpoint {wanted or ''}; retained: {retained}. "
                "Nothing was written.",
                checkpoint_id=int(wanted),
            )
        return wanted

    def _with_recovery_hint(self) -> AbstractContextManager[None]:
        """Add to the error of a damaged checkpoint how to find another one."""
        job = self._context.spec.name
        return with_hint(StateCorrupt, f"milepost verify {job} lists what is broken; take another checkpoint")

    def _record(self, request: RecordSavepointRequest, prefix: str) -> None:
        """List the savepoint. The copies are deleted only if the transition was refused, else it may have landed."""

        def check(state: ManifestState) -> None:
            listed = next((item for item in state.savepoints if item.name == request.name), None)
            if listed is None or listed.document != request.document:
                _require_unlisted(state, request.name)

        try:
            self._context.transact(request, check=check)
        except (InvalidRequest, NotFound, CommitConflict):  # refusals; after any other error it may have landed
            self._clear(prefix)
            raise

    def _clear(self, prefix: str) -> None:
        """Delete what a failed creation copied into the job's storage. No one else writes or reads there."""
        if not prefix:
            return
        try:
            self._context.store.delete([stat.key for stat in self._context.store.list(prefix)])
        except CheckpointError as error:
            _LOG.warning("%s stays, unreachable: %s", prefix, error.message)


def delete_copy(document: SavepointDocument, root: ObjectStore) -> int:
    """Delete a savepoint's document, then the objects that it names. Returns the number of deleted objects."""
    root.delete([SAVEPOINT_DOCUMENT])
    root.delete([handle.key for handle in document.objects])
    return len(document.objects) + 1


def _renewing(hold: CopyPin, copied: OnCopied) -> OnCopied:
    """Return a callback that calls `copied` and renews the pin of the checkpoint."""

    def renewing(size: int) -> None:
        copied(size)
        hold.renew()

    return renewing


def _require_unlisted(state: ManifestState, name: str) -> None:
    taken = next((item for item in state.savepoints if item.name == name), None)
    if taken is not None:
        raise CommitConflict(
            f"job {state.job} has a savepoint {name} already, of checkpoint {taken.checkpoint_id}. It was left as it "
            "is, and nothing was written.",
            hint=f"take another name with --name, or first: milepost savepoint dispose {state.job} --name {name}",
            name=name,
        )


def _home(name: str) -> str:
    return f"{SAVEPOINTS_PREFIX}{name}/"


def _made(contents: Contents, root: ObjectStore) -> CheckpointCopy:
    document = contents.document
    return CheckpointCopy(
        checkpoint_id=document.checkpoint_id,
        location=root.config.url,
        objects=len(document.objects),
        bytes=document.size,
        sinks={name: CopiedTable(len(table.files), table.rows) for name, table in document.tables.items()},
        left_out=tuple(contents.left_out),
    )
