"""Which objects a path names."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sources.contract import BadRecord
from milepost.sources.planning.listing import list_objects, split_path
from milepost.storage.open import open_store
from milepost_testkit import wording


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreConfig(f"file://{tmp_path}"))


def keys(store: ObjectStore, pattern: str) -> list[str]:
    return [obj.key for obj in list_objects(store, pattern).objects]


def fill(store: ObjectStore, *names: str) -> None:
    for name in names:
        store.put(name, b"x")


def test_one_star_stays_within_a_part_and_two_go_across(store: ObjectStore) -> None:
    fill(store, "in/a.csv", "in/x/b.csv", "in/x/y/c.csv", "in/x/y/c.txt", "out/a.csv")
    assert keys(store, "in/*.csv") == ["in/a.csv"]
    assert keys(store, "in/*/*.csv") == ["in/x/b.csv"]
    assert keys(store, "in/**/*.csv") == ["in/a.csv", "in/x/b.csv", "in/x/y/c.csv"]
    assert keys(store, "in/**.csv") == ["in/a.csv", "in/x/b.csv", "in/x/y/c.csv"]
    assert keys(store, "in/x/**") == ["in/x/b.csv", "in/x/y/c.csv", "in/x/y/c.txt"]


def test_two_stars_inside_a_part_do_not_match_the_slash_after_them(store: ObjectStore) -> None:
    fill(store, "ab", "a1/b", "a1/2/b")
    assert keys(store, "a**/b") == ["a1/2/b", "a1/b"]


def test_no_object_name_breaks_the_listing(store: ObjectStore) -> None:
    """Whoever may land objects chooses their names: this one kept a backtracking pattern busy for minutes."""
    fill(store, "_" * 250, "a_b_c_d_e_f.json")
    began = time.process_time()
    assert keys(store, "*_*_*_*_*_*.json") == ["a_b_c_d_e_f.json"]
    assert time.process_time() - began < 0.5


def test_every_other_character_is_literal(store: ObjectStore) -> None:
    fill(store, "in/a[1].csv", "in/a1.csv", "in/a?.csv", "in/a.csv", "in/axcsv", "in/a(1|2)+.csv")
    assert keys(store, "in/a[1].csv") == ["in/a[1].csv"]
    assert keys(store, "in/a?.csv") == ["in/a?.csv"]
    assert keys(store, "in/*.csv") == ["in/a(1|2)+.csv", "in/a.csv", "in/a1.csv", "in/a?.csv", "in/a[1].csv"]


def test_hidden_and_empty_objects_are_skipped_and_counted(store: ObjectStore) -> None:
    """Names that begin with `_` or `.`, and empty objects, are skipped and counted."""
    fill(store, "in/a.csv", "in/_tmp/b.csv", "in/.c.csv", "in/d/_e.csv", "in/f_g.csv", "in/.txt")
    store.put("in/empty.csv", b"")
    store.put("in/_empty.csv", b"")
    listing = list_objects(store, "in/**/*.csv")
    assert [obj.key for obj in listing.objects] == ["in/a.csv", "in/f_g.csv"]
    assert (listing.skipped_hidden, len(listing.empty)) == (4, 1)


def test_a_name_that_the_pattern_spells_out_is_not_hidden(store: ObjectStore) -> None:
    fill(store, "_raw/a.csv", "_raw/_b.csv", "_raw/x/_c.csv")
    assert keys(store, "_raw/*.csv") == ["_raw/a.csv"]
    assert keys(store, "_raw/_*.csv") == ["_raw/_b.csv"]
    assert keys(store, "_raw/_**.csv") == ["_raw/_b.csv"]


def test_a_missing_prefix_is_an_empty_listing(store: ObjectStore) -> None:
    assert list_objects(store, "nothing/**/*.csv").objects == ()


def test_a_listing_has_the_version_to_read(store: ObjectStore) -> None:
    stat = store.put("a.csv", b"12345")
    (obj,) = list_objects(store, "*.csv").objects
    assert (obj.key, obj.etag, obj.size, obj.last_modified_ms) == ("a.csv", stat.etag, 5, stat.last_modified_ms)


@pytest.mark.parametrize(
    ("path", "root", "pattern"),
    [
        ("s3://landing/flights/**/*.csv", "s3://landing", "flights/**/*.csv"),
        ("s3://landing/*.csv", "s3://landing", "*.csv"),
        ("file:///data/in/x*/*.csv", "file:///data/in", "x*/*.csv"),
        ("file:///data/in/a.csv", "file:///data/in", "a.csv"),
        ("file:///my data/in/*.csv", "file:///my data/in", "*.csv"),
        ("file:///my%20data/in%20x/a%20b*.csv", "file:///my%20data/in%20x", "a b*.csv"),
    ],
)
def test_a_path_is_split_into_a_store_and_a_pattern(path: str, root: str, pattern: str) -> None:
    assert split_path(path) == (root, pattern)


@pytest.mark.parametrize("path", ["landing/*.csv", "s3://landing", "s3://landing/x/", "file://x/*.csv", "gs://b/*.csv"])
def test_a_path_that_names_no_objects_is_refused(path: str) -> None:
    with wording.raises(InvalidRequest):
        split_path(path)


def test_a_bad_record_can_be_pickled() -> None:
    bad = BadRecord("in/a.csv", 3, "delay", "x" * 500, "is not an int32")
    again = pickle.loads(pickle.dumps(bad))
    assert str(again) == str(bad)
    wording.matches("bad_rows", again.reason)
    assert (again.key, again.line, again.column) == ("in/a.csv", 3, "delay")
    assert again.value is not None and len(again.value) == 80
    assert str(bad).startswith("in/a.csv, line 3, column delay: 'xxx")
