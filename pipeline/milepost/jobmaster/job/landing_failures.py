"""Store why the last landing of a source failed, and read it for reports. No landing depends on it."""

from __future__ import annotations

import logging

from milepost.codec import decode, encode
from milepost.errors import Action, CheckpointError, CommitConflict, NotFound, StateCorrupt
from milepost.protocol.landed import FailureRecord, LandingFailure, LogRecord, failure_record
from milepost.protocol.records import landing_failure_key
from milepost.runbook import page_of
from milepost.storage.log import SourceLog

_UNEXPECTED = "unexpected error: see the log of the landing"
_LOG = logging.getLogger(__name__)


def failure_of(source: str, error: Exception) -> LandingFailure:
    """Return the failure of a source. Of an unexpected error, the message is left out: it may hold anything."""
    name, page = type(error).__name__, page_of(error)
    if not isinstance(error, CheckpointError):
        return LandingFailure(source, name, _UNEXPECTED, "", page, may_pass=False)
    return LandingFailure(source, name, error.message, error.hint, page, error.action is Action.RETRY)


def store_failure(log: SourceLog, error: Exception) -> None:
    """Store why a landing failed. An error in doing so is only logged: the failure itself is what counts.

    A lost race is not a failure, because another landing has the rows.
    """
    if isinstance(error, CommitConflict):
        return
    try:
        newest = log.newest()
        record, now_ms = None if newest is None else newest.record, log.store.clock_ms()
        failure = failure_record(record, now_ms, failure_of(log.source, error))
        log.store.put(landing_failure_key(log.stored_as), encode(failure))
    except CheckpointError as problem:
        _LOG.warning("source %s: its failure could not be stored for `status`: %s", log.source, problem.message)


def delete_failure(log: SourceLog) -> None:
    """Delete the failure after a landing that appended no record. A new record supersedes it without that."""
    key = landing_failure_key(log.stored_as)
    try:
        log.store.stat(key)  # almost always missing, and a store with versions records each delete
        log.store.delete([key])
    except NotFound:
        pass
    except CheckpointError as problem:
        _LOG.warning("source %s: its last failure could not be deleted: %s", log.source, problem.message)


def last_failure(log: SourceLog, newest: LogRecord | None) -> FailureRecord | None:
    """Return why the last landing failed; None: it succeeded.

    Args:
        newest: record of the log; None: nothing was landed yet.
    """
    key = landing_failure_key(log.stored_as)
    try:
        failure = decode(FailureRecord, log.store.get(key), key)
    except NotFound:
        return None
    except StateCorrupt as damage:  # the next failure overwrites it
        _LOG.warning("source %s: its last failure cannot be read: %s", log.source, damage.message)
        return None
    return failure if failure.is_current(newest) else None
