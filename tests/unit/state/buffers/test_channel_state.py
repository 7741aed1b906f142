"""Channel state: stored as received, restored in order for any key-group range, and never trusted."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.codec.records import from_json, to_json
from milepost.errors import StateCorrupt
from milepost.protocol.records.object_store import StoreConfig
from milepost.state.buffers.buffers import Buffer, encode_rows
from milepost.state.buffers.channel_state import (
    ChannelStateHandle,
    encode_channel_state,
    oldest_in_flight,
    restore_channel_state,
)
from milepost.state.layers.key_groups import key_group, key_group_range, subtask_of_key_group
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.local.store import LocalStore
from milepost_testkit import wording
from milepost_testkit.rows.key_hashes import KEYED

GROUPS = 16
ROUTING: defaultdict[str, tuple[str, ...]] = defaultdict(lambda: ("k",))
SIGNATURES = {"a": "of a", "b": "of b"}


def buffer(keys: list[int], stamp: int | None = 7, uid: str = "a") -> Buffer:
    return Buffer(uid, "source", stamp, min(keys), encode_rows(pa.table({"k": keys})))


def stored(store: LocalStore, parallelism: int, buffers: list[Buffer]) -> list[ChannelStateHandle | None]:
    """Channel state as `parallelism` subtasks would have left it: each buffer holds rows of one subtask."""
    handles: list[ChannelStateHandle | None] = []
    for subtask in range(parallelism):
        groups = key_group_range(GROUPS, parallelism, subtask)
        mine = [part for one in buffers if (part := owned(one, groups)) is not None]
        file = encode_channel_state({"a": mine}, directory="chk-1/", key_groups=groups, signatures=SIGNATURES)
        if file is not None:
            store.put(file.key, file.body)
        handles.append(None if file is None else file.handles["a"])
    return handles


def owned(one: Buffer, groups: range) -> Buffer | None:
    keys = [key for key in one.rows()["k"].to_pylist() if group_of(key) in groups]
    return buffer(keys, one.lateness_us) if keys else None


def group_of(key: int) -> int:
    return int(key_group(KEYED(pa.table({"k": [key]}), ("k",)), GROUPS)[0])


def restore(
    store: LocalStore, handles: list[ChannelStateHandle | None], groups: range, uid: str | None = None
) -> tuple[Buffer, ...]:
    uid = uid or next((handle.uid for handle in handles if handle is not None), "op")
    identity = StateIdentity.of(uid, KeySpec(("k",), ("k",), KEYED), pa.schema([("k", pa.int64())]), groups, GROUPS)
    return restore_channel_state(identity, handles, CheckpointObjects(store, 1, "j"), ROUTING)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(StoreConfig(tmp_path.as_uri()))


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=9), st.sampled_from([None, 3, 9])), max_size=6
    ),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_every_row_in_flight_reaches_the_owner_of_its_key_once_in_order_with_its_stamp(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[list[int], int | None]], before: int, after: int
) -> None:
    """DESIGN 4.3: at restore, channel state is decoded and filtered when ranges changed."""
    store = LocalStore(StoreConfig(tmp_path_factory.mktemp("store").as_uri()))
    buffers = [buffer(keys, stamp) for keys, stamp in rows]
    handles = stored(store, before, buffers)
    every = [(key, stamp) for keys, stamp in rows for key in keys]
    for subtask in range(after):
        groups = key_group_range(GROUPS, after, subtask)
        restored = restore(store, handles, groups)
        got = [(key, one.lateness_us) for one in restored for key in one.rows()["k"].to_pylist()]
        for key in {key for key, _ in every}:
            mine = [item for item in every if item[0] == key]
            owner = int(subtask_of_key_group([group_of(key)], GROUPS, after)[0])
            assert [item for item in got if item[0] == key] == (mine if owner == subtask else [])


def test_with_the_same_ranges_buffers_come_back_byte_for_byte(store: LocalStore) -> None:
    buffers = [buffer([1, 2, 3], None), buffer([4], 9)]
    handles = stored(store, 1, buffers)
    restored = restore(store, handles, range(GROUPS))
    assert [bytes(one.payload) for one in restored] == [bytes(one.payload) for one in buffers]
    assert [(one.lateness_us, one.oldest_us) for one in restored] == [(None, 1), (9, 4)]


def test_operators_share_a_file_and_each_handle_counts_its_own(store: LocalStore) -> None:
    in_flight = {"a": [buffer([1])], "b": [buffer([5, 6], uid="b"), buffer([4], uid="b")]}
    file = encode_channel_state(in_flight, directory="d/", key_groups=range(GROUPS), signatures=SIGNATURES)
    assert file is not None
    store.put(file.key, file.body)
    a, b = file.handles["a"], file.handles["b"]
    assert (a.key, a.sha256, a.buffers, a.signature) == (b.key, b.sha256, 1, "of a")
    assert (b.buffers, b.oldest_us, b.signature) == (2, 4, "of b")
    assert b.bytes == sum(one.size for one in in_flight["b"])
    assert [one.rows()["k"].to_pylist() for one in restore(store, [b], range(GROUPS))] == [[5, 6], [4]]


def test_a_renamed_operator_gets_its_rows_in_flight_under_its_new_uid(store: LocalStore) -> None:
    """What it leaves in flight again is then found by the uid that the next checkpoint has."""
    handles = stored(store, 1, [buffer([1, 2]), buffer([3])])
    restored = restore(store, handles, range(GROUPS), uid="b")
    assert [(one.operator, one.rows()["k"].to_pylist()) for one in restored] == [("b", [1, 2]), ("b", [3])]
    again = encode_channel_state({"b": restored}, directory="d/", key_groups=range(GROUPS), signatures=SIGNATURES)
    assert again is not None
    store.put(again.key, again.body)
    assert [one.operator for one in restore(store, [again.handles["b"]], range(GROUPS))] == ["b", "b"]


def test_no_file_is_written_when_nothing_is_in_flight() -> None:
    assert encode_channel_state({"a": []}, directory="d/", key_groups=range(4), signatures=SIGNATURES) is None


def test_equal_buffers_make_the_same_file() -> None:
    """I12: two attempts that are cut at the same place acknowledge the same handle."""
    files = [
        encode_channel_state({"a": [buffer([1, 2])]}, directory="d/", key_groups=range(4), signatures=SIGNATURES)
        for _ in range(2)
    ]
    assert files[0] == files[1]


def test_the_oldest_row_in_flight_ignores_buffers_without_event_time() -> None:
    timeless = replace(buffer([1]), oldest_us=None)
    assert oldest_in_flight([timeless]) is None
    assert oldest_in_flight([timeless, buffer([8, 5])]) == 5


def test_a_missing_truncated_or_altered_file_is_refused_with_a_command(store: LocalStore) -> None:
    handle = stored(store, 1, [buffer([1, 2])])[0]
    assert handle is not None
    body = store.get(handle.key)
    for broken, problem in ((None, "missing"), (body[:-1], "bytes"), (body[:-1] + b"\x00\x00"[:1], "sha256")):
        store.delete([handle.key])
        if broken is not None:
            store.put(handle.key, broken if problem == "bytes" else body[:50] + b"?" + body[51:])
        with wording.raises(StateCorrupt) as caught:
            restore(store, [handle], range(GROUPS))
        assert problem in caught.value.message and "milepost verify j" in caught.value.hint


@pytest.mark.parametrize("change", [{"buffers": 3}, {"bytes": 1}, {"uid": "b"}])
def test_a_file_that_does_not_hold_what_its_handle_says_is_refused(store: LocalStore, change: dict[str, Any]) -> None:
    handle = stored(store, 1, [buffer([1]), buffer([2])])[0]
    assert handle is not None
    with wording.raises(StateCorrupt):
        restore(store, [replace(handle, **change)], range(GROUPS))


def test_a_file_that_is_not_channel_state_is_refused(store: LocalStore) -> None:
    handle = stored(store, 1, [buffer([1])])[0]
    assert handle is not None
    other = pa.BufferOutputStream()
    with pa.ipc.new_file(other, pa.schema([("x", pa.int64())])):
        pass
    for body in (b"no arrow", other.getvalue().to_pybytes()):
        store.put(handle.key, body)
        wrong = replace(handle, size=len(body), sha256=hashlib.sha256(body).hexdigest())
        with wording.raises(StateCorrupt):
            restore(store, [wrong], range(GROUPS))


GOOD: dict[str, Any] = {
    "key": "chk-1/t1/channel/x.arrow", "size": 9, "sha256": "a" * 64, "uid": "a", "key_groups": [0, 4],
    "buffers": 2, "bytes": 8, "oldest_us": -3, "signature": "s",
}  # fmt: skip


def test_a_handle_survives_json() -> None:
    for document in (GOOD, GOOD | {"oldest_us": None}):
        handle = from_json(ChannelStateHandle, document, "channel state handle")
        assert json.loads(json.dumps(to_json(handle))) == document


@pytest.mark.parametrize(
    "change",
    [
        {"key": "../x"},
        {"key": "/x"},
        {"key": ""},
        {"size": -1},
        {"size": True},
        {"sha256": "A" * 64},
        {"uid": 3},
        {"key_groups": [4, 4]},
        {"key_groups": [0]},
        {"buffers": 0},
        {"bytes": "8"},
        {"oldest_us": 1.5},
        {"oldest_us": False},
        {"signature": ""},
        {"extra": 1},
    ],
)
def test_a_handle_that_could_not_have_been_written_is_refused(change: dict[str, Any]) -> None:
    with wording.raises(StateCorrupt):
        from_json(ChannelStateHandle, GOOD | change, "channel state handle")


def test_a_handle_with_a_field_missing_or_of_another_kind_is_refused() -> None:
    for document in ({name: value for name, value in GOOD.items() if name != "bytes"}, [], None, "x"):
        with wording.raises(StateCorrupt):
            from_json(ChannelStateHandle, document, "channel state handle")
