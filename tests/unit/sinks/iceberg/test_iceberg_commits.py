"""A commit to a table in Iceberg lands once, whole, and only on what its handle showed (contract 4, 5, 6)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    ProtocolViolation,
    StoreUnavailable,
)
from milepost.tables.iceberg import catalogs
from milepost.tables.iceberg.catalog_errors import translated_errors
from milepost.tables.records.reservation import TableOwner
from milepost_testkit import wording
from milepost_testkit.formats.iceberg_lake import OWNER, SCHEMA, IcebergLake, lake_on_server, move
from milepost_testkit.proxies.holding_proxy import HoldingProxy
from milepost_testkit.proxies.recording_proxy import RecordingProxy
from milepost_testkit.proxies.repeating_proxy import RepeatingProxy
from milepost_testkit.proxies.tls_proxy import TlsProxy
from milepost_testkit.servers.s3_servers import SeaweedTables

_RACERS = 6


@pytest.mark.deep
def test_a_place_without_a_table_opens_as_none_and_nothing_is_written_there(any_lake: IcebergLake) -> None:
    """Nothing is contacted before a table is opened, and opening changes nothing."""
    assert any_lake.format.open() is None
    assert list(any_lake.store.list("")) == []


def test_a_new_table_is_its_first_makers_and_empty(any_lake: IcebergLake) -> None:
    """Contract 9: another's table, made meanwhile, is left alone."""
    any_lake.made()
    any_lake.format.create(TableOwner("other", "0002", "other"), pa.schema([("x", pa.int32())]))

    table = any_lake.opened()
    table.check(SCHEMA)

    assert (table.owner, table.number, table.write_id, table.schema) == (OWNER, 0, None, SCHEMA)
    assert (dict(table.live_files()), table.foreign_commits()) == ({}, ())


@pytest.mark.deep
@pytest.mark.parametrize("version", [1, 2])
def test_no_commit_changes_what_readers_must_support(lake: IcebergLake, version: int) -> None:
    """Whoever could read a table before it was adopted can read it after every commit of ours."""
    catalog = lake.made().foreign_table().catalog
    location = lake.foreign_table().location()
    catalog.drop_table(lake.config.table)
    columns = Schema(NestedField(1, "k", LongType()), NestedField(2, "v", StringType()))
    asked = {"format-version": str(version), "theirs": "yes"}
    catalog.create_table(lake.config.table, columns, location, properties=asked)

    def required() -> tuple[object, ...]:
        metadata = lake.foreign_table().metadata
        return metadata.format_version, metadata.partition_specs, metadata.sort_orders, metadata.properties["theirs"]

    before = required()
    lake.opened().claim(OWNER, lake.opened().missing_properties(OWNER), (0, "adopted"))
    assert (required(), lake.opened().owner) == (before, OWNER)
    lake.move(1, (lake.staged(1),))
    lake.opened().widen(pa.schema([*SCHEMA, ("at", pa.timestamp("us"))]))
    lake.move(2, (lake.staged(2),))
    lake.opened().claim(replace(OWNER, identity="0002"), {}, (3, "taken over"))
    assert required() == before and lake.keys() == [1, 2]


@pytest.mark.deep
def test_a_move_shows_its_number_its_write_id_and_exactly_its_files(any_lake: IcebergLake) -> None:
    """Contract 3, 4: the live files are the contents, and the number says whose."""
    first, second, third = any_lake.made().staged(1, 2), any_lake.staged(3), any_lake.staged(4)
    any_lake.move(3, (first, second))

    after = any_lake.move(5, (third,), (first,), write_id="ours")

    assert (after.number, after.write_id, after.foreign_commits()) == (5, "ours", ())
    assert after.live_files() == {second.key: second.size, third.key: third.size}
    assert any_lake.keys() == [3, 4]


