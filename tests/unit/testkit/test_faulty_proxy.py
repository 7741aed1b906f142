"""The proxy of faults does to requests what each fault says; calm, it changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    NotFound,
    StoreUnavailable,
)
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit.proxies.faulty_proxy import FaultyProxy, StorageFault
from milepost_testkit.servers.s3_servers import Seaweed


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[FaultyProxy]:
    with FaultyProxy(seaweed.port, seed=1) as made:
        yield made


@pytest.fixture
def store(seaweed: Seaweed, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    place = f"s3://{seaweed.shared_bucket}/proxy-{uuid4().hex[:12]}"
    return open_store(StoreConfig(place, proxy.endpoint_url, "us-east-1"))


def meet(proxy: FaultyProxy, fault: StorageFault, share: float = 1.0) -> None:
    proxy.faults, proxy.rate = (fault,), share


def calm(proxy: FaultyProxy) -> None:
    proxy.rate = 0.0


@pytest.mark.deep
@pytest.mark.parametrize(
    ("fault", "expected", "is_there"),
    [
        (StorageFault.LOST_REQUEST, CommitOutcomeUnknown, False),
        (StorageFault.LOST_REPLY, CommitOutcomeUnknown, True),
        (StorageFault.UNAVAILABLE, CheckpointError, False),
        (StorageFault.DOUBLED, CommitConflict, True),
    ],
    ids=lambda one: one.name.lower() if isinstance(one, StorageFault) else "",
)
def test_a_conditional_write_ends_as_the_fault_says(
    proxy: FaultyProxy, store: ObjectStore, fault: StorageFault, expected: type[Exception], is_there: bool
) -> None:
    meet(proxy, fault)
    with pytest.raises(expected):
        store.create("new", b"body")
    calm(proxy)
    assert proxy.met[fault] >= 1
    if is_there:
        assert store.get("new") == b"body"
    else:
        with pytest.raises(NotFound):
            store.get("new")


def test_a_body_that_breaks_off_is_never_taken_for_the_whole(proxy: FaultyProxy, store: ObjectStore) -> None:
    store.put("large", bytes(100_000))
    meet(proxy, StorageFault.CUT_BODY)
    with pytest.raises(StoreUnavailable):
        store.get("large")


def test_a_stale_list_is_that_of_the_last_request(proxy: FaultyProxy, store: ObjectStore) -> None:
    store.put("a", b"")
    assert [stat.key for stat in store.list("")] == ["a"]
    store.put("b", b"")
    meet(proxy, StorageFault.STALE_LIST)
    assert [stat.key for stat in store.list("")] == ["a"]
    calm(proxy)
    assert [stat.key for stat in store.list("")] == ["a", "b"]


@pytest.mark.parametrize(
    ("fault", "is_off"),
    [
        (StorageFault.CLOCK_AHEAD, lambda off_s: 3_500 < off_s < 3_700),
        (StorageFault.CLOCK_BEHIND, lambda off_s: -3_700 < off_s < -3_500),
    ],
    ids=["ahead", "behind"],
)
def test_the_clock_of_the_store_is_off_until_it_is_calm(
    proxy: FaultyProxy, store: ObjectStore, fault: StorageFault, is_off: Callable[[float], bool]
) -> None:
    meet(proxy, fault)
    store.put("a", b"")
    assert is_off(store.clock_ms() / 1000 - time.time())
    calm(proxy)
    store.put("b", b"")
    store.get("b")
    assert abs(store.clock_ms() / 1000 - time.time()) < 60


def test_a_calm_proxy_meets_no_request(proxy: FaultyProxy, store: ObjectStore, tmp_path: Path) -> None:
    for number in range(20):
        store.put(f"{number}", b"x")
    assert len(list(store.list(""))) == 20
    assert not proxy.met
