"""The generator: the same seed gives the same events however they are landed, and they fit together."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.jobspec.job.sources.nexmark_source import NEXMARK_COLUMNS
from milepost.language import arrow_schema
from milepost.sources.landed.contract import LandedSource, Reached
from milepost.sources.landed.nexmark_source import open_nexmark_source
from milepost_testkit import profiles


def opened(
    events: str, *, seed: int = 7, total: int | None = None, max_rows: int = 1_000, max_bytes: int = 10**9
) -> LandedSource:
    schema = arrow_schema(NEXMARK_COLUMNS[events])
    return open_nexmark_source(
        {"format": "nexmark"},
        schema,
        events=events,
        seed=seed,
        events_per_second=100,
        total=total,
        max_rows=max_rows,
        max_bytes=max_bytes,
    )


def records(events: str, total: int, **settings: Any) -> list[pa.Table]:
    """The rows of each record, landed by a source of its own."""
    found: list[pa.Table] = []
    position = opened(events).initial_position()
    while (pull := opened(events, total=total, **settings).next_pull(position)) is not None:
        *batches, reached = (item for split in pull.splits for item in opened(events, **settings).read(split))
        assert isinstance(reached, Reached)
        found.append(pa.Table.from_batches(batches))
        position = reached.position
    return found


def landed(events: str, total: int, **settings: Any) -> pa.Table:
    """All rows of a source, landed record by record."""
    return pa.concat_tables(records(events, total, **settings)).combine_chunks()


@pytest.mark.long
@profiles.examples(share=0.5)
@given(st.sampled_from(sorted(NEXMARK_COLUMNS)), st.integers(1, 400), st.integers(1, 120), st.integers(1, 20_000))
def test_the_rows_do_not_depend_on_how_they_are_cut_into_records(
    events: str, total: int, max_rows: int, max_bytes: int
) -> None:
    cut = records(events, total, max_rows=max_rows, max_bytes=max_bytes)
    assert pa.concat_tables(cut).combine_chunks().equals(landed(events, total))
    assert all(table.num_rows <= max_rows for table in cut)
    assert all(table.nbytes <= max_bytes or table.num_rows == 1 for table in cut)


@pytest.mark.parametrize("events", sorted(NEXMARK_COLUMNS))
def test_another_seed_gives_other_events(events: str) -> None:
    assert not landed(events, 50, seed=1).equals(landed(events, 50, seed=2))


def test_without_a_total_a_landing_is_one_record() -> None:
    source = opened("bid", max_rows=10)
    assert source.next_pull({"next": 20}) is not None
    assert source.next_pull({"next": 30}) is None


def test_a_bid_names_an_auction_and_a_bidder_that_exist_before_it() -> None:
    bids, auctions, persons = landed("bid", 4_600), landed("auction", 300), landed("person", 100)
    with duckdb.connect() as database:
        for name, table in (("bids", bids), ("auctions", auctions), ("persons", persons)):
            database.register(name, table)
        broken = database.sql(
            "SELECT bids.* FROM bids"
            " LEFT JOIN auctions ON auctions.id = bids.auction AND auctions.event_time < bids.event_time"
            " LEFT JOIN persons ON persons.id = bids.bidder AND persons.event_time < bids.event_time"
            " WHERE auctions.id IS NULL OR persons.id IS NULL"
        ).fetchall()
        sellers = database.sql("SELECT * FROM auctions ANTI JOIN persons ON persons.id = auctions.seller").fetchall()
    assert (broken, sellers, bids.num_rows) == ([], [], 4_600)


def test_event_times_advance_at_the_rate_over_all_kinds() -> None:
    persons = landed("person", 3)["event_time"].to_pylist()
    assert [(at - persons[0]).total_seconds() for at in persons] == [0.0, 0.5, 1.0]  # of 50 events, one is a person
