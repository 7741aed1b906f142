"""Refuse to read a log from its start if the log may lack its first records."""

from __future__ import annotations

from milepost.epoch import counted
from milepost.errors import InvalidRequest
from milepost.jobmaster.job.context import JobContext
from milepost.language import is_same_start
from milepost.protocol.landed import Identity, StoredRecord, require_own_log
from milepost.protocol.records import LANDED_PREFIX, ManifestState
from milepost.storage.log import SourceLog, stored_logs


def require_whole_logs(context: JobContext, state: ManifestState | None, use: str) -> None:
    """Check that epochs can read each landed source from its `start`: its log is new, or nothing has read it yet.

    Args:
        state: of the head; None: the job has never run. use: what is refused, for the message.
    Raises: InvalidRequest, SourceReplaced. Nothing was changed.
    """
    for source in context.spec.landed:
        log = context.source_log(source)
        newest = log.newest()
        if newest is None:
            continue
        if state is not None:
            require_own_log(source, newest.record.identity, context.identity)
        if state is None or state.checkpoints or newest.record.first > 1:
            raise InvalidRequest(
                f"job {context.spec.name}: {use} refused: it would read source {source} from its `start`, and the "
                f"job's storage has a log of it, up to record {newest.record.sequence}, whose begin was read before. "
                "Nothing was changed.",
                hint=f"give the job another storage, or move {LANDED_PREFIX}{log.stored_as}/ out of it: the next "
                "landing begins a new log at the source's `start`",
                source=source,
            )


def require_renamed(log: SourceLog, newest: StoredRecord | None) -> None:
    """Check that the log of a renamed source exists, given that no checkpoint has read it. Raises InvalidRequest.

    Example: a source was landed as `clicks`, renamed to `events`, and then to `taps` with `renamed_from: events` before
    an epoch ran. Only `clicks` has a log.
    """
    if newest is None and log.stored_as != log.source:
        raise InvalidRequest(
            f"source {log.source}: by `renamed_from`, its log is stored under the name {log.stored_as}, and there is "
            "none. Nothing was landed.",
            hint="write the name under which the source was landed first. To begin a new log, remove `renamed_from`",
            source=log.source,
        )


def require_no_unread_log(context: JobContext, source: str, identity: Identity) -> None:
    """Check that no log of the same external system has rows that no source of the job reads. Raises InvalidRequest.

    Example: a source was landed as `clicks`, and is called `events` before an epoch ran. A log of `events` would begin
    after the rows of `clicks`, if the external system deletes what was landed.

    Args:
        source: the source that is about to begin its log. identity: its external system's, with the job's.
    """
    read = {*context.log_names().values()}
    for name in stored_logs(context.store):
        newest = None if name in read else context.stored_log(name).newest()
        if newest is not None and newest.record.total_rows and newest.record.identity == identity:
            raise InvalidRequest(
                f"source {source}: {LANDED_PREFIX}{name}/ is a log of the same external system, with "
                f"{counted(newest.record.total_rows, 'row')} that no checkpoint has read, and no source has its name. "
                "Nothing was landed.",
                hint=f"to continue it, write `renamed_from: {name}` at source {source}, until an epoch has run. To "
                f"discard its rows, move {LANDED_PREFIX}{name}/ out of the job's storage",
                source=source,
            )


def require_restored(source: str, newest: StoredRecord, state: ManifestState) -> None:
    """Check that no restore is unfinished, given that the checkpoint has read nothing of a log. Raises InvalidRequest.

    An unfinished one has begun a log that continues a savepoint, and the job is still on its first timeline. A landing
    in between would append after the records that were copied so far, and a source that returns what it still has would
    skip the rest. A rollback to the empty state, which reads from the begin of the log, is on a timeline of its own.
    """
    if newest.record.first > 1 and state.timeline().parent is None:
        raise InvalidRequest(
            f"source {source}: the checkpoint has read nothing, and its log begins with record {newest.record.first}: "
            "it continues the log of a savepoint, and does not have the rows before. Nothing was read or landed.",
            hint="restore the savepoint: milepost start JOB --from SAVEPOINT. To start a new log, move "
            f"{LANDED_PREFIX}{source}/ out of the job's storage",
            source=source,
        )


def require_declared_start(context: JobContext, log: SourceLog, newest: StoredRecord) -> None:
    """Check that a log began by the `start` of the spec, given that no checkpoint has read it. Raises InvalidRequest.

    Example: a source was landed with `start: latest`, which is changed to `earliest` before an epoch ran. Once an epoch
    has read the log, the recorded signature of the source refuses the same change.
    """
    declared = context.spec.landed[log.source].identity.get("start", "")
    if log.floor is not None or newest.record.first > 1:
        return
    begun = (newest if newest.record.sequence == 1 else log.record(1)).record.declared_start
    if begun and not is_same_start(begun, declared):
        raise InvalidRequest(
            f"source {log.source}: its log began at start {begun}, and the spec says {declared} now. A log keeps the "
            "start at which it began. Nothing was landed or read.",
            hint=f"give the source another name, which begins a log at {declared}, or undo the change. To discard what "
            f"was landed, move {LANDED_PREFIX}{log.stored_as}/ out of the job's storage",
            source=log.source,
        )
