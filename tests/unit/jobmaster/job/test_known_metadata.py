"""What an opened job remembers of its checkpoints' metadata: as much as memory is given to it, the newest of it."""

from __future__ import annotations

from typing import Any, cast

from milepost.jobmaster.job.known_metadata import KnownMetadata
from milepost.protocol.records.checkpoints import ObjectHandle


def handle(name: str, size: int) -> ObjectHandle:
    return ObjectHandle(f"chk/{name}/_metadata", size, name * 64)


def metadata(name: str) -> Any:
    return cast("Any", f"the metadata of {name}")


def test_the_oldest_is_dropped_once_they_weigh_more_than_they_may() -> None:
    known = KnownMetadata(100)
    for name in "abc":
        known.keep(handle(name, 40), metadata(name))
    assert handle("a", 40) not in known
    assert known.get(handle("a", 40)) is None
    assert [known.get(handle(name, 40)) for name in "bc"] == [metadata("b"), metadata("c")]


def test_what_is_kept_again_weighs_once() -> None:
    known = KnownMetadata(100)
    for name in "abababab":
        known.keep(handle(name, 40), metadata(name))
    assert handle("a", 40) in known
    assert handle("b", 40) in known


def test_the_newest_is_kept_however_much_it_weighs() -> None:
    known = KnownMetadata(100)
    for name in "ab":
        known.keep(handle(name, 1_000), metadata(name))
    assert handle("a", 1_000) not in known
    assert known.get(handle("b", 1_000)) == metadata("b")
