"""The manifest log resolves every ending of a put (I1) and refuses a log that lost an entry (I6)."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from milepost.errors import (
    Busy,
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    NotFound,
    ProtocolViolation,
    StateCorrupt,
    StoreUnavailable,
)
from milepost.protocol.log.entry_codec import encode_entry, encode_tombstone
from milepost.protocol.log.log_entries import LogEntry, Tombstone, tombstone_of
from milepost.protocol.manifest.timelines.timelines import freeze
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Transition
from milepost.protocol.manifest.transaction.events import JobResumed
from milepost.protocol.manifest.transaction.requests import FreezeRequest
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.layout import manifest_key
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import Names, ObjectStat, ObjectStore, StoreConfig
from milepost.storage.concurrency.thread_pools import MAX_PARALLEL_REQUESTS
from milepost.storage.log.manifest_log import ManifestLog
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.processes.processes import run_python, wait_until
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore, at
from milepost_testkit.stores.hooked_store import HookedStore
from milepost_testkit.stores.manifest_logs import create_job, new_log, trigger_checkpoint
from milepost_testkit.stores.memory_store import MemoryStore

MANIFEST_PUT = at("create", "manifest/")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreConfig(file_url(tmp_path / "job")))


def versions(store: ObjectStore) -> list[int]:
    return [entry.version for entry in new_log(store).entries()]


def test_a_job_without_a_manifest_has_no_head(store) -> None:
    log = new_log(store)
    assert log.head() is None
    assert list(log.entries()) == []
    with pytest.raises(NotFound):
        log.entry(1)


def test_each_transition_is_one_object_and_the_newest_is_found_by_one_list_and_one_get(store) -> None:
    log = new_log(store)
    created = log.transact(create_job("flights"))
    triggered = log.transact(trigger_checkpoint("cli:1"))
    assert (created.landed_version, triggered.landed_version) == (1, 2)
    assert triggered.head.state == triggered.outcome.state
    assert triggered.head.state.version == 2
    assert [stat.key for stat in store.list("")] == [manifest_key(2), manifest_key(1)]
    calls: list[str] = []
    counting = FaultyStore(store, [Fault(lambda operation, key: bool(calls.append(operation)), Effect.UNAVAILABLE)])
    assert new_log(counting).head() == triggered.head
    assert calls == ["list", "get"]


def test_a_request_that_is_already_done_writes_nothing(store) -> None:
    log = new_log(store)
    log.transact(create_job("flights"))
    again = log.transact(create_job("flights"))
    assert again.landed_version is None
    assert isinstance(again.outcome, AlreadyDone)
    assert again.head.version == 1
    assert versions(store) == [1]


def counted(store: ObjectStore) -> tuple[ManifestLog, list[str]]:
    """A log whose every call to its store is noted."""
    calls: list[str] = []
    return new_log(HookedStore(store, before=lambda operation, key: calls.append(operation))), calls


def test_a_head_that_was_seen_a_moment_ago_is_not_looked_for_before_the_put(store) -> None:
    """Only the entry after the newest can be created (I6): the put itself detects a faster writer."""
    log, calls = counted(store)
    log.transact(create_job("flights"))
    calls.clear()
    done = log.transact(trigger_checkpoint("cli:1"))
    asked = [call for call in calls if call != "stat"]  # by which a directory's newest version is found
    assert done.landed_version == 2 and asked[0] == "create" and "get" not in asked


def test_a_fact_is_recorded_by_its_put_alone(store) -> None:
    log, calls = counted(store)
    log.transact(create_job("flights"))
    calls.clear()
    assert isinstance(log.begin(trigger_checkpoint("cli:1")).outcome, Transition)
    assert calls == ["create"]
    assert new_log(store).head().version == 2


def test_a_head_prefetched_before_a_put_is_not_used_after_it(store) -> None:
    """I1: the first step of a command may decide on a head that was seen, and the next one asks for what it led to."""
    new_log(store).transact(create_job("flights"))
    log = new_log(store)
    log.prefetch_head()
    wait_until(lambda: log.last_seen is not None, seconds=60, what="the look ahead")
    assert log.transact(trigger_checkpoint("cli:1")).landed_version == 2
    assert log.head().version == 2


def test_a_decision_without_a_put_reads_a_fresh_head(store) -> None:
    """I1: of a head that was seen a moment ago only a put says that it still is the newest."""
    log = new_log(store)
    log.transact(create_job("flights"))
    new_log(store).transact(trigger_checkpoint("cli:fast"))
    again = log.transact(create_job("flights"))
    assert isinstance(again.outcome, AlreadyDone) and again.head.version == 2
    idle = new_log(store)
    idle.head()
    assert idle.transact(trigger_checkpoint("cli:fast")).head.version == 2, "done already, as of what is there now"


def test_a_race_that_is_lost_on_a_head_seen_before_is_decided_again_on_the_new_one(store) -> None:
    log = new_log(store)
    log.transact(create_job("flights"))
    fast = new_log(store).transact(trigger_checkpoint("cli:fast"))
    with pytest.raises(Busy):
        log.transact(trigger_checkpoint("cli:slow"))
    assert versions(store) == [2, 1] and log.recent_head() == fast.head


def test_a_head_that_was_seen_long_ago_is_looked_for_again(store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who put an older copy of the storage back meanwhile is seen: the log goes on after that, without a gap."""
    request = FreezeRequest(SessionId("cli:1"), 60_000)
    log, calls = counted(store)
    log.transact(create_job("flights"))
    log.transact(lambda state, now_ms: freeze(state, request, now_ms))
    store.delete([manifest_key(2)])
    monkeypatch.setattr("milepost.storage.log.manifest_log._FRESH_S", 0.0)
    calls.clear()
    assert log.transact(trigger_checkpoint("cli:1")).landed_version == 2
    assert calls[0] != "create" and versions(store) == [2, 1]


