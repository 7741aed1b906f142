"""Random histories of a table and of its landings: each appended row is landed once, in the order of the commits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from milepost.errors import CommitConflict
from milepost.jobmaster.landing.lander import Lander
from milepost.jobspec.job import CatalogSpec
from milepost.language import parse_type
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.sources.landed import TableReading, open_delta_source, open_iceberg_source
from milepost.sources.landed.delta.delta_source import DeltaSource
from milepost.sources.landed.iceberg.iceberg_source import IcebergSource
from milepost.storage.log import SourceLog
from milepost.storage.open import open_store
from milepost_testkit import profiles
from milepost_testkit.formats.iceberg_writers import compact
from milepost_testkit.jobs.landed_table import AFTER, BEFORE, WHOLE, Killed, KilledLog, TableLog

pytestmark = pytest.mark.deep

TYPES = {"k": parse_type("int64"), "p": parse_type("int64")}
ROWS = pa.schema([("k", pa.int64()), ("p", pa.int64())])
RIVALS = "two at once"

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.sampled_from([WHOLE, BEFORE, AFTER, RIVALS]), st.sampled_from([1, 1_500, 1 << 30])),
    ),
    min_size=3,
    max_size=9,
)


class DeltaOrders:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "orders"
        write_deltalake(self.folder, ROWS.empty_table(), partition_by=["p"])

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self.folder, rows, mode="append", partition_by=["p"])

    def compact(self) -> None:
        DeltaTable(self.folder).optimize.compact()

    def open(self, **options: Any) -> DeltaSource:
        url = file_url(self.folder)
        return open_delta_source(TableReading("orders", TYPES, None, **options), url, open_store(StoreConfig(url)))


class IcebergOrders:
    def __init__(self, folder: Path) -> None:
        self.uri = f"sqlite:///{folder}/catalog.db"
        catalog = SqlCatalog("milepost", uri=self.uri, warehouse=f"file://{folder}")
        catalog.create_namespace("shop")
        columns = Schema(NestedField(1, "k", LongType()), NestedField(2, "p", LongType()))
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
        self.table = catalog.create_table("shop.orders", columns, partition_spec=spec)

    def append(self, rows: pa.Table) -> None:
        self.table.append(rows)

    def compact(self) -> None:
        if self.table.scan().count():
            compact(self.table)
            self.table.refresh()

    def open(self, **options: Any) -> IcebergSource:
        catalog = CatalogSpec(type="sql", uri=self.uri)
        return open_iceberg_source(
            TableReading("orders", TYPES, None, **options),
            catalog,
            "shop.orders",
            "main",
            lambda url: open_store(StoreConfig(url)),
            StoreConfig("file:///"),
        )


def land(log: TableLog, fate: str, max_bytes: int) -> None:
    """Land until the end, or until the landing is killed."""
    killed = KilledLog(log.log.store, "orders")
    killed.fate = fate
    source = log.opened(start="earliest", max_bytes=max_bytes)
    if fate == RIVALS and log.log.newest() is not None:
        rival = Lander(SourceLog(log.log.store, "orders"), log.opened(start="earliest", max_bytes=max_bytes), "job")
        read, landings = source.read, [rival.land]

        def read_after_rival(split: Any) -> Any:
            if landings:
                landings.pop()()
            return read(split)

        source.read = read_after_rival  # type: ignore[method-assign]
    with suppress(Killed, CommitConflict):
        Lander(killed, source, "job").land()


@pytest.mark.parametrize("by_reference", [False, True], ids=["copy", "reference"])
@pytest.mark.parametrize("kind", [DeltaOrders, IcebergOrders])
@profiles.examples(share=0.2)
@given(history=steps)
def test_each_appended_row_is_landed_once_in_the_order_of_the_commits(
    kind: Callable[[Path], DeltaOrders | IcebergOrders], by_reference: bool, history: list[tuple[str, int]]
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableLog, "by_reference", by_reference)
        table = kind(Path(folder))
        log, commits, first = TableLog(table.open), list[set[int]](), None
        for what, size in history:
            if what == "append":
                keys = range(sum(map(len, commits)), sum(map(len, commits)) + 2 * size)
                table.append(pa.table({"k": [*keys], "p": [key % size for key in keys]}, ROWS))
                commits.append({*keys})
            elif what == "compact":
                table.compact()
            else:
                first = len(commits) if first is None else first
                land(log, what, size)
        land(log, WHOLE, 1 << 30)
        landed = log.column("k")
        assert sorted(landed) == list(range(sum(map(len, commits))))
        followed = commits[first:] if first is not None else []
        rest = landed[len(landed) - sum(map(len, followed)) :]
        for commit in followed:
            assert {rest.pop(0) for _ in commit} == commit, "commits follow each other"
