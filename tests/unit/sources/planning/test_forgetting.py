"""What a set of consumed objects forgets, and that each version is read once whatever it forgets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ProtocolViolation, SourceChanged
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.sources.contract import SourceObject
from milepost.sources.planning.consumed import MAX_RUNS, ConsumedSet, append, load, needs_compaction
from milepost.sources.planning.forgetting import MAX_RANGES, ForgottenRows, find_forgettable
from milepost.sources.planning.listing import Listing
from milepost.sources.planning.plan import SourcePlan, SourceRules, plan_source
from milepost_testkit import profiles, wording
from milepost_testkit.stores.memory_store import MemoryStore

AFTER = 100


@dataclass
class Feed:
    """A source with its objects, its clock, and what the epochs so far have left of it."""

    store: MemoryStore = field(default_factory=lambda: MemoryStore("memory:"))
    now_ms: int = 10_000
    objects: dict[str, SourceObject] = field(default_factory=dict)
    handles: tuple[ObjectHandle, ...] = ()
    horizon_ms: int | None = None
    epochs: int = 0
    read: Counter[SourceObject] = field(default_factory=Counter)

    def land(self, key: str, etag: str = "1", modified: int | None = None) -> SourceObject:
        self.objects[key] = SourceObject(key, etag, 10, self.now_ms if modified is None else modified)
        return self.objects[key]

    def plan(self, **rules: Any) -> SourcePlan:
        table = load(self.store, self.handles).table
        known = ConsumedSet(table, self.horizon_ms, needs_compaction(self.handles))
        found = Listing(tuple(self.objects[key] for key in sorted(self.objects)))
        rules = {"forget_after_ms": AFTER, "on_change": "reprocess"} | rules
        return plan_source("f", found, known, SourceRules(**rules), self.now_ms, first_epoch=not self.epochs)

    def epoch(self, **rules: Any) -> SourcePlan:
        plan = self.plan(**rules)
        self.epochs += 1
        self.handles, _ = append(
            self.store, f"c{self.epochs}/f-", self.handles, plan.consumed, self.epochs, plan.forgets
        )
        if plan.forgets is not None:
            self.horizon_ms = plan.forgets.horizon_ms
        self.read.update(plan.objects)
        return plan

    def remembered(self) -> list[str]:
        return list(load(self.store, self.handles).table["key"].to_pylist())


def aged(epochs: int = MAX_RUNS, step: int = 50) -> Feed:
    """A feed that lost each object once it was read."""
    feed = Feed()
    for number in range(epochs):
        feed.now_ms += step
        feed.objects.clear()
        feed.land(f"{number:02d}")
        feed.epoch()
    return feed


def test_old_versions_of_deleted_objects_are_forgotten_at_a_compaction() -> None:
    feed = aged()
    assert (len(feed.remembered()), feed.horizon_ms) == (MAX_RUNS, None)
    feed.now_ms += 50
    feed.land("08")
    plan = feed.epoch()
    # Objects are of 10,050 and every 50 from there; the newest consumed one is of 10,400.
    assert plan.forgets == ForgottenRows(((0, 5),), 8, 10_251)
    assert feed.remembered() == ["05", "06", "07", "08"]
    assert len(feed.handles) == 1


def test_an_old_object_that_is_still_listed_is_not_forgotten() -> None:
    feed = Feed()
    for number in range(MAX_RUNS + 1):
        feed.now_ms += 1_000
        feed.land(f"{number:02d}")
        assert feed.epoch().forgets is None
    del feed.objects["03"]
    assert feed.plan().objects == ()
    feed.handles, feed.now_ms = feed.handles * MAX_RUNS, feed.now_ms + 1  # as many runs: the next one replaces them
    feed.land("new")
    assert set(feed.remembered()) - {"03"} == set(feed.remembered()[-9:]) - {"03"}
    forgets = feed.plan().forgets
    assert forgets is not None and {feed.remembered()[first] for first, _ in forgets.rows} == {"03"}


def test_nothing_is_forgotten_without_new_objects_or_without_the_setting() -> None:
    feed = aged()
    feed.objects.clear()  # an empty folder may be one that is not mounted
    feed.now_ms += 10_000
    assert feed.plan().forgets is None
    feed.land("new")
    assert feed.plan(forget_after_ms=None).forgets is None
    assert feed.plan().forgets is not None


def test_unread_objects_stay_new_whatever_is_forgotten() -> None:
    """An object that limits leave for later may be older than `forget_after` when its turn comes."""
    feed = aged()
    feed.objects.clear()
    feed.land("a", modified=10_110)
    feed.land("b", modified=10_120)
    feed.now_ms += 100_000
    feed.land("c")
    plan = feed.epoch(max_files=1)
    assert plan.forgets is not None and plan.forgets.horizon_ms == 10_101
    assert [obj.key for obj in plan.objects] == ["a"]
    assert [obj.key for _ in range(2) for obj in feed.epoch(max_files=1).objects] == ["b", "c"]


def test_an_unknown_object_older_than_the_horizon_fails_the_plan_and_is_named() -> None:
    """It may have been read: a copy that kept its time, a restored folder. It is neither lost in silence nor read."""
    feed = aged(MAX_RUNS + 1)
    assert feed.horizon_ms is not None
    feed.land("late", modified=feed.horizon_ms - 1)
    feed.land("timely", modified=feed.horizon_ms)
    for on_change in ("fail", "reprocess"):
        with wording.raises(SourceChanged) as refused:
            feed.plan(on_change=on_change)
        assert refused.value.details["keys"] == ["late"]
    plan = feed.plan(on_change="ignore")
    assert [obj.key for obj in plan.unknown] == ["late"]
    assert [obj.key for obj in plan.objects] == ["timely"]
    feed.land("late")  # a new copy
    assert [obj.key for obj in feed.plan(on_change="fail").objects] == ["late", "timely"]


def test_forgotten_versions_stay_forgotten_without_the_setting() -> None:
    feed = aged(MAX_RUNS + 1)
    feed.land("late", modified=10_000)
    with pytest.raises(SourceChanged):
        feed.plan(forget_after_ms=None)


def test_a_rewritten_object_is_remembered_as_long_as_its_key_is_listed() -> None:
    feed = Feed()
    feed.land("kept")
    feed.epoch()
    for number in range(2 * MAX_RUNS):
        feed.now_ms += 1_000
        feed.land(f"{number:02d}")
        feed.epoch()
        del feed.objects[f"{number:02d}"]
    assert feed.horizon_ms is not None and "kept" in feed.remembered()
    feed.land("kept", "2")
    with wording.raises(SourceChanged):
        feed.plan(on_change="fail")
    assert [obj.key for obj in feed.plan().changed] == ["kept"]


def test_the_horizon_never_falls_and_one_wrong_clock_forgets_little() -> None:
    feed = aged(MAX_RUNS + 1)
    reached = feed.horizon_ms
    feed.now_ms = 0  # the clock goes back
    for number in range(MAX_RUNS):
        feed.land(f"x{number}", modified=10_500 + number)
        assert feed.epoch().forgets is None
    assert feed.horizon_ms == reached
    feed.now_ms = 10**12  # and far ahead: what was modified counts
    feed.objects.clear()
    feed.land("y", modified=10_600)
    feed.epoch()
    for number in range(MAX_RUNS + 1):
        feed.land(f"z{number}", modified=10_700)
        feed.epoch()
    assert feed.horizon_ms is not None and reached is not None
    assert reached <= feed.horizon_ms <= 10_600


@pytest.mark.parametrize("epochs", [300, pytest.param(1_000, marks=pytest.mark.deep)])
def test_many_epochs_keep_the_set_small(epochs: int) -> None:
    feed = Feed()
    most = 0
    for number in range(epochs):
        feed.now_ms += 10
        feed.land(f"{number:04d}")
        if number >= 5:
            del feed.objects[f"{number - 5:04d}"]
        feed.epoch()
        most = max(most, len(feed.remembered()))
    assert most <= AFTER // 10 + MAX_RUNS + 2
    assert set(feed.read.values()) == {1} and len(feed.read) == epochs


def test_one_epoch_forgets_no_more_ranges_than_a_record_can_store() -> None:
    feed = Feed()
    for number in range(2 * MAX_RANGES + 2):
        feed.land(f"{number:05d}", modified=number)
    feed.epoch()
    table = load(feed.store, feed.handles).table
    listed = [key for key in feed.objects if int(key) % 2]
    forgets = find_forgettable(table, listed, 10**9)
    assert forgets is not None and len(forgets.rows) == MAX_RANGES
    assert forgets.horizon_ms == 2 * MAX_RANGES - 1, "of what leaves now"
    left = find_forgettable(forgets.remaining(table), listed, 10**9)
    assert left is not None and len(left.rows) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"of": 9},
        {"rows": ((3, 5), (0, 2))},
        {"rows": ((0, 99),)},
        {"horizon_ms": 10_050},
    ],
)
def test_rows_to_forget_must_fit_the_set(wrong: dict[str, Any]) -> None:
    feed = aged()
    feed.land("new")
    forgets = feed.plan().forgets
    assert forgets is not None
    with wording.raises(ProtocolViolation):
        append(feed.store, "c/f-", feed.handles, [feed.objects["new"]], 9, replace(forgets, **wrong))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["land", "land", "remove", "rewrite", "back", "old copy", "clock"]),
        st.integers(0, 11),
        st.integers(-60, 200),
    ),
    max_size=6,
)


@pytest.mark.deep
@profiles.examples(share=0.3)
@given(histories=st.lists(STEPS, min_size=12, max_size=40), max_files=st.integers(1, 4))
def test_every_version_is_read_once_or_refused_by_name(histories: list[Any], max_files: int) -> None:
    """Objects land, go, come back as they were, are rewritten, arrive late with old times; the clock goes any way."""
    feed = Feed()
    gone: dict[str, SourceObject] = {}
    horizons: list[int] = []
    serial = 0
    for steps in histories:
        for what, key, moved in steps:
            name = f"k{key}"
            serial += 1
            if what == "clock":
                feed.now_ms += moved
            elif what == "remove" and name in feed.objects:
                gone[name] = feed.objects.pop(name)
            elif what == "back" and name in gone and name not in feed.objects:
                feed.objects[name] = gone.pop(name)  # as it was, its time as well
            elif what == "old copy":
                feed.land(f"copy{serial}", str(serial), modified=feed.now_ms - abs(moved) * 3)
            elif what in ("land", "rewrite"):
                feed.land(name if what == "rewrite" else f"n{serial}", str(serial))
        feed.now_ms += 7
        for obj in _refused(feed):
            assert feed.horizon_ms is not None and obj.last_modified_ms < feed.horizon_ms
            del feed.objects[obj.key]
        feed.epoch(max_files=max_files)
        horizons += [feed.horizon_ms] if feed.horizon_ms is not None else []
    while feed.plan().objects:
        feed.epoch()
    assert horizons == sorted(horizons)
    assert set(feed.read.values()) <= {1}, "nothing twice"
    assert set(feed.objects.values()) <= set(feed.read), "nothing that is there was passed over"


def _refused(feed: Feed) -> list[SourceObject]:
    try:
        feed.plan()
    except SourceChanged as error:
        return [feed.objects[key] for key in error.details["keys"]]
    return []