def test_a_refused_transition_writes_nothing(store) -> None:
    with pytest.raises(ProtocolViolation):
        new_log(store).transact(trigger_checkpoint("cli:1"))
    assert versions(store) == []


@pytest.mark.parametrize("times", [1, 2])
def test_a_put_whose_reply_is_lost_is_recognised_as_landed(store, times) -> None:
    """I1: the second put answers 'exists' for our own success; the write id tells."""
    lost = Fault(MANIFEST_PUT, Effect.LOST_REPLY, times=times)
    done = new_log(FaultyStore(store, [lost])).transact(create_job("flights"))
    assert done.landed_version == 1
    assert versions(store) == [1]


def test_a_conflict_with_our_own_lost_put_is_a_success(store) -> None:
    """A client, or a proxy, that repeats the request answers 412 for what it had written."""
    own = Fault(MANIFEST_PUT, Effect.LOST_REPLY, error=CommitConflict("412"))
    done = new_log(FaultyStore(store, [own])).transact(create_job("flights"))
    assert done.landed_version == 1
    assert versions(store) == [1]


@pytest.mark.parametrize("effect", [Effect.LOST_REQUEST, Effect.UNAVAILABLE])
def test_a_request_that_never_arrived_is_sent_again_under_the_same_write_id(store, effect) -> None:
    ids = iter(["only-one"])
    log = ManifestLog(FaultyStore(store, [Fault(MANIFEST_PUT, effect)]), lambda: next(ids))
    assert log.transact(create_job("flights")).head.write_id == "only-one"
    assert versions(store) == [1]


def test_a_put_that_lands_late_lands_once(store) -> None:
    """The delayed copy and the repeated one have the same bytes and version: whichever wins, it is ours."""
    late = Fault(MANIFEST_PUT, Effect.LATE)
    faulty = FaultyStore(store, [late])
    done = new_log(faulty).transact(create_job("flights"))
    assert done.landed_version == 1
    late.release.set()
    for thread in faulty.late:
        thread.join(240)
    assert versions(store) == [1]
    assert new_log(store).head().write_id == done.head.write_id


def test_an_outcome_that_cannot_be_determined_is_unknown_and_deletes_nothing(store) -> None:
    silent = [Fault(MANIFEST_PUT, Effect.LOST_REPLY), Fault(at("get", "manifest/"), Effect.UNAVAILABLE, times=99)]
    faulty = FaultyStore(store, silent)
    with wording.raises(CommitOutcomeUnknown):
        new_log(faulty).transact(create_job("flights"))
    assert faulty.writes == [("create", manifest_key(1))]
    assert versions(store) == [1]
    assert isinstance(new_log(store).transact(create_job("flights")).outcome, AlreadyDone)


