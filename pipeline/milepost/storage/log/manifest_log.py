"""The manifest log: the one commit point of a job, and its fencing (I1).

Order of one transition: LIST finds the head v; GET reads it; `decide` computes the next state; PUT v+1, create only;
on every answer but a plain success GET v+1 and compare write ids; last, LIST and GET the head again. What a caller
may act on is that last head, never the success of its own put. An entry that this log has read, or has written, is
not read again while the LIST says that it is still the newest, and the same by its etag.

A head that was seen a moment ago is not looked for before the put: keys are never freed (I6), so only the entry after
the newest can be created, and the put itself finds out whether somebody was faster. What is decided without a put, a
refusal or that it is done already, is decided on a head that was read for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from milepost.protocol.codec.entries import (
    decode_entry,
    decode_event,
    encode_entry,
    encode_tombstone,
)
from milepost.protocol.codec.log_entries import LogEntry, LoggedEvent, Tombstone, tombstone_of
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Transition
from milepost.protocol.records.errors import (
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    NotFound,
    StateCorrupt,
    StoreUnavailable,
)
from milepost.protocol.records.layout import MANIFEST_PREFIX, manifest_key
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.object_store import ObjectStat, ObjectStore
from milepost.storage.concurrency.background import run_in_background
from milepost.storage.concurrency.parallel_map import MAX_PARALLEL_REQUESTS
from milepost.storage.latest_version import latest_version
from milepost.storage.layout import listed_version
from milepost.storage.log.read_ahead import list_log, read_ahead, read_event
from milepost.storage.log.records import Begun, Head, Landed, Transacted

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
E = TypeVar("E", LogEntry | Tombstone, LoggedEvent | Tombstone)

Decide = Callable[[ManifestState | None, int], Transition | AlreadyDone]
"""Computes a transition from the head's state (None: no manifest yet) and the store's clock in ms; pure; may raise."""

_RACES = 12
_RACE_WAIT_S = 0.3
_PUTS = 4
_READS = 5
_MAX_WAIT_S = 2.0
_FRESH_S = 5.0
"""For so long a head that was seen is decided on unread. Whoever puts back an older copy of the storage meanwhile would
be taken for nobody: the log would go on after a gap."""


class _LostRace(Exception):
    """Somebody else's entry has the version we wanted."""


class _NotConfirmed(Exception):
    """A put without an answer that settles it; the same entry may be put again."""


