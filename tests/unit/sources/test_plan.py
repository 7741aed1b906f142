"""What one epoch reads: pure planning."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.protocol.errors import Action, InvalidRequest, SourceChanged
from pipeline.protocol.object_store import StoreConfig
from pipeline.protocol.records import ObjectHandle
from pipeline.sources.consumed import ConsumedSet, append, load
from pipeline.sources.contract import SourceObject
from pipeline.sources.objects import Listing
from pipeline.sources.plan import SourcePlan, assign_splits, plan_source
from pipeline.storage.open import open_store


def obj(key: str, etag: str = "1", size: int = 10, modified: int = 1_000) -> SourceObject:
    return SourceObject(key, etag, size, modified)


def listing(*objects: SourceObject) -> Listing:
    return Listing(tuple(sorted(objects, key=lambda o: o.key)))


def consumed(folder: Path, *epochs: list[SourceObject]) -> ConsumedSet:
    store = open_store(StoreConfig(f"file://{folder}"))
    handles: tuple[ObjectHandle, ...] = ()
    for number, objects in enumerate(epochs, 1):
        handles = append(store, f"chk-{number}/", "f", handles, objects, number)
    return load(store, handles)


def names(plan: SourcePlan) -> list[str]:
    return [o.key for o in plan.objects]


def test_new_objects_are_found_whatever_their_name_order(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj("b"), obj("d")])
    plan = plan_source("f", listing(obj("e"), obj("a"), obj("b"), obj("c"), obj("d")), done)
    assert names(plan) == ["a", "c", "e"]


def test_limits_leave_the_rest_for_later_epochs() -> None:
    found = listing(obj("a", size=5), obj("b", size=5), obj("c", size=5), obj("d", size=7, modified=400))
    plan = plan_source("f", found, ConsumedSet.empty(), max_files=3)
    assert (names(plan), plan.pending_objects, plan.pending_bytes) == (["a", "b", "c"], 1, 7)
    assert plan.oldest_new_ms == 400, "also what is left for later waits"
    assert names(plan_source("f", found, ConsumedSet.empty(), max_bytes=10)) == ["a", "b"]
    assert names(plan_source("f", found, ConsumedSet.empty(), max_bytes=14)) == ["a", "b"]
    assert names(plan_source("f", found, ConsumedSet.empty(), max_bytes=15)) == ["a", "b", "c"]


def test_an_object_above_the_byte_limit_is_taken_alone() -> None:
    """INTERFACE: soft at object borders: at least one object, never part of one."""
    plan = plan_source("f", listing(obj("a", size=50), obj("b", size=1)), ConsumedSet.empty(), max_bytes=10)
    assert names(plan) == ["a"]


def test_a_changed_object_fails_the_plan_and_names_both_versions(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj("a")], [obj("b", "old", 4)])
    with pytest.raises(SourceChanged) as raised:
        plan_source("flights", listing(obj("a"), obj("b", "new", 5), obj("c")), done)
    assert "b: consumed by checkpoint 2 as old (4 bytes), now new (5 bytes)" in str(raised.value)
    assert "on_change" in raised.value.hint
    assert (raised.value.action, raised.value.exit_code) == (Action.FIX_INPUT, 1)


def test_the_error_about_many_changed_objects_stays_short(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj(f"{n:03}") for n in range(200)])
    with pytest.raises(SourceChanged) as raised:
        plan_source("f", listing(*(obj(f"{n:03}", "2") for n in range(200))), done)
    assert len(str(raised.value).splitlines()) <= 10
    assert "and 195 more" in str(raised.value)


def test_a_size_that_differs_is_another_version(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj("a", "same", 4)])
    with pytest.raises(SourceChanged):
        plan_source("f", listing(obj("a", "same", 5)), done)


def test_ignore_keeps_what_was_consumed(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj("a")])
    plan = plan_source("f", listing(obj("a", "2"), obj("b")), done, on_change="ignore")
    assert (names(plan), plan.ignored_changes, plan.changed) == (["b"], 1, ())


def test_reprocess_reads_each_version_once_also_when_an_old_one_comes_back(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj("a", "1")])
    plan = plan_source("f", listing(obj("a", "2"), obj("b")), done, on_change="reprocess")
    assert (names(plan), [o.key for o in plan.changed]) == (["a", "b"], ["a"])
    done = consumed(tmp_path / "2", [obj("a", "1")], list(plan.objects))
    assert not plan_source("f", listing(obj("a", "2"), obj("b")), done, on_change="reprocess").consumed
    assert not plan_source("f", listing(obj("a", "1"), obj("b")), done, on_change="reprocess").consumed


def test_a_consumed_object_that_vanished_is_no_reason_for_anything(tmp_path: Path) -> None:
    assert not plan_source("f", listing(), consumed(tmp_path, [obj("a")])).consumed


def test_latest_records_what_the_first_epoch_finds_without_reading_it() -> None:
    plan = plan_source("f", listing(obj("a"), obj("b")), ConsumedSet.empty(), start="latest", first_epoch=True)
    assert (plan.objects, [o.key for o in plan.baseline]) == ((), ["a", "b"])
    assert plan.consumed == plan.baseline


def test_latest_reads_what_lands_after_the_first_epoch(tmp_path: Path) -> None:
    plan = plan_source("f", listing(obj("a"), obj("b")), consumed(tmp_path, [obj("b")]), start="latest")
    assert names(plan) == ["a"]


def test_a_start_time_is_by_last_modification_and_inclusive() -> None:
    found = listing(obj("a", modified=999), obj("b", modified=1_000), obj("c", modified=1_001))
    plan = plan_source("f", found, ConsumedSet.empty(), start=1_000)
    assert (names(plan), plan.skipped_before_start) == (["b", "c"], 1)


@pytest.mark.parametrize("wrong", [{"max_files": 0}, {"max_bytes": 0}, {"start": "newest"}, {"on_change": "warn"}])
def test_arguments_out_of_bounds_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="source f"):
        plan_source("f", listing(), ConsumedSet.empty(), **wrong)  # type: ignore[arg-type]


def test_a_listing_of_100_000_objects_is_planned_within_a_second(tmp_path: Path) -> None:
    objects = [obj(f"in/2013/{n:08}.csv", f"etag-{n}") for n in range(100_000)]
    done = consumed(tmp_path, objects[::2])
    found = Listing(tuple(objects))
    begin = time.process_time()
    plan = plan_source("f", found, done, max_files=4)
    assert time.process_time() - begin < 1.0
    assert plan.pending_objects == 50_000 - 4


@settings(deadline=None)
@given(
    landings=st.lists(st.sets(st.integers(0, 40), max_size=12), min_size=1, max_size=6),
    max_files=st.integers(1, 5),
)
def test_every_version_is_consumed_exactly_once(landings: list[set[int]], max_files: int) -> None:
    present: set[int] = set()
    read: list[str] = []
    done = ConsumedSet.empty()

    def epoch() -> int:
        nonlocal done
        plan = plan_source("f", listing(*(obj(f"{n:02}") for n in present)), done, max_files=max_files)
        assert names(plan) == sorted(names(plan))
        read.extend(names(plan))
        rows = {
            "key": [o.key for o in plan.objects],
            "etag": [o.etag for o in plan.objects],
            "size": [o.size for o in plan.objects],
            "last_modified_ms": [o.last_modified_ms for o in plan.objects],
            "checkpoint_id": [1] * len(plan.objects),
        }
        done = ConsumedSet(_concat(done, rows))
        return len(plan.objects)

    for landed in landings:
        present |= landed
        epoch()
    while epoch():
        pass
    assert sorted(read) == [f"{n:02}" for n in sorted(present)]


def _concat(done: ConsumedSet, rows: dict[str, list[object]]) -> pa.Table:
    return pa.concat_tables([done.table, pa.table(rows, schema=done.table.schema)])


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 10**9), max_size=40), parallelism=st.integers(1, 12))
def test_splits_are_contiguous_never_empty_and_cover_the_plan(sizes: list[int], parallelism: int) -> None:
    """I12: (channel, sequence) order is plan order whatever the parallelism."""
    objects = [obj(f"{n:03}", size=size) for n, size in enumerate(sizes)]
    splits = assign_splits(objects, parallelism)
    assert [o for split in splits for o in split] == objects
    assert len(splits) == min(parallelism, len(objects))
    assert all(splits)


def test_splits_are_balanced_by_bytes() -> None:
    objects = [obj(f"{n}", size=size) for n, size in enumerate([100, 1, 1, 1, 1, 96])]
    first, second = assign_splits(objects, 2)
    assert (len(first), len(second)) == (1, 5)


def test_a_parallelism_below_one_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        assign_splits([obj("a")], 0)
