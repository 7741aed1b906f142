"""Keys of the control objects: LIST order is numeric, and the head comes first (DESIGN 3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import (
    checkpoint_of_key,
    checkpoint_prefix,
    heartbeat_key,
    key_fault,
    manifest_key,
    manifest_version,
    metadata_key,
    token_prefix,
)
from milepost_testkit import wording

VERSIONS = st.integers(1, 10**19 - 1)


def test_the_keys_never_change() -> None:
    """A change of a key is a change of the format."""
    prefix = "chk-00000000000000000042/t00000000000000000107/"
    assert manifest_key(1) == "manifest/09999999999999999999.json"
    assert manifest_key(10**19 - 1) == "manifest/00000000000000000001.json"
    assert checkpoint_prefix(CheckpointId(42)) == "chk-00000000000000000042/"
    assert token_prefix(CheckpointId(42), FencingToken(107)) == prefix
    assert metadata_key(CheckpointId(42), FencingToken(107)) == prefix + "_metadata"
    assert heartbeat_key(CheckpointId(42), FencingToken(107)) == prefix + "_heartbeat"


@given(VERSIONS, VERSIONS)
def test_a_newer_version_has_the_smaller_key(one: int, other: int) -> None:
    """So one LIST with one key finds the head."""
    assert manifest_version(manifest_key(one)) == one
    assert (one < other) == (manifest_key(one) > manifest_key(other))


@pytest.mark.parametrize("version", [0, -1, 10**19])
def test_a_version_without_a_key_is_refused(version: int) -> None:
    with wording.raises(InvalidRequest):
        manifest_key(version)


@pytest.mark.parametrize(
    "key",
    ["manifest/1.json", "manifest/10000000000000000000.json", "manifest/99999999999999999999.json", "x", "manifest/"],
)
def test_a_foreign_object_is_no_manifest_version(key: str) -> None:
    with wording.raises(InvalidRequest):
        manifest_version(key)


def test_a_key_knows_its_checkpoint() -> None:
    assert checkpoint_of_key(token_prefix(CheckpointId(7), FencingToken(9)) + "state/a") == 7
    assert checkpoint_of_key(checkpoint_prefix(CheckpointId(7))) == 7
    assert checkpoint_of_key("inputs/abc.json") is None
    assert checkpoint_of_key("other/chk-00000000000000000007/") is None


@pytest.mark.parametrize("key", ["chk-1/t1/state/a b/run.parquet", "inputs/ü.json", "chk-00000000000000000007/"])
def test_ordinary_keys_have_no_fault(key: str) -> None:
    assert key_fault(key) is None
