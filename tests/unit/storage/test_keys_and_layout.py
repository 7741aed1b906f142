"""Valid keys, URLs and a job's own keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest, StateCorrupt
from milepost.protocol.records.ids import CheckpointId, FencingToken, OperatorUid
from milepost.protocol.records.layout import checkpoint_prefix, heartbeat_key, manifest_key, metadata_key, token_prefix
from milepost.protocol.records.locations import absolute_url, child_url, database_uri, location_problem
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.keys import LocalRoot, S3Root, is_loopback, parse_root, validate_prefix
from milepost.storage.layout import (
    consumed_prefix,
    listed_version,
    metrics_prefix,
    require_own_key,
    require_own_prefix,
    state_prefix,
)
from milepost.storage.local.store import LocalStore
from milepost.storage.open import open_store
from milepost_testkit import wording

CHECKPOINT, TOKEN, UID = CheckpointId(42), FencingToken(7), OperatorUid("carriers")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("file:///data/lake", "file:///data/lake"),
        ("file:///data/lake/", "file:///data/lake"),
        ("file:///with%20space/x", "file:///with%20space/x"),
        ("file:///with space/ü", "file:///with space/ü"),
        ("file:///100%25", "file:///100%25"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("store", "file:///specs/store"),
        ("./store", "file:///specs/store"),
        ("../store", "file:///store"),
        ("/abs/store", "file:///abs/store"),
        ("a b/%41", "file:///specs/a b/%2541"),
        ("landing/**/*.csv", "file:///specs/landing/**/*.csv"),
    ],
)
def test_a_location_in_a_spec_means_one_absolute_url(text, url) -> None:
    assert location_problem(text) is None
    assert absolute_url(text, Path("/specs")) == url
    assert absolute_url(url, Path("/elsewhere")) == url


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("sqlite:///catalog.db", "sqlite:////my specs/catalog.db"),
        ("sqlite+pysqlite:///../a/c.db?timeout=5", "sqlite+pysqlite:////a/c.db?timeout=5"),
        ("sqlite:////abs/c.db", "sqlite:////abs/c.db"),
        ("sqlite:///file:c.db?mode=ro&uri=true", "sqlite:///file:c.db?mode=ro&uri=true"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg://u@h/d"),
        ("https://catalog/ice", "https://catalog/ice"),
    ],
)
def test_the_file_of_a_database_in_a_spec_begins_at_its_folder(text, uri) -> None:
    assert database_uri(text, Path("/my specs")) == uri
    assert database_uri(uri, Path("/elsewhere")) == uri


@pytest.mark.parametrize("scheme", ["gs", "s3a", "http", "hdfs", "abfss"])
def test_another_scheme_is_refused_by_its_name(scheme) -> None:
    wording.matches("problems", location_problem(f"{scheme}://host/path") or "")
    with wording.raises(InvalidRequest) as refused:
        open_store(StoreConfig(f"{scheme}://host/path"))
    assert scheme in str(refused.value)


@pytest.mark.parametrize("text", ["", " ", "~/data", "file://relative/x", "s3://", "s3:///key", "s3://b@d/x", "s3://bucket/a//b",
                                  "s3:bucket", "file:/x", "s3://bucket/../x"])  # fmt: skip
def test_a_location_that_means_nothing_is_refused(text) -> None:
    if location_problem(text) is None:
        with pytest.raises(InvalidRequest):
            open_store(StoreConfig(absolute_url(text, Path("/specs"))))


def test_a_store_below_another_is_the_same_store_deeper() -> None:
    assert child_url("s3://bucket/root/", "a/b") == "s3://bucket/root/a/b"
    assert parse_root(child_url("s3://bucket", "100% ü")) == S3Root("bucket", "100% ü")
    assert parse_root(child_url("file:///root", "100% ü")) == LocalRoot(Path("/root/100% ü"))
    assert parse_root("s3://bucket/a/b") == S3Root("bucket", "a/b")


def test_opening_a_store_touches_nothing(tmp_path) -> None:
    store = open_store(StoreConfig(f"file://{tmp_path}/not/there"))
    assert isinstance(store, LocalStore)
    assert list(store.list("")) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/.", "a/..", ".", "a/b c/"])
def test_any_beginning_of_a_key_is_a_prefix(prefix) -> None:
    assert validate_prefix(prefix) == prefix


@pytest.mark.parametrize("prefix", ["/", "/a", "a//", "a//b", "../", "a/../", "a\n"])
def test_what_no_key_begins_with_is_no_prefix(prefix) -> None:
    with wording.raises(InvalidRequest):
        validate_prefix(prefix)


def test_loopback_is_recognised_in_all_its_spellings() -> None:
    assert all(map(is_loopback, ["http://127.0.0.1:9000", "http://127.8.9.1", "https://localhost:1", "http://[::1]:9",
                                 "http://s3.localhost:1"]))  # fmt: skip
    assert not any(map(is_loopback, ["https://s3.amazonaws.com", "http://10.0.0.1:9000", "http://localhost.example"]))


# -- layout ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**19 - 2))
def test_a_newer_manifest_version_always_sorts_first(version) -> None:
    """I1: so one LIST of one key finds the head."""
    assert manifest_key(version + 1).encode() < manifest_key(version).encode()
    assert listed_version(manifest_key(version)) == version


@given(st.integers(0, 10**19), st.integers(0, 10**19))
def test_ids_in_keys_sort_as_numbers(one, other) -> None:
    keys = [checkpoint_prefix(CheckpointId(number)) for number in (one, other)]
    assert (keys[0] < keys[1]) == (one < other)


def test_all_objects_of_a_token_are_below_its_own_prefix() -> None:
    """I3: a zombie can write only below its own token's prefix."""
    own = "chk-00000000000000000042/t00000000000000000007/"
    assert token_prefix(CHECKPOINT, TOKEN) == own
    keys = [
        state_prefix(CHECKPOINT, TOKEN, UID) + "f.parquet",
        consumed_prefix(CHECKPOINT, TOKEN) + "f.parquet",
        metrics_prefix(CHECKPOINT, TOKEN) + "0-1-a0.json",
        heartbeat_key(CHECKPOINT, TOKEN),
        metadata_key(CHECKPOINT, TOKEN),
    ]
    assert len(set(keys)) == len(keys)
    for key in keys:
        assert key.startswith(own)
        assert require_own_key(key, within=own) == key


