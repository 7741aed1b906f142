"""Behaviour specific to directories: links, full disks, concurrent writers, unusual names."""

from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    NotFound,
    StoreUnavailable,
)
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.directory_walk import STAGING
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.processes.processes import run_python


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(StoreConfig(file_url(root)))


def staged(root: Path) -> list[str]:
    return [path.name for path in (root / STAGING).iterdir()]


PARTS = st.text("ab-./0é ", min_size=1, max_size=3).filter(lambda part: part not in (".", "..") and "/" not in part)
KEYS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


@profiles.examples(share=0.6)
@given(st.sets(KEYS, max_size=12), KEYS | st.just(""), st.none() | st.integers(0, 5), st.text("ab-./0", max_size=4))
def test_any_listing_equals_that_of_a_sorted_set_of_keys(tmp_path_factory, keys, after, limit, prefix) -> None:
    store = LocalStore(StoreConfig(file_url(tmp_path_factory.mktemp("model"))))
    present: set[str] = set()
    for key in sorted(keys, key=str.encode):
        try:
            store.put(key, b"")
        except InvalidRequest:  # a file and a directory cannot share a name
            assert any(key.startswith(f"{other}/") or other.startswith(f"{key}/") for other in present)
        else:
            present.add(key)
    try:
        listed = [stat.key for stat in store.list(prefix, start_after=after, limit=limit)]
    except InvalidRequest:
        assert not any(key.startswith(prefix) for key in present)
        return
    wanted = sorted((k for k in present if k.startswith(prefix) and k.encode() > after.encode()), key=str.encode)
    assert listed == wanted[:limit]


def test_a_listing_opens_only_the_directories_that_can_hold_what_it_wants(store, monkeypatch) -> None:
    """A head, or the rest after a key, must not cost a walk over everything."""
    for number in range(20):
        for file in range(3):
            store.put(f"{number:03d}/{file:03d}", b"")
    real, opened = os.scandir, []
    monkeypatch.setattr(os, "scandir", lambda path: opened.append(path) or real(path))

    def cost(*arguments, **named) -> tuple[int, int]:
        opened.clear()
        return sum(1 for _ in store.list(*arguments, **named)), len(opened)

    assert cost("") == (60, 21)
    assert cost("", limit=1) == (1, 2)
    assert cost("", limit=4) == (4, 3)
    assert cost("", start_after="019/001") == (1, 2)
    assert cost("007/") == (3, 1)
    assert cost("01") == (30, 11)
    assert cost("absent/") == (0, 1)


# -- nothing outside the root --------------------------------------------------------------------------------------


def test_a_link_that_leads_out_of_the_root_is_refused_by_every_call(store, root, tmp_path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.put("in", b"1")
    (root / "linked").symlink_to(outside)
    for call in (
        lambda: store.get("linked/secret"),
        lambda: store.stat("linked/secret"),
        lambda: store.put("linked/secret", b"changed"),
        lambda: store.put("linked/new", b"x"),
        lambda: store.create("linked/new", b"x"),
        lambda: store.delete(["linked/secret"]),
    ):
        with wording.raises(InvalidRequest):
            call()
    with wording.raises(EnvironmentUnusable):
        list(store.list(""))
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"secret": b"secret"}


