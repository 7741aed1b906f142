"""Continue the logs of landed sources when a savepoint is restored (L9).

In a job that has the log, the checkpoint's position is on it. Elsewhere a new log begins at the position, and the
copied records follow. Order of writes: the landed objects, the first record, each copied record, the checkpoint. A
restore that failed in between is repeated, and continues with the same log.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from milepost.epoch import with_names_of
from milepost.errors import CheckpointError, InvalidRequest, NotFound, SourceReplaced
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.landing.lost_positions import named_positions, try_reading
from milepost.jobmaster.landing.open_sources import open_source
from milepost.jobmaster.savepoints.reader import SavedCheckpoint
from milepost.jobmaster.savepoints.saved_logs import object_handles
from milepost.protocol.landed import (
    JOB,
    SLOT,
    LogPosition,
    StoredRecord,
    continuing_record,
    copied_record,
    is_continued_by,
    require_identity,
    require_own_log,
)
from milepost.protocol.records import LANDED_PREFIX, ObjectHandle
from milepost.storage.log import SourceLog


class ContinuedLogs:
    """The logs of one savepoint's landed sources, in the job that it is restored into.

    Attributes:
        elsewhere: positions that continue in a log of their own, by the name under which it is stored. The others are
            on the job's logs.
        claim: whether these logs take over the replication slots.
    """

    def __init__(
        self, context: JobContext, saved: SavedCheckpoint, elsewhere: Mapping[str, LogPosition], *, claim: bool
    ) -> None:
        self._context, self._saved, self.elsewhere, self._claim = context, saved, elsewhere, claim

    def objects(self) -> list[ObjectHandle]:
        """Return the landed objects to copy, with the keys that they have in the savepoint and in the job."""
        records = ((source, stored) for source in self.elsewhere for stored in self._saved.records[source])
        return [handle for source, stored in records for handle in object_handles(source, stored)]

    def begin(self) -> dict[str, LogPosition]:
        """Begin the logs, after their objects were copied. Returns the position of the checkpoint on each, by name.

        Raises: CommitConflict, CommitOutcomeUnknown, StoreUnavailable: restore again, which continues.
        """
        return {source: self._begin(source, position) for source, position in self.elsewhere.items()}

    def _begin(self, source: str, position: LogPosition) -> LogPosition:
        context, records = self._context, self._saved.records[source]
        log = SourceLog(context.store, source)
        newest = log.newest()
        if newest is None:
            identity, now_ms = dict(self._saved.document.logs[source].identity), context.store.clock_ms()
            if not self._claim:
                identity.pop(SLOT, None)
            newest = log.begin(continuing_record(uuid.uuid4().hex, context.identity, identity, position, now_ms))
        begin = newest if newest.record.sequence == newest.record.first else log.record(newest.record.first)
        log.require_only_begin(begin)
        # An earlier restore copied the first of them. Nothing is landed before the restore is finished.
        for stored in records[newest.record.sequence - begin.record.sequence :]:
            newest = log.append(copied_record(newest, stored.record))
        return begin.position


def continued_logs(context: JobContext, saved: SavedCheckpoint, *, has_run: bool, claim: bool) -> ContinuedLogs:
    """Decide how the job continues each log of a savepoint. Writes nothing.

    Args:
        has_run: whether the job has a manifest. claim: whether the job takes over what only one log can use.
    Raises:
        InvalidRequest: the job has another log of the source, or its external system is another one.
        SourceReplaced: the log is of an earlier life of the job. SourceUnreachable: the external system failed.
        PositionExpired, SourceWentBack: it cannot serve what follows the position.
    """
    elsewhere = {}
    readers = _readers(context, saved)
    for source, position in sorted(saved.metadata.log_positions.items()):
        log = context.stored_log(source)
        _require_own_name(context, saved, source, position, readers.get(source))
        newest = log.newest()
        if newest is not None and has_run:
            require_own_log(source, newest.record.identity, context.identity)
            if log.holds(position):
                continue
        if log.floor is not None:  # no other position may be below a floor, and no other log may begin above it
            raise InvalidRequest(
                f"{_what(context, saved, source, position)}, and this job has deleted the begin of its own log: its "
                f"retained records begin with record {log.floor.next}, see `land.retain`. Nothing was changed.",
                hint="restore it into a new job, which lands what the external system still has",
                source=source,
            )
        if newest is None:
            _require_continuable(context, saved, source, position, readers.get(source), claim=claim)
            elsewhere[source] = position
            continue
        if not has_run or not _continues(log, newest, position):
            raise InvalidRequest(
                f"{_what(context, saved, source, position)}, and this job's storage has another log of that source, "
                f"{newest.record.log}. Nothing was changed.",
                hint=f"restore it into a job without a log of source {source}: a new job, or this one after "
                f"{LANDED_PREFIX}{source}/ was moved out of its storage",
                source=source,
            )
        if source not in saved.document.logs:
            raise _made_earlier(context, saved, source, position)
        elsewhere[source] = position
    return ContinuedLogs(context, saved, elsewhere, claim=claim)


def _continues(log: SourceLog, newest: StoredRecord, position: LogPosition) -> bool:
    """Return whether an earlier restore began the log at this position."""
    try:
        return is_continued_by(position, log.record(newest.record.first).record)
    except NotFound:  # deleted, since checkpoints are further
        return False


def _readers(context: JobContext, saved: SavedCheckpoint) -> dict[str, str]:
    """Return the source of the spec that continues each log of a savepoint, by the name of the log."""
    metadata = with_names_of(context.job.spec, saved.metadata, context.log_names())
    sources = ((name, item) for name, item in metadata.sources.items() if name in context.spec.landed)
    return {item.stored_as or name: name for name, item in sources if item.position is not None}


def _require_own_name(
    context: JobContext, saved: SavedCheckpoint, log: str, position: LogPosition, reader: str | None
) -> None:
    """Check that no source of the job has, or would have, its log under a name of the savepoint. Raises InvalidRequest.

    Args:
        reader: the source that continues the log; None: the spec has none.
    """
    stored = next((name for name, own in context.log_names().items() if own == log and name != reader), None)
    has_other = reader is not None and context.stored_name(reader) != log and context.source_log(reader).newest()
    if stored is None and not has_other:
        return
    other = f"source {stored} has that name" if stored is not None else f"source {reader} has a log of its own"
    raise InvalidRequest(
        f"{_what(context, saved, log, position)}, which would be stored under the name {log}, and {other} in this job. "
        "Nothing was changed.",
        hint="restore it into a new job with the savepoint's names of sources",
        source=log,
    )


def _require_continuable(
    context: JobContext, saved: SavedCheckpoint, source: str, position: LogPosition, reader: str | None, *, claim: bool
) -> None:
    """Check that the external system, if it is needed, is the same and still has what follows the position.

    Args:
        source: name of the log. reader: the source that continues it; None: the spec has none.
    """
    if source not in saved.document.logs:
        raise _made_earlier(context, saved, source, position)
    log, records = saved.document.logs[source], saved.records[source]
    slot = log.identity.get(SLOT)
    if reader is None or (log.with_input and not (claim and slot)):
        return
    if slot and not claim:
        raise InvalidRequest(
            f"{_what(context, saved, source, position)}, from replication slot {slot}, which can serve one log only. "
            "Nothing was changed.",
            hint=f"cancel job {saved.document.job}, then restore with `--claim`, which takes over the slot. Or take a "
            f"savepoint with the landed input: milepost savepoint create {saved.document.job} --with-input",
            source=source,
        )
    at = records[-1].record.end if records else position.at
    spec = context.spec.landed[reader]
    hint = (
        f"if the external system is gone, take a savepoint with the landed input: milepost savepoint create "
        f"{saved.document.job} --with-input"
    )
    try:
        opened = open_source(context, reader, spec, slot=slot)
        require_identity(source, {**log.identity, JOB: ""}, {**opened.identity(), JOB: ""})
        with named_positions(source, at):
            try_reading(opened, at, whole=False)
    except (SourceReplaced, InvalidRequest) as error:
        raise InvalidRequest(
            f"{_what(context, saved, source, position)}, and its external system cannot serve what follows: "
            f"{error.message}",
            hint=f"{error.hint}; {hint}" if error.hint else hint,
            source=source,
        ) from error
    except CheckpointError as error:
        error.hint = f"{error.hint}; {hint}" if error.hint else hint
        raise


def _made_earlier(context: JobContext, saved: SavedCheckpoint, source: str, position: LogPosition) -> InvalidRequest:
    return InvalidRequest(
        f"{_what(context, saved, source, position)}. This job's storage does not have that log, and the savepoint, "
        "of an earlier version, does not say what it is a log of. Nothing was changed.",
        hint=f"restore it into job {saved.metadata.job} in the storage that has the log, or take a savepoint there "
        "again",
        source=source,
    )


def _what(context: JobContext, saved: SavedCheckpoint, source: str, position: LogPosition) -> str:
    return (
        f"job {context.spec.name}: the savepoint at {saved.where} has read source {source} of job {saved.metadata.job} "
        f"up to record {position.next - 1} of its log {position.log}"
    )