@pytest.mark.parametrize("uid", ["", "a/b", "..", ".", "-x", "a b", "ü", "x" * 129])
def test_a_uid_that_would_leave_its_directory_is_refused(uid) -> None:
    with wording.raises(InvalidRequest):
        state_prefix(CHECKPOINT, TOKEN, OperatorUid(uid))


FOREIGN = [
    "",
    "/etc/passwd",
    "../other/chk-00000000000000000001/t00000000000000000001/x",
    "chk-00000000000000000042/t00000000000000000007/../../../x",
    "chk-00000000000000000042/t00000000000000000007//x",
    "chk-00000000000000000042/x",
    "chk-42/t7/x",
    "manifest/09999999999999999999.json",
    "inputs/",
    "inputs/a\nb",
    "state/x",
]


@pytest.mark.parametrize("key", FOREIGN, ids=ascii)
def test_a_stored_key_that_leads_out_of_the_job_is_corruption(key) -> None:
    with wording.raises(StateCorrupt):
        require_own_key(key)


def test_a_stored_key_outside_the_token_it_was_read_from_is_corruption() -> None:
    other = metadata_key(CHECKPOINT, FencingToken(8))
    with pytest.raises(StateCorrupt):
        require_own_key(other, within=token_prefix(CHECKPOINT, TOKEN))


@pytest.mark.parametrize(
    "prefix", [*FOREIGN, "chk-", "chk-0000000000000000004", "/", "chk-00000000000000000042/state/"], ids=ascii
)
def test_a_garbage_entry_that_is_not_one_directory_or_object_is_corruption(prefix) -> None:
    """I8: deleting by it could take what is still live."""
    with pytest.raises(StateCorrupt):
        require_own_prefix(prefix)


def test_a_garbage_entry_is_a_checkpoint_a_token_or_an_object() -> None:
    own = checkpoint_prefix(CHECKPOINT), token_prefix(CHECKPOINT, TOKEN), "inputs/a.json"
    for prefix in (*own, metrics_prefix(CHECKPOINT, TOKEN)):
        assert require_own_prefix(prefix) == prefix