@pytest.mark.long
def test_of_six_racers_on_one_look_one_wins(any_lake: IcebergLake) -> None:
    """Contract 5: a commit is a compare-and-set in the format's terms; also the first and one without rows."""
    any_lake.made()
    for number, rows in ((1, True), (2, False), (3, True)):
        handles = [replace(any_lake).opened() for _ in range(_RACERS)]
        files = [any_lake.staged(100 * number + racer) for racer in range(_RACERS)]
        start = Barrier(_RACERS)

        def race(racer: int) -> CheckpointError | None:
            added = (files[racer],) if rows else ()  # noqa: B023 - called within the turn
            start.wait()  # noqa: B023
            try:
                handles[racer].commit(move(number, added, write_id=f"racer-{number}-{racer}"))  # noqa: B023
            except CheckpointError as error:
                return error
            return None

        with ThreadPoolExecutor(_RACERS) as pool:
            ends = list(pool.map(race, range(_RACERS)))

        winners = [racer for racer, end in enumerate(ends) if end is None]
        after = any_lake.opened()
        assert len(winners) == 1, ends
        assert (after.number, after.write_id) == (number, f"racer-{number}-{winners[0]}")
        assert [files[racer].key in after.live_files() for racer in range(_RACERS)] == [
            rows and racer == winners[0] for racer in range(_RACERS)
        ]


def test_an_outdated_handle_is_refused_and_nothing_changes(any_lake: IcebergLake) -> None:
    """Contract 5: never out of order, not even after a commit without rows."""
    handle, late = any_lake.made().opened(), any_lake.staged(1)
    any_lake.move(1, write_id="first")

    with wording.raises(CommitConflict):
        try:
            handle.commit(move(2, (late,)))
        except CommitConflict as error:
            raise CommitConflict(error.hint) from error

    after = any_lake.opened()
    assert (after.number, after.write_id, dict(after.live_files())) == (1, "first", {})


def test_a_handle_from_before_a_column_was_added_is_refused(any_lake: IcebergLake) -> None:
    """Contract 11: columns are compared too, though no snapshot was made."""
    before = any_lake.made().opened()
    any_lake.opened().widen(pa.schema([*SCHEMA, ("w", pa.float64())]))

    with pytest.raises(CommitConflict):
        before.commit(move(1, (any_lake.staged(1),)))


def test_a_move_without_files_is_a_snapshot_of_its_own(any_lake: IcebergLake) -> None:
    """Contract 5: every move of the mark makes a snapshot; a change of properties alone compares nothing."""
    file = any_lake.made().staged(1)
    any_lake.move(1, (file,))
    before = any_lake.foreign_table().current_snapshot()

    after = any_lake.move(2, write_id="empty")

    now = any_lake.foreign_table().current_snapshot()
    assert before is not None and now is not None and now.parent_snapshot_id == before.snapshot_id
    assert (after.number, after.write_id, after.live_files()) == (2, "empty", {file.key: file.size})


@pytest.mark.deep
def test_the_same_files_go_back_and_forth(any_lake: IcebergLake) -> None:
    """Contract 6: a rollback is a commit forward, and what went may come again."""
    old, new = any_lake.made().staged(1), any_lake.staged(2)
    any_lake.move(1, (old,))
    for number in (2, 4, 6):
        assert any_lake.move(number, (new,), (old,)).live_files() == {new.key: new.size}
        assert any_lake.keys() == [2]
        assert any_lake.move(number + 1, (old,), (new,)).live_files() == {old.key: old.size}
        assert any_lake.keys() == [1]


@pytest.mark.parametrize("wrong", ["added twice", "removed unknown"])
def test_a_move_that_does_not_fit_the_live_files_changes_nothing(lake: IcebergLake, wrong: str) -> None:
    """Contract 5: a file is never live twice, and none is taken out that is not there."""
    file = lake.made().staged(1)
    lake.move(1, (file,))
    added, removed = ((file,), ()) if wrong == "added twice" else ((), (lake.staged(2),))

    with pytest.raises(ProtocolViolation):
        lake.opened().commit(move(2, added, removed))

    assert lake.opened().number == 1


def test_a_commit_that_the_transport_repeated_is_known_by_its_write_id(seaweed_tables: SeaweedTables) -> None:
    """Contract 5: our own success comes back as a conflict, and the files of the landed commit are still there."""
    proxy = RepeatingProxy(int(seaweed_tables.catalog_url.rpartition(":")[2]))
    with proxy:
        lake = lake_on_server(seaweed_tables, catalog_url=proxy.endpoint_url).made()
        handle, file = lake.opened(), lake.staged(1)
        proxy.repeat_when = lambda method, path: method == "POST" and "/tables/" in path

        with pytest.raises(CommitConflict):
            handle.commit(move(1, (file,), write_id="ours"))

        proxy.repeat_when = lambda method, path: False
        after = lake.opened()
        assert proxy.first_statuses == [200]
        assert (after.number, after.write_id, after.live_files()) == (1, "ours", {file.key: file.size})
        assert lake.keys() == [1]


