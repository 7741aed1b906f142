"""What one epoch reads: pure planning."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import Action, InvalidRequest, SourceChanged
from milepost.language.types import parse_type
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.object_store import StoreConfig
from milepost.sources.contract import SourceObject
from milepost.sources.path_columns import PathColumns
from milepost.sources.planning.consumed import ConsumedSet, append, load
from milepost.sources.planning.listing import Listing
from milepost.sources.planning.plan import ObjectVersion, SourcePlan, SourceRules, plan_source
from milepost.storage.open import open_store
from milepost_testkit import wording

NOW_MS = 1_000_000


def obj(key: str, etag: str = "1", size: int = 10, modified: int = 1_000) -> SourceObject:
    return SourceObject(key, etag, size, modified)


def listing(*objects: SourceObject) -> Listing:
    return Listing(tuple(sorted(objects, key=lambda o: o.key)))


def consumed(folder: Path, *epochs: list[SourceObject]) -> ConsumedSet:
    store = open_store(StoreConfig(f"file://{folder}"))
    handles: tuple[ObjectHandle, ...] = ()
    for number, objects in enumerate(epochs, 1):
        handles, _ = append(store, f"chk-{number}/f-", handles, objects, number)
    return load(store, handles)


def planned(
    found: Listing,
    done: ConsumedSet,
    *,
    now_ms: int = NOW_MS,
    first_epoch: bool = False,
    quarantined: Collection[ObjectVersion] = (),
    **rules: Any,
) -> SourcePlan:
    return plan_source("f", found, done, SourceRules(**rules), now_ms, first_epoch=first_epoch, quarantined=quarantined)


def names(plan: SourcePlan) -> list[str]:
    return [o.key for o in plan.objects]


def test_new_objects_are_found_wherever_their_keys_sort(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj("b"), obj("d")])
    plan = planned(listing(obj("e"), obj("a"), obj("b"), obj("c"), obj("d")), done)
    assert names(plan) == ["a", "c", "e"]


def test_a_quarantined_version_is_not_read_and_another_version_of_it_is(tmp_path: Path) -> None:
    held = {("b", "1", 10)}
    plan = planned(listing(obj("a"), obj("b"), obj("c")), ConsumedSet.empty(), quarantined=held)
    assert (names(plan), plan.quarantined, plan.pending_objects) == (["a", "c"], (obj("b"),), 0)
    for other in (obj("b", etag="2"), obj("b", size=11)):
        assert names(planned(listing(other), ConsumedSet.empty(), quarantined=held)) == ["b"]
    plan = planned(listing(obj("b")), consumed(tmp_path, [obj("b")]), quarantined=held)
    assert (plan.objects, plan.quarantined) == ((), ()), "it was read before"


@pytest.mark.parametrize("on_change", ["fail", "ignore", "reprocess"])
def test_a_quarantined_version_of_an_object_that_was_read_is_no_change(tmp_path: Path, on_change: str) -> None:
    done = consumed(tmp_path, [obj("a")])
    plan = planned(listing(obj("a", etag="2")), done, on_change=on_change, quarantined=[("a", "2", 10)])
    assert (plan.objects, plan.ignored_changes, plan.quarantined) == ((), 0, (obj("a", etag="2"),))


def test_what_start_latest_skips_is_skipped_whether_it_is_quarantined_or_not() -> None:
    plan = planned(
        listing(obj("a")), ConsumedSet.empty(), first_epoch=True, start="latest", quarantined=[("a", "1", 10)]
    )
    assert (plan.baseline, plan.quarantined) == ((obj("a"),), ())


def test_what_is_older_than_the_start_is_skipped_whether_it_is_quarantined_or_not(tmp_path: Path) -> None:
    """No epoch reads it after a release either, so it does not hold the horizon."""
    read = [obj("gone", modified=300), obj("z", modified=800)]
    done = replace(consumed(tmp_path, read), needs_compaction=True)
    found = listing(obj("early", modified=200), obj("new", modified=900), read[-1])
    rules: dict[str, Any] = {"forget_after_ms": 100, "now_ms": 1_000, "start": 250}
    plan = planned(found, done, quarantined=[("early", "1", 10)], **rules)
    assert (plan.skipped_before_start, plan.quarantined) == (1, ())
    assert plan.forgets is not None and plan.forgets == planned(found, done, **rules).forgets


def test_an_unread_object_holds_the_horizon_while_it_is_quarantined(tmp_path: Path) -> None:
    """Else a release could not tell it from one that was read and forgotten."""
    read = [obj("gone", modified=100), obj("too", modified=300), obj("z", modified=800)]
    done = replace(consumed(tmp_path, read), needs_compaction=True)
    new, bad = obj("new", modified=900), obj("bad", modified=200)
    rules: dict[str, Any] = {"forget_after_ms": 100, "now_ms": 1_000}
    free = planned(listing(new, read[-1]), done, **rules).forgets
    held = planned(listing(bad, new, read[-1]), done, quarantined=[("bad", "1", 10)], **rules).forgets
    assert free is not None and held is not None
    assert (free.horizon_ms, held.horizon_ms) == (301, 101)


def test_limits_leave_the_rest_for_later_epochs() -> None:
    found = listing(obj("a", size=5), obj("b", size=5), obj("c", size=5), obj("d", size=7, modified=400))
    plan = planned(found, ConsumedSet.empty(), max_files=3)
    assert (names(plan), plan.pending_objects, plan.pending_bytes) == (["a", "b", "c"], 1, 7)
    assert plan.oldest_new_ms == 400, "also what is left for later waits"
    assert names(planned(found, ConsumedSet.empty(), max_bytes=10)) == ["a", "b"]
    assert names(planned(found, ConsumedSet.empty(), max_bytes=14)) == ["a", "b"]
    assert names(planned(found, ConsumedSet.empty(), max_bytes=15)) == ["a", "b", "c"]


def test_an_object_above_the_byte_limit_is_planned_alone() -> None:
    """Soft at object borders: at least one object, never part of one."""
    plan = planned(listing(obj("a", size=50), obj("b", size=1)), ConsumedSet.empty(), max_bytes=10)
    assert names(plan) == ["a"]


def test_a_changed_object_fails_the_plan_and_names_both_versions(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj("a")], [obj("b", "old", 4)])
    with wording.raises(SourceChanged) as raised:
        planned(listing(obj("a"), obj("b", "new", 5), obj("c")), done)
    then = "modified 1970-01-01T00:00:01+00:00"
    assert then in str(raised.value)
    assert "on_change" in raised.value.hint
    assert (raised.value.action, raised.value.exit_code) == (Action.FIX_INPUT, 1)


def test_the_error_about_many_changed_objects_stays_short(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj(f"{n:03}") for n in range(200)])
    with wording.raises(SourceChanged) as raised:
        planned(listing(*(obj(f"{n:03}", "2") for n in range(200))), done)
    assert len(str(raised.value).splitlines()) <= 10


def test_a_different_size_is_another_version(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj("a", "same", 4)])
    with pytest.raises(SourceChanged):
        planned(listing(obj("a", "same", 5)), done)


def test_ignore_does_not_read_a_changed_object_again(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj("a")])
    plan = planned(listing(obj("a", "2"), obj("b")), done, on_change="ignore")
    assert (names(plan), plan.ignored_changes, plan.changed) == (["b"], 1, ())


def test_reprocess_reads_each_version_once_even_when_an_old_one_is_restored(tmp_path: Path) -> None:
    done = consumed(tmp_path, [obj("a", "1")])
    plan = planned(listing(obj("a", "2"), obj("b")), done, on_change="reprocess")
    assert (names(plan), [o.key for o in plan.changed]) == (["a", "b"], ["a"])
    done = consumed(tmp_path / "2", [obj("a", "1")], list(plan.objects))
    assert not planned(listing(obj("a", "2"), obj("b")), done, on_change="reprocess").consumed
    assert not planned(listing(obj("a", "1"), obj("b")), done, on_change="reprocess").consumed


def test_a_deleted_consumed_object_changes_nothing(tmp_path: Path) -> None:
    assert not planned(listing(), consumed(tmp_path, [obj("a")])).consumed


def test_latest_records_the_objects_of_the_first_epoch_without_reading_them() -> None:
    plan = planned(listing(obj("a"), obj("b")), ConsumedSet.empty(), start="latest", first_epoch=True)
    assert (plan.objects, [o.key for o in plan.baseline]) == ((), ["a", "b"])
    assert plan.consumed == plan.baseline


def test_latest_reads_objects_that_land_after_the_first_epoch(tmp_path: Path) -> None:
    plan = planned(listing(obj("a"), obj("b")), consumed(tmp_path, [obj("b")]), start="latest")
    assert names(plan) == ["a"]


def test_a_start_time_is_by_last_modification_and_inclusive() -> None:
    found = listing(obj("a", modified=999), obj("b", modified=1_000), obj("c", modified=1_001))
    plan = planned(found, ConsumedSet.empty(), start=1_000)
    assert (names(plan), plan.skipped_before_start) == (["b", "c"], 1)


def test_an_object_that_may_still_be_written_is_left_for_the_next_plan(tmp_path: Path) -> None:
    found = listing(*(obj(f"{age:04}", modified=NOW_MS - age) for age in (0, 1, 1_999, 2_000, 9_000)))
    plan = planned(found, ConsumedSet.empty(), settle_ms=2_000)
    assert names(plan) == ["2000", "9000"]
    assert (plan.pending_objects, plan.pending_bytes, plan.settling, plan.settles_in_ms) == (3, 30, 3, 2_000)
    assert (plan.unread, plan.oldest_new_ms) == (5, NOW_MS - 9_000)
    later = planned(found, consumed(tmp_path, list(plan.objects)), settle_ms=2_000, now_ms=NOW_MS + plan.settles_in_ms)
    assert (names(later), later.settling, later.settles_in_ms) == (["0000", "0001", "1999"], 0, 0)


def test_consumed_objects_and_objects_with_a_future_time_never_settle(tmp_path: Path) -> None:
    """An object of unknown age would be waited for indefinitely."""
    found = listing(obj("a", modified=NOW_MS), obj("b", modified=NOW_MS + 1))
    plan = planned(found, consumed(tmp_path, [obj("a")]), settle_ms=2_000)
    assert (names(plan), plan.settling) == (["b"], 0)


def test_settling_objects_do_not_count_for_the_limits() -> None:
    found = listing(obj("a", modified=NOW_MS), obj("b"), obj("c"))
    plan = planned(found, ConsumedSet.empty(), settle_ms=2_000, max_files=1)
    assert (names(plan), plan.pending_objects) == (["b"], 2)


def test_keys_without_a_partition_value_are_found_by_directory(tmp_path: Path) -> None:
    columns = PathColumns({"dt": parse_type("date"), "n": parse_type("string")})
    good, bad = ["dt=2026-01-01/n=a/x", "dt=2026-01-01/n=a/y", "dt=2026-01-01/n=%C3%A9/x"], [
        "dt=2026-01-01/n=%FF/x", "dt=2026-02-30/n=a/x", "dt=2026-02-30/n=a/y", "n=a/x", "x"]  # fmt: skip
    found = listing(*(obj(key) for key in (*good, *bad)))
    with wording.raises(InvalidRequest) as raised:
        planned(found, ConsumedSet.empty(), partitions=columns)
    assert raised.value.details["names"] == sorted(bad)
    plan = planned(found, ConsumedSet.empty(), partitions=columns, on_bad_name="skip", max_files=1)
    assert (names(plan), plan.pending_objects, len(plan.bad_names)) == (good[2:], 2, 5)
    done = consumed(tmp_path, [obj(key) for key in (*good, *bad)])
    assert planned(found, done, partitions=columns).bad_names == (), "what was read was read"


@pytest.mark.parametrize("wrong", [{"max_files": 0}, {"max_bytes": 0}, {"start": "newest"}, {"on_change": "warn"}])
def test_arguments_out_of_bounds_are_refused(wrong: dict[str, object]) -> None:
    with wording.raises(InvalidRequest):
        planned(listing(), ConsumedSet.empty(), **wrong)


@pytest.mark.deep
def test_a_listing_of_100_000_objects_is_planned_within_a_second(tmp_path: Path) -> None:
    objects = [obj(f"in/2013/{n:08}.csv", f"etag-{n}") for n in range(100_000)]
    done = consumed(tmp_path, objects[::2])
    found = Listing(tuple(objects))
    begin = time.process_time()
    plan = planned(found, done, max_files=4)
    assert time.process_time() - begin < 1.0
    assert plan.pending_objects == 50_000 - 4


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
        plan = planned(listing(*(obj(f"{n:02}") for n in present)), done, max_files=max_files)
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
