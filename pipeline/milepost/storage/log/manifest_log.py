"""The manifest log: the single commit point of a job, and its fencing (I1).

Order of one transition:

1. LIST finds the head, version v, and GET reads it.
2. `decide` computes the next state.
3. PUT v+1, create only. Unless it plainly succeeds, GET v+1 and compare write ids.
4. LIST and GET the head again. The caller may act on this head only, never on the success of its own put.

Example: two sessions read head 7, and both PUT version 8. A's put creates it. B's put is refused, and B reads version
8, finds A's write id, and decides again on it. If A's reply is lost, A reads version 8, finds its own write id, and
knows that its entry landed.

An entry that this log has read or written is not read again while the LIST shows the same version and etag.
A head that was read less than `_FRESH_S` ago is not read again before the put. Keys are never freed (I6), so only the
entry after the newest can be created, and the put itself detects a faster session. A decision without a put, a refusal
or `AlreadyDone`, is always made on a head that was read for it.
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

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    NotFound,
    StateCorrupt,
)
from milepost.protocol.log import (
    LogEntry,
    LoggedEvent,
    Tombstone,
    decode_entry,
    decode_event,
    encode_entry,
    encode_tombstone,
    tombstone_of,
)
from milepost.protocol.manifest.transaction import AlreadyDone, Transition
from milepost.protocol.records import MANIFEST_PREFIX, ManifestState, ObjectStat, ObjectStore, manifest_key
from milepost.storage.concurrency.background import run_in_background
from milepost.storage.concurrency.thread_pools import MAX_PARALLEL_REQUESTS
from milepost.storage.layout import listed_version
from milepost.storage.log.certain_create import LostRace, create_certainly
from milepost.storage.log.read_ahead import list_log, read_ahead, read_event
from milepost.storage.log.records import DeferredResult, Head, LandedTransition, TransactionResult
from milepost.storage.log.retries import retry_reads
from milepost.storage.object_cache import OBJECT_CACHE
from milepost.storage.version_search import latest_version

_LOG = logging.getLogger(__name__)

E = TypeVar("E", LogEntry | Tombstone, LoggedEvent | Tombstone)

Decide = Callable[[ManifestState | None, int], Transition | AlreadyDone]
"""Computes a transition from the head's state (None: no manifest yet) and the store's clock in ms. Pure; may raise."""

_RACES = 12
_RACE_WAIT_S = 0.3
_FRESH_S = 5.0
"""For this long, a head that was read is used for decisions without reading it again. Longer would be unsafe: if an
older copy of the storage were restored in the meantime, the log would continue after a gap."""


class ManifestLog:
    """One job's log, on the job's own store.

    Args:
        store: rooted at the job.
        write_id_factory: returns a new globally unique text per call, which distinguishes our entry from a rival's.
        on_landed: called with each transition right after it has landed. It must neither block nor raise.
    """

    def __init__(
        self,
        store: ObjectStore,
        write_id_factory: Callable[[], str],
        on_landed: Callable[[LandedTransition], None] | None = None,
    ) -> None:
        self.store = store
        self._new_write_id = write_id_factory
        self._on_landed = on_landed
        self._newest: tuple[str, Head] | None = None
        self._read_s = -_FRESH_S
        self._prefetched: Future[Head | None] | None = None

    def prefetch_head(self) -> None:
        """Start to read the head in the background. The next `head()` waits for that answer."""
        self._prefetched = run_in_background(self._read_head, "look-ahead")

    def head(self) -> Head | None:
        """Return the newest entry, or None for a job without a manifest.

        Raises:
            StateCorrupt: the entry is torn, foreign, or a tombstone.
        """
        prefetched, self._prefetched = self._prefetched, None
        return self._read_head() if prefetched is None else prefetched.result()

    def _read_head(self) -> Head | None:
        started_s = time.monotonic()
        newest, cached = latest_version(self.store, MANIFEST_PREFIX, manifest_key, listed_version), self._newest
        if newest is None:
            return None
        version = listed_version(newest.key)
        if cached is not None and cached[0] == newest.etag and cached[1].version == version:
            self._read_s = started_s
            return cached[1]
        # A server that opens the job again and again reads and decodes each head once.
        entry = OBJECT_CACHE.read(
            self.store, ("manifest", newest.key, newest.etag), newest.size, lambda: self.entry(version)
        )
        if not isinstance(entry, LogEntry):
            raise StateCorrupt(
                f"manifest version {version} of {self.store.config.url} is the newest, but only a tombstone: "
                "its state is lost. Nothing was changed.",
                version=version,
            )
        return self._cache_head(newest.etag, entry, started_s)

    def _cache_head(self, etag: str, entry: LogEntry, read_s: float) -> Head:
        head = Head(entry.version, entry.write_id, entry.state)
        self._newest, self._read_s = (etag, head), read_s
        return head

    def recent_head(self) -> Head | None:
        """Return the head if it was read within `_FRESH_S`, else read it. Do not act on it outside the log."""
        return self._fresh_head() or self.head()

    @property
    def last_seen(self) -> Head | None:
        """The newest entry that this log has read or written, however long ago, or None."""
        return None if self._newest is None else self._newest[1]

    def _fresh_head(self) -> Head | None:
        """Return the head if it was read within `_FRESH_S`, else None."""
        fresh = time.monotonic() - self._read_s < _FRESH_S
        return self._newest[1] if self._newest is not None and fresh else None

    def entry(self, version: int) -> LogEntry | Tombstone:
        """Return one entry.

        Raises:
            NotFound: there is no such version.
            StateCorrupt: the entry is torn, or names another version than its key.
        """
        return self._read(decode_entry, version)

    def event(self, version: int) -> LoggedEvent | Tombstone:
        """Return the event of one version without the state after it. Raises: as `entry`."""
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
        """Yield the entries of the log, newest first. Without a limit the last one is version 1.

        At most `MAX_PARALLEL_REQUESTS` entries are read ahead of the caller. Closing the iterator stops that.

        Raises: StateCorrupt: a version in between is missing (keys are never freed, I6), or an entry is torn.
        """
        listed = self.store.list(MANIFEST_PREFIX, limit=limit)
        return self._walk(lambda stat: self.entry(listed_version(stat.key)), listed, limit)

    def events(self, limit: int | None = None, *, before: int | None = None) -> Iterator[LoggedEvent | Tombstone]:
        """Yield the events of the log, newest first, as `entries` does. The states are neither decoded nor checked.

        An event that this process has read is not read again while the listing shows the same etag.

        Args:
            before: only older versions are read. None: all.
        """
        newest = self.last_seen.version if self.last_seen is not None else 0
        return self._walk(self._read_event, list_log(self.store, limit, before, newest), limit)

    def _read_event(self, stat: ObjectStat) -> LoggedEvent | Tombstone:
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
        """Replace entries whose state is no longer needed by tombstones, in parallel (`upkeep/compaction.py`).

        A reader sees the entry or its tombstone. Every writer writes the same bytes, so neither a concurrent nor a late
        write does harm, and the put needs no condition.

        Returns: the version up to which all of them are tombstones. A failure to replace one is logged, not raised.
        """
        pool = ThreadPoolExecutor(MAX_PARALLEL_REQUESTS)
        through = versions.start - 1
        try:
            for version, done in [(version, pool.submit(self._write_tombstone, version)) for version in versions]:
                done.result()
                through = version
        except CheckpointError as error:
            _LOG.warning("the log is compacted up to version %s only: %s", through, error.message)
        finally:
            pool.shutdown(cancel_futures=True)
        return through

    def _write_tombstone(self, version: int) -> None:
        entry = self.entry(version)
        if isinstance(entry, LogEntry):
            self.store.put(manifest_key(version), encode_tombstone(tombstone_of(entry)))

    def transact(self, decide: Decide) -> TransactionResult:
        """Make one transition. After a lost race, read the new head and decide again.

        Raises:
            CommitConflict: all of a bounded number of races were lost. Our entry did not land.
            CommitOutcomeUnknown: our entry may have landed, or may still land. Delete nothing, and read the head
                before anything else.
            CheckpointError: from `decide` or the store. Our entry did not land.
        """
        landed, outcome, head = self._race(decide)
        return TransactionResult(landed, outcome, head if landed is None else self._head_from(landed))

    def begin(self, decide: Decide) -> DeferredResult:
        """Make one transition as `transact` does, but read the head after it only when the caller calls `head`.

        Until then, nothing may be done outside the log except below the prefix of the granted token.

        Raises: as `transact`, except for errors of reading that head.
        """
        landed, outcome, head = self._race(decide)
        if landed is None or isinstance(outcome, AlreadyDone):
            return DeferredResult(outcome, head.state if head else None, lambda: head)
        return DeferredResult(outcome, outcome.state, partial(self._head_from, landed))

    def _race(self, decide: Decide) -> tuple[int | None, Transition | AlreadyDone, Head | None]:
        """Repeat the attempt after a lost race. Raises: as `transact`."""
        races = Retrying(
            retry=retry_if_exception_type(LostRace),
            stop=stop_after_attempt(_RACES),
            wait=wait_random_exponential(multiplier=0.02, max=_RACE_WAIT_S),
            reraise=True,
        )
        try:
            return races(self._attempt, decide)
        except LostRace as error:
            raise CommitConflict(
                f"the manifest of {self.store.config.url} changed during each of {_RACES} attempts: other sessions are "
                "writing to this job. Nothing of this transition landed.",
                hint="find out who else runs this job (`milepost history`), then try again",
            ) from error

    def _attempt(self, decide: Decide) -> tuple[int | None, Transition | AlreadyDone, Head | None]:
        """Decide and put. Return the version that landed, the decision, and the head it was made on."""
        head, outcome = self._decide(decide)
        if isinstance(outcome, AlreadyDone):
            return None, outcome, head
        version = head.version + 1 if head else 1
        entry = LogEntry(version, self._new_write_id(), outcome.event, outcome.state)
        body, put_s = encode_entry(entry), time.monotonic()
        self._prefetched = None  # it may hold the head from before this put
        try:
            etag = self._land(entry, body)
        except BaseException:
            self._read_s = -_FRESH_S  # another entry may have the version now: read the head before the next decision
            raise
        stored = decode_entry(body, manifest_key(version))  # as every other reader decodes it
        if etag is not None and isinstance(stored, LogEntry):
            self._cache_head(etag, stored, put_s)
        else:
            self._read_s = -_FRESH_S  # the reply was lost, so the etag is unknown: read the head before using it
        if self._on_landed is not None:
            self._on_landed(LandedTransition(version, head.state if head else None, outcome))
        return version, outcome, head

    def _decide(self, decide: Decide) -> tuple[Head | None, Transition | AlreadyDone]:
        """Return a head and the decision on it. A decision without a put is made on a head that is read now."""
        fresh = self._fresh_head()
        if fresh is not None:
            with suppress(CheckpointError):
                outcome = decide(fresh.state, self.store.clock_ms())
                if isinstance(outcome, Transition):
                    return fresh, outcome
        head = self.head()
        return head, decide(head.state if head else None, self.store.clock_ms())

    def _land(self, entry: LogEntry, body: bytes) -> str | None:
        """Put the entry until it is certain that the version holds it, or another entry. As `create_certainly`."""
        return create_certainly(
            self.store,
            manifest_key(entry.version),
            body,
            entry.write_id,
            lambda: self.entry(entry.version).write_id,
            lambda cause: self._unknown(entry, cause),
        )

    def _head_from(self, version: int) -> Head:
        head = retry_reads(self._read_head)  # not `head`, which may return a head prefetched before the put
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
            f"it is unknown whether manifest version {entry.version} of {self.store.config.url} (write id "
            f"{entry.write_id}) landed: {cause}. Nothing was deleted.",
            hint="run again: it reads the head first, and continues from there",
            version=entry.version,
            write_id=entry.write_id,
        )

    def _gap(self, version: int) -> StateCorrupt:
        return StateCorrupt(
            f"manifest version {version} of {self.store.config.url} is missing although newer versions exist: "
            "it was deleted. Nothing was changed.",
            hint="restore the object from a backup of the store",
            version=version,
        )