def test_puts_that_are_never_confirmed_end_as_unknown(store) -> None:
    never = Fault(MANIFEST_PUT, Effect.LOST_REQUEST, times=99)
    with pytest.raises(CommitOutcomeUnknown):
        new_log(FaultyStore(store, [never])).transact(create_job("flights"))
    assert versions(store) == []


def test_a_put_that_is_refused_for_good_is_that_error_and_nothing_landed(store) -> None:
    full = Fault(MANIFEST_PUT, Effect.UNAVAILABLE, error=EnvironmentUnusable("disk full"))
    with wording.raises(EnvironmentUnusable):
        new_log(FaultyStore(store, [full])).transact(create_job("flights"))
    assert versions(store) == []


def test_a_refusal_after_a_lost_request_is_unknown_for_that_one_may_still_land(store) -> None:
    late = Fault(MANIFEST_PUT, Effect.LATE)
    full = Fault(MANIFEST_PUT, Effect.UNAVAILABLE, error=EnvironmentUnusable("denied"))
    faulty = FaultyStore(store, [late, full])
    with wording.raises(CommitOutcomeUnknown):
        new_log(faulty).transact(create_job("flights"))
    late.release.set()
    faulty.late[0].join(240)
    assert versions(store) == [1]


def test_an_outage_before_the_put_is_an_outage(store) -> None:
    with pytest.raises(StoreUnavailable):
        new_log(FaultyStore(store, [Fault(at("list"), Effect.UNAVAILABLE)])).transact(create_job("flights"))


def test_a_short_outage_after_the_put_is_waited_out(store) -> None:
    outage = Fault(at("list", "manifest/"), Effect.UNAVAILABLE, skip=1, times=2)
    assert new_log(FaultyStore(store, [outage])).transact(create_job("flights")).landed_version == 1


def test_a_lost_race_is_decided_again_on_the_new_head(store) -> None:
    """I1: the loser re-reads; here it learns that the timeline is taken."""
    new_log(store).transact(create_job("flights"))
    held = Fault(MANIFEST_PUT, Effect.HOLD)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(new_log(FaultyStore(store, [held])).transact, trigger_checkpoint("cli:slow"))
        assert held.reached.wait(240)
        fast = new_log(store).transact(trigger_checkpoint("cli:fast"))
        held.release.set()
        with pytest.raises(Busy):
            slow.result(60)
    head = new_log(store).head()
    assert (head.version, head.write_id) == (2, fast.head.write_id)


def test_the_head_after_a_transition_may_already_be_anothers(store) -> None:
    """I1: a 200 is not authority."""
    held = Fault(at("list", "manifest/"), Effect.HOLD, skip=1)
    with ThreadPoolExecutor(1) as pool:
        ours = pool.submit(new_log(FaultyStore(store, [held])).transact, create_job("flights"))
        assert held.reached.wait(240)
        new_log(store).transact(trigger_checkpoint("cli:fast"))
        held.release.set()
        done = ours.result(60)
    assert (done.landed_version, done.outcome.state.version, done.head.version) == (1, 1, 2)


def test_an_entry_that_lands_just_before_ours_is_never_overwritten(store) -> None:
    """I1: the put creates; the faster writer keeps the version, and the loser decides again."""
    new_log(store).transact(create_job("flights"))
    fast = []

    def rival(operation: str, key: str) -> None:
        if not fast and operation in ("put", "create"):
            fast.append(new_log(store).transact(trigger_checkpoint("cli:fast")))

    with pytest.raises(Busy):
        new_log(HookedStore(store, before=rival)).transact(trigger_checkpoint("cli:slow"))
    head = new_log(store).head()
    assert (head.version, head.write_id) == (2, fast[0].head.write_id)


def test_a_foreign_transition_right_after_our_put_is_seen_before_we_continue(store) -> None:
    """I1: a 200 is not authority: the head that is acted on is read after it."""
    fast = []

    def rival(operation: str, key: str) -> None:
        if not fast and operation in ("put", "create"):
            fast.append(new_log(store).transact(trigger_checkpoint("cli:fast")))

    done = new_log(HookedStore(store, after=rival)).transact(create_job("flights"))
    assert (done.landed_version, done.outcome.state.version) == (1, 1)
    assert (done.head.version, done.head.write_id) == (2, fast[0].head.write_id)


