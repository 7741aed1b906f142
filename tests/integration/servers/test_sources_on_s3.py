"""A source over a real S3 server: landed, listed, planned by etag, read in that version only."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import (
    CommitConflict,
    EnvironmentUnusable,
    InvalidRequest,
    NotFound,
    SourceChanged,
)
from milepost.jobspec.job import FileSourceSpec
from milepost.jobspec.load.load import load_job
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sources.contract import ObjectPart, SourceObject, whole_object
from milepost.sources.formats import build_reader
from milepost.sources.kernel import streams
from milepost.sources.planning.consumed import ConsumedSet, append, load
from milepost.sources.planning.listing import Listing, list_objects, split_path
from milepost.sources.planning.plan import SourcePlan, SourceRules, plan_source
from milepost.storage.open import open_store
from milepost.storage.s3.probe import probe_versioned_reads
from milepost_testkit import wording
from milepost_testkit.jobs.flights import flights
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.servers.s3_servers import Ministack

SPEC = load_job(REPOSITORY / "config" / "flights.yaml").spec.sources["flights"]
PATTERN = split_path(SPEC.path)[1]


@pytest.fixture
def landing(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in ministack.environment().items():
        monkeypatch.setenv(name, value)
    return open_store(StoreConfig(f"s3://{ministack.new_bucket()}", ministack.endpoint_url))


def plan(listing: Listing, consumed: ConsumedSet, **rules: Any) -> SourcePlan:
    return plan_source("flights", listing, consumed, SourceRules(**rules), 0)


@pytest.mark.deep
def test_landed_flights_are_planned_and_read_epoch_by_epoch(landing: ObjectStore, tmp_path: Path) -> None:
    job = open_store(StoreConfig(f"file://{tmp_path}"))
    reader = build_reader("flights", SPEC)
    facts = flights.facts(range(1, 19))
    handles: tuple[ObjectHandle, ...] = ()
    consumed = ConsumedSet.empty()
    read: dict[str, int] = {}
    for epoch in range(1, 10):
        flights.land(landing, range(2 * epoch - 1, 2 * epoch + 1))
        planned = plan(list_objects(landing, PATTERN), consumed, max_files=4)
        for obj in planned.objects:
            read[obj.key] = sum(batch.num_rows for batch in reader.read_part(landing, whole_object(obj)))
        handles = append(job, f"chk-{epoch}/flights-", handles, planned.consumed, epoch)[0]
        consumed = load(job, handles)
    assert read == {key: fact.rows for key, fact in facts.items()}
    assert len(list_objects(landing, PATTERN).empty) == 1
    flights.land(landing, range(1, 19))
    assert not plan(list_objects(landing, PATTERN), consumed).consumed


def test_an_object_that_changed_or_vanished_is_noticed(landing: ObjectStore, tmp_path: Path) -> None:
    """Issue: an object changed or vanished, both cases."""
    job = open_store(StoreConfig(f"file://{tmp_path}"))
    flights.land(landing, [1, 2])
    first, second = list_objects(landing, PATTERN).objects
    reader = build_reader("flights", SPEC)
    landing.put(first.key, flights.day_body(3))
    landing.delete([second.key])
    with pytest.raises(CommitConflict):
        list(reader.read_part(landing, whole_object(first)))
    with pytest.raises(NotFound):
        list(reader.read_part(landing, whole_object(second)))
    consumed = load(job, append(job, "chk-1/flights-", (), [first, second], 1)[0])
    with pytest.raises(SourceChanged, match=first.key):
        plan(list_objects(landing, PATTERN), consumed)


def test_parts_of_an_object_are_ranges_of_one_version(landing: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_WHOLE_READ_BYTES", 0)
    body = "k,t\n" + "".join(f"{number},text\n" for number in range(10_000))
    stat = landing.put("a.csv", body.encode())
    obj = SourceObject(stat.key, stat.etag, stat.size, stat.last_modified_ms)
    spec = {"format": "csv", "path": "*", "schema": {"k": "int64"}, "options": {"newlines_in_values": False}}
    reader = build_reader("s", FileSourceSpec.model_validate(spec))
    cuts = [0, obj.size // 3, obj.size // 2, obj.size]
    parts = [ObjectPart(obj, start, stop) for start, stop in pairwise(cuts)]
    found = [row["k"] for part in parts for batch in reader.read_part(landing, part) for row in batch.to_pylist()]
    assert found == list(range(10_000))
    landing.put("a.csv", body.replace("text", "TEXT").encode())
    for part in parts:
        with pytest.raises(CommitConflict):
            list(reader.read_part(landing, part))


def test_a_missing_bucket_is_reported_as_missing(landing: ObjectStore) -> None:
    nowhere = open_store(StoreConfig("s3://no-such-bucket-here", landing.config.endpoint_url))
    with pytest.raises(EnvironmentUnusable, match="no-such-bucket-here"):
        list_objects(nowhere, PATTERN)
    with pytest.raises(EnvironmentUnusable, match="no-such-bucket-here"):
        flights.land(nowhere, [1])


def test_a_name_that_cannot_be_read_is_refused_before_anything_is_planned(
    landing: ObjectStore, ministack: Ministack
) -> None:
    bucket = landing.config.url.removeprefix("s3://")
    ministack.client.put_object(Bucket=bucket, Key="flights//a.csv", Body=b"x")
    listing = list_objects(landing, PATTERN)
    with wording.raises(InvalidRequest) as refused:
        plan(listing, ConsumedSet.empty())
    assert "flights//a.csv" in str(refused.value)
    assert [bad.name for bad in plan(listing, ConsumedSet.empty(), on_bad_name="skip").bad_names] == ["flights//a.csv"]
    assert probe_versioned_reads(landing, "") is None, "there is no object whose version could be asked for"
