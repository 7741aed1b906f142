"""Notices of aborted checkpoints: content and location."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import StateCorrupt
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import abort_notice_key, token_prefix
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.storage.local.store import LocalStore
from milepost.storage.notices import AbortNotice, read_notice, write_notice
from milepost_testkit import wording

ID = CheckpointId(7)
OLD, NEW = FencingToken(30), FencingToken(31)
NOTICE = AbortNotice(CheckpointFailureReason.CHECKPOINT_EXPIRED, CheckpointId(6))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(StoreConfig(tmp_path.as_uri()))


def test_a_notice_reads_back_as_it_was_written(store: LocalStore) -> None:
    assert read_notice(store, ID, NEW) is None
    write_notice(store, ID, NEW, NOTICE)
    write_notice(store, ID, NEW, NOTICE)
    assert read_notice(store, ID, NEW) == NOTICE
    assert read_notice(store, ID, OLD) is None


def test_a_notice_is_below_the_prefix_that_the_abort_makes_garbage(store: LocalStore) -> None:
    write_notice(store, ID, NEW, NOTICE)
    assert [stat.key for stat in store.list(token_prefix(ID, NEW))] == [abort_notice_key(ID, NEW)]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"reason": 1}'])
def test_a_damaged_notice_is_not_taken_for_none(store: LocalStore, body: bytes) -> None:
    store.put(abort_notice_key(ID, NEW), body)
    with wording.raises(StateCorrupt):
        read_notice(store, ID, NEW)
