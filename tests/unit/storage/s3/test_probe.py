"""The probe recognises its own success when it comes back as a conflict."""

from __future__ import annotations

from pathlib import Path

from milepost.errors import CommitConflict
from milepost.protocol.records.layout import PROBE_PREFIX
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
from milepost.storage.s3.probe import probe_store, require_preconditions
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore, at


def store_that_repeats(folder: Path, *, skip: int) -> FaultyStore:
    """A store behind a proxy that sends a create twice: the caller gets the second reply, a 412."""
    repeated = Fault(at("create", PROBE_PREFIX), Effect.LOST_REPLY, skip=skip, error=CommitConflict("412"))
    return FaultyStore(open_store(StoreConfig(folder.as_uri())), [repeated])


def test_a_repeated_create_of_the_probe_is_no_fault_of_the_store(tmp_path: Path) -> None:
    """Every create of the probe in turn, also that of the racer who wins; what is refused anyway stays refused."""
    for skip in range(4):
        store = store_that_repeats(tmp_path, skip=skip)
        assert all(check.ok for check in probe_store(store)), skip
        assert store.plan[0].reached.is_set()
    require_preconditions(store_that_repeats(tmp_path, skip=0))
