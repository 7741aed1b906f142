"""The contract of every object store. A subclass provides the location and raw access that bypasses the store."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest

from milepost.errors import CommitConflict, CommitOutcomeUnknown, InvalidRequest, NotFound
from milepost.protocol.records.locations import child_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost.storage.s3.probe import probe_store, require_preconditions
from milepost_testkit import wording
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore, at
from milepost_testkit.stores.manifest_logs import create_job, new_log

# In byte order of whole keys, which is not the order of directories: "-" < "." < "/" < "0" < "A" < "_" < "a" < "ä".
ORDERED_KEYS = [
    "A/upper",
    "_under",
    "a b/with space",
    "a+b",
    "a-/x",
    "a-b",
    "a.b",
    "a/-",
    "a/b-c/d",
    "a/b.csv",
    "a/b/c",
    "a/b/d",
    "a/b0",
    "a/é",
    "a0/x",
    "aa",
    "b%20c",
    "b=1/c=2/file.csv",
    "z",
    "ä/umlaut",
    "日本",
]

BAD_KEYS = ["", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/../b", "../a", "a\nb", "a\x00b", "\udc80", "k" * 1025]

RACER = """
import sys
from milepost.errors import CommitConflict
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
url, endpoint, me = sys.argv[1:]
store = open_store(StoreConfig(url, endpoint or None))
list(store.list("race/", limit=1))
print("ready", flush=True)
for line in sys.stdin:
    try:
        store.create("race/" + line.strip(), me.encode())
        print("won", flush=True)
    except CommitConflict:
        print("lost", flush=True)
