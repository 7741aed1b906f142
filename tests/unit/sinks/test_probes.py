"""`doctor` asks a table's format what its commits rely on, and leaves no trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from milepost.errors import EnvironmentUnusable
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.formats.delta import delta_probe
from milepost_testkit import wording
from milepost_testkit.formats.delta_table import DeltaTableUnderTest
from tests.conformance.sinks.formats.delta_sink import DeltaCase
from tests.conformance.sinks.formats.iceberg_sink import IcebergCase
from tests.conformance.sinks.formats.local_cases import LocalCase


def keys(store: ObjectStore) -> list[str]:
    return sorted(stat.key for stat in store.list(""))


class TestDelta(LocalCase, DeltaCase):
    def test_of_two_racing_commits_one_wins_and_nothing_stays(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        job.go_on(1)
        before = keys(self.table_store(tmp_path))
        said = job.sink.probe()
        wording.matches("probe", said)
        assert "VACUUM" in said
        assert keys(self.table_store(tmp_path)) == before

    def test_before_the_first_epoch_it_is_checked_too(self, tmp_path: Path) -> None:
        wording.matches("probe", self.open_sink(tmp_path).probe())
        assert keys(self.table_store(tmp_path)) == []

    def test_a_place_where_both_win_is_reported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As if the store forgot its writes: one racer's version is gone before the other's commit."""
        store = self.table_store(tmp_path)

        def both_won(place: object, location: object) -> int:
            return 2

        monkeypatch.setattr(delta_probe, "_race", both_won)
        with wording.raises(EnvironmentUnusable):
            self.open_sink(tmp_path).probe()
        assert keys(store) == []

    def test_a_table_that_another_made_is_untouched(self, tmp_path: Path) -> None:
        table = DeltaTableUnderTest(self.table_store(tmp_path))
        table.append_by_others(1)
        version = DeltaTable(str(tmp_path / "a table")).version()
        wording.matches("probe", self.table_format(table.store).probe())
        assert DeltaTable(str(tmp_path / "a table")).version() == version and table.keys() == [1]


class TestIceberg(LocalCase, IcebergCase):
    def test_the_namespace_is_looked_for_and_not_made(self, tmp_path: Path) -> None:
        sink = self.open_sink(tmp_path)
        wording.matches("probe", sink.probe())
        wording.matches("probe", sink.probe())
        self.begin(tmp_path).go_on(1)
        wording.matches("probe", sink.probe())
