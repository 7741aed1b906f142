"""The landed flights: the whole year once, with the faults of a real feed, the same bytes every time."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.load.load import load_job
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sources.contract import whole_object
from milepost.sources.formats import build_reader
from milepost.sources.planning.listing import list_objects, split_path
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.jobs.flights import flights
from milepost_testkit.models.data.csv_oracle import expected_tables
from milepost_testkit.processes.processes import REPOSITORY
from scripts.demo import DAYS_PER_EPOCH


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreConfig(f"file://{tmp_path}/a landing"))


@pytest.fixture(scope="module")
def bodies() -> dict[int, list[bytes]]:
    """The rows of every day's object, without headers."""
    return {day: flights.day_body(day).splitlines()[1:] for day in range(1, flights.DAYS + 1)}


@pytest.mark.long
def test_the_year_has_every_flight_and_the_faults_of_the_feed_match_the_facts(
    bodies: dict[int, list[bytes]],
) -> None:
    counted = Counter(row for rows in bodies.values() for row in rows)
    facts = flights.facts(range(1, flights.DAYS + 1))
    assert len(counted) == 336_776
    assert sum(counted.values()) - len(counted) == sum(fact.duplicates for fact in facts.values())
    for day, rows in bodies.items():
        fact = facts[flights.day_key(day)]
        assert len(rows) == fact.rows == fact.own + fact.late + fact.duplicates
    assert sum(fact.duplicates for fact in facts.values()) == pytest.approx(336_776 * 0.01, rel=0.02)
    assert sum(fact.late for fact in facts.values()) == pytest.approx(336_776 * 0.002, rel=0.05)


def test_duplicates_come_from_the_day_before_and_late_rows_from_three_days_before(
    bodies: dict[int, list[bytes]],
) -> None:
    def day_of(row: bytes) -> int:
        year, month, day = map(int, row.split(b",")[:3])
        return (date(year, month, day) - date(2013, 1, 1)).days + 1

    for day in (4, 100, 365):
        fact = flights.facts([day])[flights.day_key(day)]
        before = set(bodies[day - 1])
        by_age = Counter(day - day_of(row) for row in bodies[day])
        assert by_age == {0: fact.own, 3: fact.late, 1: fact.duplicates}
        assert all(row in before for row in bodies[day] if day_of(row) == day - 1)


def test_an_object_depends_on_its_day_alone(store: ObjectStore, tmp_path: Path) -> None:
    flights.land(store, range(1, 15))
    other = open_store(StoreConfig(f"file://{tmp_path}/other"))
    for day in (14, 3, 10):
        flights.land(other, [day])
    for stat in other.list(""):
        assert other.get(stat.key) == store.get(stat.key)


def test_landing_again_changes_no_version(store: ObjectStore) -> None:
    """A rewritten object would be a changed one, and `on_change: fail` would stop the job."""
    keys = flights.land(store, range(15, 19))
    before = list(store.list(""))
    assert flights.land(store, range(15, 19)) == keys
    assert list(store.list("")) == before


def test_different_content_under_a_key_is_not_overwritten(store: ObjectStore) -> None:
    store.put(flights.day_key(2), b"mine")
    with wording.raises(InvalidRequest):
        flights.land(store, [2])
    assert store.get(flights.day_key(2)) == b"mine"


def test_one_object_is_out_of_name_order_and_one_is_empty(store: ObjectStore) -> None:
    flights.land(store, range(1, 9))
    seen = {obj.key for obj in list_objects(store, "flights/**/*.csv").objects}
    flights.land(store, range(9, 19))
    listing = list_objects(store, "flights/**/*.csv")
    new = [obj.key for obj in listing.objects if obj.key not in seen]
    assert new[0] == flights.OUT_OF_ORDER_KEY < max(seen)
    assert (len(listing.objects), len(listing.empty), listing.skipped_hidden) == (18, 1, 0)


def test_the_job_s_reader_reads_every_landed_row(store: ObjectStore) -> None:
    spec = load_job(REPOSITORY / "config" / "flights.yaml").spec.sources["flights"]
    flights.land(store, range(8, 12))
    reader = build_reader("flights", spec)
    objects = list_objects(store, split_path(spec.path)[1]).objects
    rows = {obj.key: sum(batch.num_rows for batch in reader.read_part(store, whole_object(obj))) for obj in objects}
    assert rows == {key: fact.rows for key, fact in flights.facts(range(8, 12)).items()}


def test_days_outside_the_year_are_refused(store: ObjectStore) -> None:
    with wording.raises(InvalidRequest):
        flights.land(store, [366])


@pytest.mark.deep
def test_the_script_lands_the_same_from_anywhere(store: ObjectStore, tmp_path: Path) -> None:
    command = [sys.executable, str(flights.PATH), "--root", store.config.url, "--days", "5-6"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("landed 2 objects under file://")
    keys = [stat.key for stat in store.list("")]
    assert keys == [flights.day_key(5), flights.day_key(6)]
    assert store.get(keys[0]) == flights.day_body(5)
    wrong = subprocess.run([*command[:-1], "366"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: days of 2013")


@pytest.mark.deep
def test_in_the_demo_only_what_landed_three_days_late_is_late(store: ObjectStore) -> None:
    """Its days land before the epoch that reads them. Landed together, day 10's name would leave out days 7 to 9."""
    spec = load_job(REPOSITORY / "config" / "flights.yaml").spec
    pattern = split_path(spec.sources["flights"].path)[1]
    epochs: list[list[str]] = []
    for first in range(1, 29, DAYS_PER_EPOCH):
        flights.land(store, range(first, first + DAYS_PER_EPOCH))
        seen = {key for keys in epochs for key in keys}
        epochs.append([obj.key for obj in list_objects(store, pattern).objects if obj.key not in seen])
    assert spec.sources["flights"].limits_per_epoch.max_files == DAYS_PER_EPOCH == len(epochs[2])
    three_days_late = sum(fact.late for fact in flights.facts(range(1, 29)).values())
    late = expected_tables(spec, store, epochs).late
    assert late["unique"] == 0 and 0 < late["hourly"] <= three_days_late
    together = sorted(key for keys in epochs for key in keys)
    at_once = [together[n : n + DAYS_PER_EPOCH] for n in range(0, len(together), DAYS_PER_EPOCH)]
    assert expected_tables(spec, store, at_once).late["hourly"] > 1_700