"""


class ObjectStoreTests(ABC):
    """Subclasses give `config` (a new, empty root per test) and raw access to it."""

    racers = 8
    """How many threads race for one key."""

    @pytest.fixture
    @abstractmethod
    def config(self) -> StoreConfig:
        """The root of this test."""

    @abstractmethod
    def raw_put(self, config: StoreConfig, key: str, body: bytes) -> None:
        """Write past the store."""

    @abstractmethod
    def raw_get(self, config: StoreConfig, key: str) -> bytes | None:
        """Read past the store; None when absent."""

    def open(self, config: StoreConfig) -> ObjectStore:
        """Open a root, as the product does."""
        return open_store(config)

    @pytest.fixture
    def store(self, config: StoreConfig) -> ObjectStore:
        return self.open(config)

    def _below(self, config: StoreConfig, name: str) -> ObjectStore:
        """The same store, rooted at `name` below it."""
        return self.open(replace(config, url=child_url(config.url, name)))

    # -- objects ------------------------------------------------------------------------------------------------

    def test_objects_of_external_writers_are_read_and_puts_are_visible_to_them(self, store, config) -> None:
        self.raw_put(config, "in/a.csv", b"landed")
        assert store.get("in/a.csv") == b"landed"
        store.put("out/b.csv", b"written")
        assert self.raw_get(config, "out/b.csv") == b"written"
        store.put("out/b.csv", b"")
        assert self.raw_get(config, "out/b.csv") == b""

    def test_every_read_of_an_absent_object_raises_not_found(self, store) -> None:
        store.put("there", b"1")
        for ask in (store.get, store.stat, lambda key: store.get_if_match(key, "0" * 32)):
            with wording.raises(NotFound):
                ask("absent/key")

    def test_a_prefix_of_a_key_is_no_object(self, store) -> None:
        store.put("a/b/c", b"1")
        for key in ("a", "a/b"):
            with pytest.raises(NotFound):
                store.get(key)
            with pytest.raises(NotFound):
                store.stat(key)
        store.delete(["a", "a/b"])
        assert store.get("a/b/c") == b"1"

    def test_put_stat_and_list_agree_on_size_and_version(self, store) -> None:
        told = store.put("a/b", b"12345")
        stat = store.stat("a/b")
        (listed,) = store.list("")
        assert (told.key, told.size, told.etag) == (stat.key, stat.size, stat.etag) == ("a/b", 5, listed.etag)
        assert listed.key == "a/b"
        assert listed.size == 5
        assert abs(stat.last_modified_ms - store.clock_ms()) < 5_000
        created = store.create("c", b"1")
        assert created.etag == store.stat("c").etag

    def test_a_read_of_another_version_is_refused(self, store) -> None:
        """The plan names versions; an object that changed since is not read as if it had not."""
        first = store.put("in", b"version 1")
        assert store.get_if_match("in", first.etag) == b"version 1"
        second = store.put("in", b"version 2")
        assert second.etag != first.etag
        with pytest.raises(CommitConflict):
            store.get_if_match("in", first.etag)
        assert store.get_if_match("in", second.etag) == b"version 2"

    def test_a_part_of_a_version_is_read_and_one_of_another_version_is_refused(self, store) -> None:
        first = store.put("in", b"0123456789")
        assert store.get_range("in", first.etag, 0, 4) == b"0123"
        assert store.get_range("in", first.etag, 7, 10) == b"789"
        store.put("in", b"9876543210")
        with pytest.raises(CommitConflict):
            store.get_range("in", first.etag, 0, 4)
        with pytest.raises(NotFound):
            store.get_range("absent", first.etag, 0, 4)

    def test_versions_written_in_quick_succession_differ(self, store) -> None:
        assert len({store.put("k", b"%05d" % number).etag for number in range(20)}) == 20

    def test_a_body_of_many_megabytes_comes_back_whole(self, store) -> None:
        body = bytes(range(256)) * (9 << 12)
        store.put("big", body)
        assert store.get("big") == body

    def test_a_file_is_created_whole_from_its_beginning_and_never_over_an_object(self, store, tmp_path) -> None:
        body = bytes(range(256)) * (12 << 10)  # more than a store writes at once
        with (tmp_path / "body").open("w+b") as file:
            file.write(body)
            file.seek(7)
            stat = store.create("file", file)
            with pytest.raises(CommitConflict):
                store.create("file", io.BytesIO(b"other"))
        assert store.get("file") == body
        assert (stat.size, stat.etag) == (len(body), store.stat("file").etag)

    def test_a_key_that_not_every_store_can_hold_is_refused(self, store) -> None:
        for key in BAD_KEYS:
            for ask in (store.get, store.stat, lambda k: store.put(k, b""), lambda k: store.create(k, b"")):
                with wording.raises(InvalidRequest):
                    ask(key)
            with wording.raises(InvalidRequest):
                store.delete([key])

    def test_the_clock_returns_the_current_time(self, store) -> None:
        store.put("k", b"")
        earlier, later = store.clock_ms(), store.clock_ms()
        assert earlier <= later
        assert abs(later - store.stat("k").last_modified_ms) < 5_000

    # -- create only if absent (I1) -----------------------------------------------------------------------------

    @pytest.mark.parametrize("how", ["create", "put", "raw"])
    def test_create_over_an_existing_object_is_refused_and_changes_nothing(self, store, config, how) -> None:
        {"create": store.create, "put": store.put, "raw": lambda k, b: self.raw_put(config, k, b)}[how]("m/1", b"first")
        with pytest.raises(CommitConflict):
            store.create("m/1", b"second")
        assert self.raw_get(config, "m/1") == b"first"

    def test_a_deleted_key_can_be_created_again(self, store) -> None:
        store.create("k", b"1")
        store.delete(["k"])
        store.create("k", b"2")
        assert store.get("k") == b"2"

    def test_of_threads_that_create_one_key_exactly_one_wins(self, store, config) -> None:
        gate = threading.Barrier(self.racers)

        def attempt(racer: int, key: str) -> bool:
            gate.wait(240)
            try:
                store.create(key, b"%d" % racer)
            except CommitConflict:
                return False
            return True

        with ThreadPoolExecutor(self.racers) as pool:
            for number in range(20):
                key = f"race/{number}"
                won = list(pool.map(lambda racer, key=key: attempt(racer, key), range(self.racers)))
                assert won.count(True) == 1
                assert self.raw_get(config, key) == b"%d" % won.index(True)

    def test_a_reply_that_is_lost_leaves_a_whole_object_and_a_transition_that_landed_once(self, store) -> None:
        """I1: the write id distinguishes a landed create from a lost one."""
        faulty = FaultyStore(store, [Fault(at("create", "k"), Effect.LOST_REPLY)])
        with pytest.raises(CommitOutcomeUnknown):
            faulty.create("k", b"whole")
        assert store.get("k") == b"whole"
        log = new_log(FaultyStore(store, [Fault(at("create", "manifest/"), Effect.LOST_REPLY)]))
        done = log.transact(create_job("flights"))
        assert done.landed_version == 1
        assert [entry.version for entry in log.entries()] == [1]

    def test_the_start_up_probe_trusts_it_and_leaves_nothing_behind(self, store) -> None:
        require_preconditions(store)
        assert all(check.ok for check in probe_store(store))
        assert list(store.list("")) == []

    # -- listing ------------------------------------------------------------------------------------------------

    def test_a_listing_is_in_byte_order_of_keys(self, store, config) -> None:
        assert sorted(ORDERED_KEYS, key=str.encode) == ORDERED_KEYS
        for key in reversed(ORDERED_KEYS):
            self.raw_put(config, key, key.encode())
        assert [stat.key for stat in store.list("")] == ORDERED_KEYS
        for prefix in ("a", "a/", "a/b", "a/b/", "a/b/c", "b=", "a-", "ä", "none", "a/b/c/d"):
            expected = [key for key in ORDERED_KEYS if key.startswith(prefix)]
            assert [stat.key for stat in store.list(prefix)] == expected, prefix
        for after in (*ORDERED_KEYS, "a", "a/", "a/b/", "a/a", "zz", "\U0010ffff"):
            expected = [key for key in ORDERED_KEYS if key.encode() > after.encode()]
            assert [stat.key for stat in store.list("", start_after=after)] == expected, after
            below_a = [key for key in expected if key.startswith("a/")]
            assert [stat.key for stat in store.list("a/", start_after=after)] == below_a, after
            assert [stat.key for stat in store.list("a/", start_after=after, limit=2)] == below_a[:2], after
        for limit in (0, 1, 5, len(ORDERED_KEYS), 1000):
            assert [stat.key for stat in store.list("", limit=limit)] == ORDERED_KEYS[:limit]
        assert all(store.get(stat.key) == stat.key.encode() for stat in store.list(""))

    def test_an_empty_root_lists_nothing(self, store) -> None:
        assert list(store.list("")) == []
        assert list(store.list("a/b/")) == []
        store.delete(["a/b"])

    def test_a_write_and_a_delete_show_in_the_next_listing(self, store) -> None:
        for number in range(10):
            store.create(f"k/{number}", b"")
            assert [stat.key for stat in store.list("k/")] == [f"k/{number}"]
            store.delete([f"k/{number}"])
            assert list(store.list("k/")) == []

    def test_more_objects_than_one_request_takes_are_listed_and_deleted(self, store) -> None:
        keys = [f"many/{number:05d}" for number in range(1_007)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: store.put(key, b"x"), keys))
        store.put("many-more", b"stays")
        assert [stat.key for stat in store.list("many/")] == keys
        assert [stat.key for stat in store.list("many/", start_after=keys[3], limit=1_001)] == keys[4:1_005]
        store.delete(iter(keys))
        assert [stat.key for stat in store.list("")] == ["many-more"]

    # -- roots and processes ------------------------------------------------------------------------------------

    def test_a_store_sees_nothing_outside_its_root(self, config) -> None:
        job, beside = self._below(config, "job"), self._below(config, "job2")
        job.put("k", b"job")
        beside.put("k", b"beside")
        assert [stat.key for stat in job.list("")] == ["k"]
        assert job.get("k") == b"job"
        assert [stat.key for stat in self.open(config).list("")] == ["job/k", "job2/k"]

    def test_a_store_that_was_used_can_be_pickled(self, store) -> None:
        store.put("k", b"1")
        copy = pickle.loads(pickle.dumps(store))
        assert copy.get("k") == b"1"
        assert copy.config == store.config

    def test_a_root_with_spaces_and_unicode_works(self, config) -> None:
        store = self._below(config, f"with space/ünïcode %41 {uuid4().hex}")
        store.create("a key/é", b"1")
        assert [stat.key for stat in store.list("")] == ["a key/é"]
        assert store.get("a key/é") == b"1"


class SharedObjectStoreTests(ObjectStoreTests):
    """The contract of a store that several processes use."""

    def test_of_processes_that_create_one_key_exactly_one_wins(self, config) -> None:
        command = [sys.executable, "-c", RACER, config.url, config.endpoint_url or ""]
        racers = [
            subprocess.Popen(
                [*command, str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for number in range(2)
        ]
        try:
            assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 2
            for number in range(20):
                for racer in racers:
                    racer.stdin.write(f"{number}\n")
                answers = [racer.stdout.readline().strip() for racer in racers]
                assert sorted(answers) == ["lost", "won"]
                assert self.raw_get(config, f"race/{number}") == b"%d" % answers.index("won")
        finally:
            for racer in racers:
                racer.stdin.close()
                racer.wait(240)
                racer.stdout.close()