def test_a_race_that_is_always_lost_ends_as_a_conflict(store) -> None:
    """Bounded: rivals that write a version between our read and our put, each time."""
    log, rival = new_log(store), new_log(store)
    rival.transact(create_job("flights"))
    sessions = itertools.count()

    def always_late(state, now_ms):
        answer = trigger_checkpoint("cli:us")(state, now_ms)
        store.create(manifest_key(state.version + 1), _entry_without_pending(state, next(sessions)))
        return answer

    with wording.raises(CommitConflict):
        log.transact(always_late)


def _entry_without_pending(state, number: int) -> bytes:
    event = JobResumed(at_ms=1, cleared_reason=None, cleared_detail=None, session_id=SessionId(f"cli:{number}"))
    return encode_entry(
        LogEntry(state.version + 1, f"rival-{number}", event, replace(state, version=state.version + 1))
    )


def test_of_sessions_that_trigger_concurrently_exactly_one_holds_the_timeline(store) -> None:
    """I3, I4: storage fences."""
    new_log(store).transact(create_job("flights"))
    gate = threading.Barrier(6)

    def contend(number: int) -> str:
        gate.wait(240)
        try:
            done = new_log(store).transact(trigger_checkpoint(f"cli:{number}"))
        except Busy:
            return "busy"
        return "won" if done.landed_version else "done"

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(contend, range(6)))
    assert sorted(answers) == ["busy"] * 5 + ["won"]
    assert versions(store) == [2, 1]


@pytest.mark.parametrize(("effect", "left"), [("KILL_BEFORE", []), ("KILL_AFTER", [1])])
def test_a_session_killed_at_the_put_left_the_transition_whole_or_not_at_all(store, effect, left) -> None:
    code = f"""
import sys
from milepost.protocol.manifest.transaction.events import JobResumed
from milepost.protocol.manifest.transaction.requests import FreezeRequest
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.log.manifest_log import ManifestLog
from milepost.storage.open import open_store
from milepost_testkit.stores.faulty_store import *
from milepost_testkit.stores.manifest_logs import *
store = FaultyStore(open_store(StoreConfig(sys.argv[1])), [Fault(at("create", "manifest/"), Effect.{effect})])
new_log(store).transact(create_job("flights"))
"""
    assert run_python(code, store.config.url).returncode == -9
    assert versions(store) == left
    new_log(store).transact(create_job("flights"))
    assert versions(store) == [1]


# -- a log that is not what was written --------------------------------------------------------------------------


def three_versions(store: ObjectStore) -> None:
    new_log(store).transact(create_job("flights"))
    new_log(store).transact(trigger_checkpoint("cli:1"))
    head = new_log(store).head()
    store.create(manifest_key(3), _entry_without_pending(head.state, 0))


def test_entries_come_newest_first_and_no_more_than_requested(store) -> None:
    three_versions(store)
    assert versions(store) == [3, 2, 1]
    assert [entry.version for entry in new_log(store).entries(2)] == [3, 2]
    assert [type(entry.event).__name__ for entry in new_log(store).entries()] == [
        "JobResumed",
        "CheckpointTriggered",
        "JobCreated",
    ]


@pytest.mark.parametrize("missing", [1, 2])
def test_a_version_that_is_missing_is_corruption_not_history(store, missing) -> None:
    """I6: a key is never freed."""
    three_versions(store)
    store.delete([manifest_key(missing)])
    with wording.raises(StateCorrupt) as refused:
        versions(store)
    assert str(missing) in str(refused.value)


@pytest.mark.parametrize(
    "body", [b"", b'{"format":1,"vers', b"[]", b"\xff\xfe"], ids=["empty", "torn", "other", "binary"]
)
def test_a_torn_head_is_corruption(store, body) -> None:
    three_versions(store)
    store.put(manifest_key(3), body)
    with pytest.raises(StateCorrupt):
        new_log(store).head()
    with pytest.raises(StateCorrupt):
        new_log(store).transact(trigger_checkpoint("cli:2"))
    assert [stat.key for stat in store.list("manifest/")] == [manifest_key(3), manifest_key(2), manifest_key(1)]


def test_an_entry_under_another_versions_key_is_corruption(store) -> None:
    three_versions(store)
    store.put(manifest_key(3), store.get(manifest_key(2)))
    with wording.raises(StateCorrupt):
        new_log(store).head()


