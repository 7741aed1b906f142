"""Retained checkpoints have tags, by which engines read a table as of them; those of others go with the next commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from milepost.sinks.contract import TableTarget
from milepost_testkit.formats.iceberg_lake import SCHEMA, IcebergLake
from tests.conformance.sinks.contract.case import rows
from tests.conformance.sinks.formats.iceberg_sink import IcebergCase
from tests.conformance.sinks.formats.local_cases import LocalCase


def tags(lake: IcebergLake) -> set[str]:
    return {name for name in lake.foreign_table().metadata.refs if name.startswith("milepost-")}


def rows_at(lake: IcebergLake, tag: str) -> list[int]:
    """Return the column `k` as another client reads it as of a tag."""
    table = lake.foreign_table()
    snapshot = table.snapshot_by_name(tag)
    assert snapshot is not None
    return sorted(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().column("k").to_pylist())


@pytest.mark.deep
def test_each_retained_checkpoint_is_read_by_its_tag(any_lake: IcebergLake) -> None:
    any_lake.made()
    files = [any_lake.staged(number) for number in (1, 2, 3)]
    for number, file in enumerate(files, start=1):
        retained = frozenset(range(1, number + 1))
        any_lake.move(number, (file,), checkpoint_id=number, retained=retained)
    assert {tag: rows_at(any_lake, tag) for tag in tags(any_lake)} == {
        "milepost-1": [1],
        "milepost-2": [1, 2],
        "milepost-3": [1, 2, 3],
    }


def test_a_subsumed_checkpoint_loses_its_tag_with_the_next_commit(any_lake: IcebergLake) -> None:
    any_lake.made()
    for number in (1, 2):
        any_lake.move(number, (any_lake.staged(number),), checkpoint_id=number, retained=frozenset({1, 2}))
    table = any_lake.foreign_table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_tag(snapshot.snapshot_id, "milepost-audit").commit()
    any_lake.move(3, checkpoint_id=3, retained=frozenset({2, 3}))
    assert tags(any_lake) == {"milepost-2", "milepost-3", "milepost-audit"}, "and none of others"
    any_lake.move(4, checkpoint_id=4)
    assert tags(any_lake) == {"milepost-2", "milepost-3", "milepost-audit"}, "nobody said what is retained"


def test_going_back_moves_the_checkpoints_tag_to_the_newest_snapshot(lake: IcebergLake) -> None:
    lake.made()
    first, second = lake.staged(1), lake.staged(2)
    lake.move(1, (first,), checkpoint_id=1, retained=frozenset({1}))
    lake.move(2, (second,), checkpoint_id=2, retained=frozenset({1, 2}))
    lake.move(3, (), (second,), checkpoint_id=1, retained=frozenset({1, 2}))
    metadata = lake.foreign_table().metadata
    assert metadata.refs["milepost-1"].snapshot_id == metadata.current_snapshot_id
    assert rows_at(lake, "milepost-2") == [1, 2], "it is retained, on its abandoned timeline"


@pytest.mark.deep
def test_maintenance_keeps_what_a_tag_names(lake: IcebergLake) -> None:
    lake.made()
    for number in range(1, 41):
        lake.move(number, (lake.staged(number),), checkpoint_id=number, retained=frozenset({7, number}))
    lake.format.maintain(retention_ms=0)
    assert tags(lake) == {"milepost-7", "milepost-40"}
    assert len(lake.foreign_table().metadata.snapshots) == 2
    assert rows_at(lake, "milepost-7") == list(range(1, 8))


class TestThroughTheSink(LocalCase, IcebergCase):
    @pytest.mark.parametrize("retained", [None, frozenset({1})])
    def test_what_the_manifest_retains_reaches_the_catalog(
        self, tmp_path: Path, retained: frozenset[int] | None
    ) -> None:
        job = self.begin(tmp_path)
        done = job.complete(rows((1, "a"), schema=pa.schema(SCHEMA)))
        target = TableTarget(done.version, "main", done.contents, 0, retained=retained)
        assert job.sink.move(target) is True
        loaded = self.table_format(self.table_store(tmp_path))._catalog().load_table(("shop", "table"))
        assert ("milepost-1" in loaded.metadata.refs) == (retained is not None)
