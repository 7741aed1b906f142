"""How the sink conformance tests open a Parquet sink, on whatever store a subclass names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

from milepost.dataflow.sinks.build import build_sink
from milepost.dataflow.sinks.parquet import ParquetSink
from milepost.protocol.records.object_store import StoreConfig
from milepost.spec.job.spec import SinkSpec
from milepost.storage.open import open_store
from tests.conformance.sink import SinkTests
from tests.conformance.sink_timelines import SinkSwitchTests
from tests.harness.stores.hooked_store import HookedStore


class ParquetSinkTests(SinkSwitchTests, SinkTests):
    """Subclasses give the mode and the store; heads are the only objects that are created only if absent."""

    mode: str

    @abstractmethod
    def store_config(self, root: Path) -> StoreConfig:
        """The sink's own root, one per test directory."""

    def open_sink(
        self,
        root: Path,
        *,
        job: str = "job",
        name: str = "table",
        before_publish: Callable[[], None] = lambda: None,
        after_publish: Callable[[], None] = lambda: None,
    ) -> ParquetSink:
        store = HookedStore(
            open_store(self.store_config(root)),
            before=lambda operation, key: before_publish() if operation == "create" else None,
            after=lambda operation, key: after_publish() if operation == "create" else None,
        )
        spec = SinkSpec(name=name, input="rows", format="parquet", path="lake", mode=self.mode)
        return build_sink(spec, job=job, key=("k",), store=store)