def test_entries_are_read_in_parallel_and_no_further_than_needed(store) -> None:
    """A history of a thousand epochs must not wait for a thousand replies one after the other; `show` needs one."""
    log = ManifestLog(store, lambda: "w")
    log.transact(create_job("flights"))
    entry = log.entry(1)
    for version in range(2, 41):
        state = replace(entry.state, version=version)
        store.put(manifest_key(version), encode_entry(LogEntry(version, "w", entry.event, state)))
    reading, together = set(), threading.Event()
    read = []

    def before(operation: str, key: str) -> None:
        if operation == "get":
            reading.add(key)
            read.append(key)
            if len(reading) >= 4:
                together.set()
            if len(read) > 1:
                assert together.wait(240), "reads wait for each other"

    def after(operation: str, key: str) -> None:
        if operation == "get" and together.is_set():
            reading.discard(key)

    hooked = new_log(HookedStore(store, before, after))
    first = next(entries := hooked.entries())
    assert (first.version, len(read)) == (40, 1)
    assert [next(entries).version for _ in range(4)] == [39, 38, 37, 36]
    entries.close()
    assert len(read) <= 5 + MAX_PARALLEL_REQUESTS
    read.clear()
    assert [found.version for found in hooked.entries()] == list(range(40, 0, -1))
    assert len(read) == 40


class CountingStore(MemoryStore):
    """Counts what is read, and what listings yield; `asked`: by operation."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = Counter[str]()

    def get(self, key: str) -> bytes:
        self.asked["get"] += 1
        return super().get(key)

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        self.asked["get_range"] += 1
        return super().get_range(key, etag, start, stop)

    def list(
        self, prefix: str, *, start_after: str = "", limit: int | None = None, invalid_names: Names | None = None
    ) -> Iterator[ObjectStat]:
        for stat in super().list(prefix, start_after=start_after, limit=limit, invalid_names=invalid_names):
            self.asked["listed"] += 1
            yield stat


@pytest.mark.long
def test_a_walk_lists_no_more_of_the_log_than_it_goes_and_reads_no_state_and_no_event_twice() -> None:
    """Of a large entry the beginning is read. Not every S3 can be listed from a key on."""
    store, newest = CountingStore("s3://walked"), 1200
    log = ManifestLog(store, lambda: "w")
    log.transact(create_job("flights"))
    entry = log.entry(1)
    assert isinstance(entry, LogEntry)
    for version in range(2, newest + 1):
        state = replace(entry.state, version=version, job="flights" + "s" * 40_000 * (version % 2))
        store.put(manifest_key(version), encode_entry(LogEntry(version, "w", entry.event, state)))
    assert log.head() is not None
    for before, goes, most in ((newest + 1, 20, 260), (1000, 20, 460), (800, 300, 2_000)):
        store.asked.clear()
        found = list(islice(log.events(before=before), goes))
        assert [one.version for one in found] == [*range(before - 1, before - 1 - goes, -1)]
        assert store.asked["listed"] <= most
        reads = store.asked["get"], store.asked["get_range"]
        assert max(reads) - min(reads) <= 1 and sum(reads) <= goes + MAX_PARALLEL_REQUESTS
    asked = store.asked
    asked.clear()
    assert list(islice(log.events(before=800), 300)) == found and asked["get"] + asked["get_range"] == 0
    assert [one.version for one in log.events()] == list(range(newest, 0, -1))
    store.put(manifest_key(newest - 1), encode_tombstone(tombstone_of(replace(entry, version=newest - 1))))
    assert isinstance(list(islice(log.events(), 2))[1], Tombstone), "another version of it is another object"


@pytest.mark.parametrize("name", ["00000000000000000000.json.tmp", "README", f"{10**19:020d}.json", "0/x"])
def test_a_foreign_object_among_the_entries_is_named(store, name) -> None:
    three_versions(store)
    store.put(f"manifest/{name}", b"")
    with wording.raises(StateCorrupt):
        versions(store)


def test_a_tombstone_keeps_its_place_in_the_history_but_cannot_be_the_head(store) -> None:
    three_versions(store)
    log = new_log(store)
    for version in (2, 3):
        entry = log.entry(version)
        store.put(manifest_key(version), encode_tombstone(tombstone_of(entry)))
        if version == 2:
            assert log.head().version == 3
    assert versions(store) == [3, 2, 1]
    with wording.raises(StateCorrupt):
        log.head()