class ManifestLog:
    """One job's log, on the job's own store.

    Args:
        store: rooted at the job.
        write_id_factory: a new globally unique text per call; tells our entry from a rival's.
        tell: told each transition that has landed, at once; it must neither wait nor raise.
    """

    def __init__(
        self, store: ObjectStore, write_id_factory: Callable[[], str], tell: Callable[[Landed], None] | None = None
    ) -> None:
        self.store = store
        self._new_write_id = write_id_factory
        self._tell = tell
        self._newest: tuple[str, Head] | None = None
        self._seen_s = -_FRESH_S
        self._ahead: Future[Head | None] | None = None

    def look_ahead(self) -> None:
        """Begin to read the head beside what the caller still has to do: the next `head()` waits for that answer."""
        self._ahead = run_in_background(self._read_head, "look-ahead")

    def head(self) -> Head | None:
        """Return the newest entry, or None for a job without a manifest.

        Raises:
            StateCorrupt: the entry is torn, foreign, or a tombstone.
        """
        ahead, self._ahead = self._ahead, None
        return self._read_head() if ahead is None else ahead.result()

    def _read_head(self) -> Head | None:
        asked_s = time.monotonic()
        newest, known = latest_version(self.store, MANIFEST_PREFIX, manifest_key, listed_version), self._newest
        if newest is None:
            return None
        version = listed_version(newest.key)
        if known is not None and known[0] == newest.etag and known[1].version == version:
            self._seen_s = asked_s
            return known[1]
        entry = self.entry(version)
        if not isinstance(entry, LogEntry):
            raise StateCorrupt(
                f"manifest version {version} of {self.store.config.url} is the newest, but only a tombstone: "
                "its state is lost. Nothing was changed.",
                version=version,
            )
        return self._keep(newest.etag, entry, asked_s)

    def _keep(self, etag: str, entry: LogEntry, seen_s: float) -> Head:
        head = Head(entry.version, entry.write_id, entry.state)
        self._newest, self._seen_s = (etag, head), seen_s
        return head

    def lately(self) -> Head | None:
        """Return the head as it was seen a moment ago, else as it is: to look at, not to act on outside the log."""
        return self._seen() or self.head()

    @property
    def known(self) -> Head | None:
        """The newest entry that this log has seen, however long ago; None: none yet."""
        return None if self._newest is None else self._newest[1]

    def _seen(self) -> Head | None:
        """Return the head that was seen a moment ago; None: look for it."""
        fresh = time.monotonic() - self._seen_s < _FRESH_S
        return self._newest[1] if self._newest is not None and fresh else None

    def entry(self, version: int) -> LogEntry | Tombstone:
        """Return one entry.

        Raises:
            NotFound: no such version. StateCorrupt: torn, or it says another version than its key.
        """
        return self._read(decode_entry, version)

    def event(self, version: int) -> LoggedEvent | Tombstone:
        """Return what happened at one version, without the state that it led to. Raises: as `entry`."""
        return self._read(decode_event, version)

    def _read(self, decode: Callable[[bytes, str], E], version: int) -> E:
        key = manifest_key(version)
        entry = decode(self.store.get(key), key)
        if entry.version != version:
            raise StateCorrupt(
                f"manifest entry {key!r} of {self.store.config.url} says version {entry.version}, "
                f"expected {version}. Nothing was changed.",
                key=key,
            )
        return entry

    def entries(self, limit: int | None = None) -> Iterator[LogEntry | Tombstone]:
        """Yield the log, newest first; the last one without a limit is version 1.

        At most `MAX_PARALLEL_REQUESTS` entries are read ahead of the caller. Closing the iterator stops that.

        Raises:
            StateCorrupt: a version between is missing (keys are never freed, I6), or an entry is torn.
        """
        listed = self.store.list(MANIFEST_PREFIX, limit=limit)
        return self._walk(lambda stat: self.entry(listed_version(stat.key)), listed, limit)

    def events(self, limit: int | None = None, *, before: int | None = None) -> Iterator[LoggedEvent | Tombstone]:
        """Yield what happened, newest first, as `entries` does, without the states: those are not even checked.

        What this process has read is not read again while the listing says that it is the same.

        Args:
            before: a version: only older ones are read; None: all.
        """
        seen = self.known.version if self.known is not None else 0
        return self._walk(self._logged, list_log(self.store, limit, before, seen), limit)

    def _logged(self, stat: ObjectStat) -> LoggedEvent | Tombstone:
        return read_event(self.store, stat, self.event)

    def _walk(self, read: Callable[[ObjectStat], E], listed: Iterator[ObjectStat], limit: int | None) -> Iterator[E]:
        expected: int | None = None
        with closing(read_ahead(listed, read)) as entries:
            for stat, entry in entries:
                version = listed_version(stat.key)
                if expected is not None and version != expected:
                    raise self._gap(expected)
                try:
                    yield entry()
                except NotFound as error:
                    raise self._gap(version) from error
                expected = version - 1
        if limit is None and expected:
            raise self._gap(expected)

    def compact(self, versions: range) -> int:
        """Replace entries that nobody needs whole any more by tombstones, side by side (`upkeep/compaction.py`).

        A reader sees the entry or its tombstone. What is written is the same whoever writes it, so neither a rival nor
        a late write does harm, and no condition is needed.

        Returns: up to which version all of them are tombstones, also when one could not be replaced; that is logged.
        """
        pool = ThreadPoolExecutor(MAX_PARALLEL_REQUESTS)
        through = versions.start - 1
        try:
            for version, done in [(version, pool.submit(self._bury, version)) for version in versions]:
                done.result()
                through = version
        except CheckpointError as error:
            _LOG.warning("the log is compacted up to version %s only: %s", through, error.message)
        finally:
            pool.shutdown(cancel_futures=True)
        return through

    def _bury(self, version: int) -> None:
        entry = self.entry(version)
        if isinstance(entry, LogEntry):
            self.store.put(manifest_key(version), encode_tombstone(tombstone_of(entry)))

    def transact(self, decide: Decide) -> Transacted:
        """Make one transition; on a lost race read the new head and decide again.

        Raises:
            CommitConflict: every one of a bounded number of races was lost; nothing of ours landed.
            CommitOutcomeUnknown: our entry may have landed, or may yet. Delete nothing; read the head before
                anything else.
            CheckpointError: what `decide` raises, or the store on the way; nothing of ours landed.
        """
        landed, outcome, head = self._raced(decide)
        return Transacted(landed, outcome, head if landed is None else self._head_from(landed))

    def begin(self, decide: Decide) -> Begun:
        """Make one transition as `transact` does; the head after it is read when it is asked for.

        Until it was, nothing is done outside the log that is not below the granted token's own prefix.

        Raises: as `transact`, but for what reading that head raises.
        """
        landed, outcome, head = self._raced(decide)
        if landed is None or isinstance(outcome, AlreadyDone):
            return Begun(outcome, head.state if head else None, lambda: head)
        return Begun(outcome, outcome.state, partial(self._head_from, landed))

    def _raced(self, decide: Decide) -> tuple[int | None, Transition | AlreadyDone, Head | None]:
        """Attempt until no race is lost. Raises: as `transact`."""
        races = Retrying(
            retry=retry_if_exception_type(_LostRace),
            stop=stop_after_attempt(_RACES),
            wait=wait_random_exponential(multiplier=0.02, max=_RACE_WAIT_S),
            reraise=True,
        )
        try:
            return races(self._attempt, decide)
        except _LostRace as error:
            raise CommitConflict(
                f"the manifest of {self.store.config.url} moved on under each of {_RACES} tries: other sessions are "
                "writing to this job. Nothing of this transition landed.",
                hint="find out who else runs this job (`milepost history`), then try again",
            ) from error

    def _attempt(self, decide: Decide) -> tuple[int | None, Transition | AlreadyDone, Head | None]:
        """Decide and put. Returns the version that landed, what was decided, and on which head."""
        head, outcome = self._decided(decide)
        if isinstance(outcome, AlreadyDone):
            return None, outcome, head
        version = head.version + 1 if head else 1
        entry = LogEntry(version, self._new_write_id(), outcome.event, outcome.state)
        body, put_s = encode_entry(entry), time.monotonic()
        self._ahead = None  # what was begun to be read before this put is no head after it
        try:
            etag = self._land(entry, body)
        except BaseException:
            self._seen_s = -_FRESH_S  # whatever has the version now, the head that was seen is not the newest
            raise
        stored = decode_entry(body, manifest_key(version))  # as anybody else would read it
        if etag is not None and isinstance(stored, LogEntry):
            self._keep(etag, stored, put_s)
        else:
            self._seen_s = -_FRESH_S  # of a put whose reply was lost the head is read before it is looked at
        if self._tell is not None:
            self._tell(Landed(version, head.state if head else None, outcome))
        return version, outcome, head

    def _decided(self, decide: Decide) -> tuple[Head | None, Transition | AlreadyDone]:
        """Return a head and what is decided on it; without a put only on one that is read now."""
        seen = self._seen()
        if seen is not None:
            with suppress(CheckpointError):
                outcome = decide(seen.state, self.store.clock_ms())
                if isinstance(outcome, Transition):
                    return seen, outcome
        head = self.head()
        return head, decide(head.state if head else None, self.store.clock_ms())

    def _land(self, entry: LogEntry, body: bytes) -> str | None:
        """Put the entry until it is known that it, or another, has the version.

        Returns: its etag; None when no reply told it.

        A put whose reply is lost may still land later. Putting the same bytes again under the same version is safe,
        whichever of the two lands; leaving the version while the first is in flight would not be.

        Raises:
            _LostRace: another entry has the version. CommitOutcomeUnknown: it could not be found out.
            CheckpointError: the store refused the put for good; nothing landed.
        """
        in_flight = False

        def put() -> str | None:
            nonlocal in_flight
            try:
                return self.store.create(manifest_key(entry.version), body).etag
            except CheckpointError as error:
                refusal = error
            in_flight = in_flight or isinstance(refusal, (CommitOutcomeUnknown, StoreUnavailable))
            final = not isinstance(refusal, (CommitOutcomeUnknown, StoreUnavailable, CommitConflict))
            try:
                stored = self._stored_write_id(entry.version)
            except CheckpointError as error:
                raise (refusal if final and not in_flight else self._unknown(entry, error)) from error
            if stored == entry.write_id:
                return None
            if stored is not None:
                raise _LostRace from refusal
            if final:
                raise (self._unknown(entry, refusal) if in_flight else refusal) from refusal
            raise _NotConfirmed from refusal

        puts = Retrying(
            retry=retry_if_exception_type(_NotConfirmed),
            stop=stop_after_attempt(_PUTS),
            wait=wait_random_exponential(multiplier=0.05, max=_MAX_WAIT_S),
            reraise=True,
        )
        try:
            return puts(put)
        except _NotConfirmed as error:
            raise self._unknown(entry, error.__cause__) from error

    def _stored_write_id(self, version: int) -> str | None:
        """Return who has the version, None when it is absent."""
        try:
            entry = _retry_reads(lambda: self.entry(version))
            return entry.write_id
        except NotFound:
            return None

    def _head_from(self, version: int) -> Head:
        head = _retry_reads(self._read_head)  # never what was begun to be read before the put
        if head is None or head.version < version:
            raise StateCorrupt(
                f"manifest version {version} of {self.store.config.url} was written, but the listing after it ends "
                f"at {head.version if head else 'nothing'}: the store's listings are not consistent. "
                "Nothing further was changed.",
                hint="use a store with consistent listings; `milepost doctor JOB` probes it",
                version=version,
            )
        return head

    def _unknown(self, entry: LogEntry, cause: BaseException | None) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"nobody knows whether manifest version {entry.version} of {self.store.config.url} (write id "
            f"{entry.write_id}) landed: {cause}. Nothing was deleted.",
            hint="run again: it reads the head first, and goes on from what it finds",
            version=entry.version,
            write_id=entry.write_id,
        )

    def _gap(self, version: int) -> StateCorrupt:
        return StateCorrupt(
            f"manifest version {version} of {self.store.config.url} is missing although newer ones exist: somebody "
            "deleted it. Nothing was changed.",
            hint="restore the object from a backup of the store",
            version=version,
        )


def _retry_reads(read: Callable[[], T]) -> T:
    """Retry a read that follows a put, through a short outage. An unanswered read would mean an unknown outcome.

    Raises: what the last attempt raised.
    """
    reads = Retrying(
        retry=retry_if_exception_type(StoreUnavailable),
        stop=stop_after_attempt(_READS),
        wait=wait_random_exponential(multiplier=0.1, max=_MAX_WAIT_S),
        reraise=True,
    )
    return reads(read)