def test_a_commit_whose_answer_was_lost_is_an_unknown_outcome(seaweed_tables: SeaweedTables) -> None:
    """Contract 5: any error of a commit is unknown until the table was read again."""
    with RecordingProxy(int(seaweed_tables.catalog_url.rpartition(":")[2])) as proxy:
        lake = lake_on_server(seaweed_tables, catalog_url=proxy.endpoint_url).made()
        handle, file = lake.opened(), lake.staged(1)
        proxy.reset_when = lambda method, path, headers: method == "POST" and "/tables/" in path

        with pytest.raises(CommitOutcomeUnknown):
            handle.commit(move(1, (file,), write_id="ours"))

        assert (lake.opened().write_id, lake.keys()) == ("ours", [1])


def test_what_broke_off_in_tls_is_an_unknown_outcome_of_a_commit_and_no_answer_to_a_reader(
    seaweed_tables: SeaweedTables, tmp_path: Path
) -> None:
    """Contract 5: the error was that no TLS connection could be made, for a commit that had landed over one."""
    with TlsProxy(int(seaweed_tables.catalog_url.rpartition(":")[2]), tmp_path) as proxy:
        lake = lake_on_server(seaweed_tables).made()
        handle, file = replace(lake).opened(), lake.staged(1)
        catalog = handle._table.catalog
        assert isinstance(catalog, RestCatalog)
        catalog.uri = proxy.endpoint_url
        with wording.raises(EnvironmentUnusable):
            handle.commit(move(1, (file,)))
        assert lake.opened().number == 0
        catalog._session.verify = str(proxy.certificate)
        proxy.reset_when = lambda method, path, headers: method == "GET"
        with wording.raises(StoreUnavailable), translated_errors(lake.config, "reading"):
            catalog.load_table(handle._table.name())
        proxy.reset_when = lambda method, path, headers: method == "POST" and "/tables/" in path

        with pytest.raises(CommitOutcomeUnknown):
            handle.commit(move(1, (file,), write_id="ours"))

        assert (lake.opened().write_id, lake.keys()) == ("ours", [1])


def test_a_commit_that_lands_after_its_timeout_is_recognized(
    seaweed_tables: SeaweedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract 5: a server that does not answer is not waited for indefinitely, and its result is found."""
    monkeypatch.setattr(catalogs, "_TIMEOUTS_S", (5, 0.5))
    proxy = HoldingProxy(int(seaweed_tables.catalog_url.rpartition(":")[2]))
    with proxy:
        lake = lake_on_server(seaweed_tables, catalog_url=proxy.endpoint_url).made()
        handle, file = lake.opened(), lake.staged(1)
        hold = proxy.hold(lambda method, path, body: method == "POST" and b"add-snapshot" in body)

        with pytest.raises(CommitOutcomeUnknown):
            handle.commit(move(1, (file,), write_id="ours"))
        before = lake.opened()
        hold.release()
        after = lake.opened()

        assert (before.number, before.version == handle.version) == (0, True)
        assert (after.number, after.write_id, lake.keys()) == (1, "ours", [1])
        assert after.version != handle.version


def test_a_table_that_was_dropped_and_made_anew_is_another(any_lake: IcebergLake) -> None:
    """Contract 9: the table's own id is compared at commit."""
    before, file = any_lake.made().opened(), any_lake.staged(1)
    any_lake.foreign_table().catalog.drop_table(any_lake.config.table)
    with pytest.raises(CommitConflict):
        before.commit(move(1, (file,)))

    assert any_lake.format.open() is None
    any_lake.made()
    with pytest.raises(CommitConflict):
        before.commit(move(1, (file,)))

    after = any_lake.opened()
    assert after.table_id != before.table_id
    assert (after.number, dict(after.live_files())) == (0, {})