def test_a_root_that_is_itself_a_link_works(tmp_path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = LocalStore(StoreConfig(file_url(tmp_path / "link")))
    store.create("a/b", b"1")
    assert store.get("a/b") == b"1"
    assert [stat.key for stat in store.list("")] == ["a/b"]


def test_links_to_files_inside_are_objects_and_dangling_ones_are_not(store, root) -> None:
    store.put("a", b"1")
    (root / "b").symlink_to(root / "a")
    (root / "c").symlink_to(root / "nothing")
    assert [stat.key for stat in store.list("")] == ["a", "b"]
    assert store.get("b") == b"1"


def test_a_link_to_a_directory_is_refused_because_it_could_be_a_cycle(store, root) -> None:
    store.put("a/b", b"1")
    (root / "a" / "again").symlink_to(root)
    with wording.raises(EnvironmentUnusable):
        list(store.list(""))


@pytest.mark.parametrize("key", [STAGING, f"{STAGING}/x"])
def test_the_staging_directory_is_not_part_of_the_store(store, key) -> None:
    store.put("a", b"1")
    with wording.raises(InvalidRequest):
        store.get(key)
    assert [stat.key for stat in store.list(".mile")] == []


# -- a machine that does not play along ----------------------------------------------------------------------------

UNUSABLE = [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES]


@pytest.mark.parametrize("operation", ["put", "create"])
@pytest.mark.parametrize("number", UNUSABLE, ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["open", "write", "fsync"])
def test_a_full_or_read_only_disk_is_reported_and_changes_nothing(
    store, root, monkeypatch, operation, number, call
) -> None:
    store.put("there", b"old")

    def fail(*arguments, **named):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with wording.raises(EnvironmentUnusable) as raised:
            getattr(store, operation)("there" if operation == "put" else "new", b"x" * 1000)
    error = raised.value
    assert os.strerror(number) in error.message
    assert str(root) in error.hint
    assert staged(root) == []
    assert [stat.key for stat in store.list("")] == ["there"]
    assert store.get("there") == b"old"


def test_a_write_past_a_real_limit_of_the_system_leaves_nothing(root) -> None:
    code = """
import resource, sys
from milepost.errors import EnvironmentUnusable
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
store = LocalStore(StoreConfig(sys.argv[1]))
store.put("small", b"1")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    store.put("large", b"x" * 1_000_000)
except EnvironmentUnusable as error:
    print(error.message, [stat.key for stat in store.list("")])
"""
    done = run_python(code, file_url(root))
    assert "'large' (1000000 bytes)" in done.stdout, done.stderr
    assert "['small']" in done.stdout
    assert staged(root) == []


def test_an_unsynced_directory_leaves_the_outcome_unknown(store, monkeypatch) -> None:
    store.put("a/warm", b"")
    real, calls = os.fsync, []

    def fail_second(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail_second)
    with wording.raises(CommitOutcomeUnknown):
        store.create("a/b", b"1")


def test_an_input_output_error_may_pass(store, monkeypatch) -> None:
    def fail(*arguments):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with wording.raises(StoreUnavailable):
        store.put("a", b"1")


def test_a_root_that_is_a_file_is_named(tmp_path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = LocalStore(StoreConfig(file_url(tmp_path / "file")))
    with wording.raises(EnvironmentUnusable):
        list(store.list(""))
    with pytest.raises(NotFound):
        store.get("a")
    with wording.raises(InvalidRequest):
        store.put("a", b"")


def test_a_name_cannot_be_an_object_and_a_directory(store) -> None:
    store.put("a", b"1")
    store.put("d/e", b"1")
    for write in (lambda: store.put("a/b", b""), lambda: store.create("a/b", b""), lambda: store.put("d", b"")):
        with wording.raises(InvalidRequest):
            write()
    assert [stat.key for stat in store.list("")] == ["a", "d/e"]


def test_a_name_that_the_filesystem_cannot_hold_is_refused(store) -> None:
    with wording.raises(InvalidRequest):
        store.put("x" * 300, b"")


def test_a_file_name_that_is_no_text_is_named(store, root) -> None:
    store.put("a", b"")
    (root / os.fsdecode(b"bad-\xff")).touch()
    with wording.raises(EnvironmentUnusable):
        list(store.list(""))
    invalid_names: list[str] = []
    assert [stat.key for stat in store.list("", invalid_names=invalid_names)] == ["a"]
    assert invalid_names == [os.fsdecode(b"bad-\xff")]


# -- other writers -------------------------------------------------------------------------------------------------


def test_a_file_that_grows_during_a_read_is_refused(store, root, monkeypatch) -> None:
    stat = store.put("in.csv", b"one\n")
    real, calls = os.fstat, []

    def growing(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) == 2:
            with (root / "in.csv").open("ab") as file:
                file.write(b"two\n")
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", growing)
    with wording.raises(CommitConflict):
        store.get_if_match("in.csv", stat.etag)


def test_writers_and_deleters_of_one_directory_do_not_lose_writes(store) -> None:
    """A delete prunes the directory it emptied, while another writer is about to use it."""
    gate = threading.Barrier(3)

    def work(writer: int) -> None:
        gate.wait(240)
        for number in range(150):
            key = f"d/e/{writer}-{number}"
            store.create(key, b"1")
            assert store.get(key) == b"1"
            store.delete([key])

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, writer) for writer in range(3)]:
            done.result(60)
    assert list(store.list("")) == []


def test_a_reader_sees_the_old_body_or_the_new_one(store) -> None:
    bodies = [bytes([number]) * 200_000 for number in (1, 2)]
    store.put("k", bodies[0])
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for body in bodies:
                store.put("k", body)

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            assert all(store.get("k") in bodies for _ in range(200))
        finally:
            stop.set()
        writer.result(60)


def test_temp_files_older_than_a_day_are_removed_and_fresh_ones_stay(store, root, monkeypatch) -> None:
    store.put("a", b"")
    (root / STAGING / "dead").write_bytes(b"half")
    LocalStore(store.config).put("b", b"")
    assert staged(root) == ["dead"]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 25 * 3600)
    LocalStore(store.config).put("c", b"")
    assert staged(root) == []


def test_deletes_leave_no_empty_directories(store, root) -> None:
    store.put("a/b/c/d", b"")
    store.put("a/e", b"")
    store.delete(["a/b/c/d"])
    assert sorted(path.name for path in (root / "a").iterdir()) == ["e"]
    store.delete(["a/e"])
    assert [path.name for path in root.iterdir()] == [STAGING]
