"""How the tests of sinks open one, play the manifest's part for it, and look at its table; for any format and store."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from milepost.operators.base.edges import DELETED_COLUMN
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sinks.contract import Sink, SinkMode
from milepost.sinks.parquet_files.partitions import PartitionBy
from milepost.sinks.table.table_sink import TableSink
from milepost.sinks.table_format import TableFormat
from milepost.storage.open import open_store
from milepost.tables.records.committables import Committable
from milepost.tables.records.contents import ContentsRecords
from milepost.tables.records.marks import MarkRecords
from milepost.tables.records.reservation import RESERVATION
from milepost_testkit.formats.hooked_format import HookedFormat
from milepost_testkit.formats.played_manifest import Completed, PlayedManifest
from milepost_testkit.stores.hooked_store import HookedStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
WAIT_S = 240
LIFE = "0" * 32

format_decides = pytest.mark.format_decides
"""Marks a test of the contract whose outcome depends on the table's format.

That is atomicity, compare-and-set, commits of other writers and types. The rest of the contract is our own code above
the format: two local formats run it in `make test`, every other one in `make test-all`.
"""

Pairs = list[tuple[int, str]]
Hook = Callable[[str, str], None]
"""Called with (operation, subject); what it raises, the caller gets.

``job.create``, ``table.put``, … of the two stores, with the key; ``format.open``, ``format.create``, ``format.claim``,
``format.widen`` and ``format.commit`` of the table's log.
"""


def nothing(operation: str, subject: str) -> None:
    """Let every operation pass."""


def at_commit(act: Callable[[], None]) -> Hook:
    """Call this at the one step that makes a move visible."""
    return lambda operation, subject: act() if operation == "format.commit" else None


class Stall:
    """A step at which every caller blocks until it is released."""

    def __init__(self) -> None:
        self._reached, self._released = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        assert self._released.wait(WAIT_S)

    def wait_until_reached(self) -> None:
        assert self._reached.wait(WAIT_S)

    def release(self) -> None:
        self._released.set()


def meeting(threads: int) -> Callable[[], None]:
    """Return a step at which so many threads wait for one another, each when it comes to it first."""
    together, arrived = threading.Barrier(threads), threading.local()

    def meet() -> None:
        if not getattr(arrived, "once", False):
            arrived.once = True
            together.wait(WAIT_S)

    return meet


def rows(*pairs: tuple[object, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    """A table of (k, v, …) rows."""
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(zip(*pairs, strict=True), schema, strict=True)],
        schema=schema,
    )


def deleting(table: pa.Table, keys: Collection[object]) -> pa.Table:
    """Return a table whose rows may be deletes: those of these keys are, and have null in the other columns."""
    gone = pc.is_in(table.column("k"), value_set=pa.array(keys, table.schema.field("k").type))
    columns = [
        table.column(field.name)
        if field.name == "k"
        else pc.if_else(gone, pa.scalar(None, field.type), table[field.name])
        for field in table.schema
    ]
    return pa.table([*columns, gone], schema=table.schema.append(pa.field(DELETED_COLUMN, pa.bool_(), nullable=False)))


@dataclass(eq=False)
class Story:
    """A job with one table: its sink, and the manifest that is played for it."""

    sink: Sink
    manifest: PlayedManifest

    def staged(self, *tables: pa.Table, schema: pa.Schema = SCHEMA, token: int = 1) -> Committable:
        return self.manifest.staged(self.sink, *tables, schema=schema, token=token)

    def complete(self, *tables: pa.Table, schema: pa.Schema = SCHEMA, waits: bool = False) -> Completed:
        """A checkpoint passes its commit point, without notifying the table yet."""
        return self.manifest.completed(self.sink, self.staged(*tables, schema=schema), waits=waits)

    def publish(self, *tables: pa.Table, schema: pa.Schema = SCHEMA) -> Completed:
        """The same, and the table moves; that must be this call's own doing."""
        done = self.complete(*tables, schema=schema)
        assert self.sink.move(done.target) is True
        return done

    def fork(self, base: Completed | None, *tables: pa.Table, fork: str = "fork") -> Completed:
        staged = self.manifest.staged(self.sink, *tables, schema=SCHEMA, forked=True, on=base)
        return self.manifest.completed_on_fork(self.sink, staged, base, fork)

    def go_on(self, count: int) -> list[Completed]:
        """Publish so many checkpoints, each with one row: its id and its timeline."""
        return [self.publish(self.row()) for _ in range(count)]

    def row(self, timeline: str | None = None) -> pa.Table:
        return rows((self.manifest.next_id, timeline or self.manifest.live))

    def back_to(self, to: Completed | None) -> Completed | None:
        """A rollback that the table follows."""
        assert self.sink.move(self.manifest.switched(to)) is True
        return to


class SinkCase:
    """Subclasses say where a table is, and what keeps its log.

    Attributes:
        format_name: as in the spec. whole_contract: whether `make test` runs all of the contract for it, and not only
            what the format decides.
    """

    mode = SinkMode.APPEND
    whole_contract = False
    format_name: str
    partition: PartitionBy | None = None

    @abstractmethod
    def store_config(self, root: Path, part: str) -> StoreConfig:
        """Return the place of one part of a test's world: ``table``, or the storage of a job, ``job`` or ``copy``."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns by which the table is partitioned."""
        return () if self.partition is None else self.partition.columns

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of the table."""
        return ("k",) if self.mode is SinkMode.UPSERT else ()

    @abstractmethod
    def table_format(self, store: ObjectStore) -> TableFormat:
        """Return the format of the table at a store's root."""

    def drop(self, root: Path) -> None:
        """Drop the table, as a hand would, but leave its data files lying there."""
        store = self.table_store(root)
        keys = [stat.key for stat in store.list("")]
        log = self.table_format(store).log_prefix
        store.delete([key for key in keys if key == RESERVATION or key.startswith(log)])

    def published(self, root: Path) -> Pairs:
        """Return the table's rows, sorted, as a process that has just come up reads them."""
        sink = self.open_sink(root)
        position = sink.position()
        assert position.is_known
        if position.contents is None:
            return []
        files = {file.key: file.size for file in sink.files(position.contents)}
        table = self.table_format(self.table_store(root)).open()
        live = table.live_files() if table is not None else None
        assert live is None or files.items() <= live.items()
        return pairs(sink.read(position.contents, verify=True))

    def open_sink(
        self,
        root: Path,
        *,
        job: str = "job",
        name: str = "table",
        storage: str = "job",
        before: Hook = nothing,
        after: Hook = nothing,
        adopts: bool = False,
        life: str = LIFE,
    ) -> Sink:
        """Return a new handle, as another process has it, with hooks around all that it asks.

        Args:
            storage: of the job: its marks, and the records of its contents.
        """

        def hooks(place: str) -> tuple[Hook, Hook]:
            return (
                lambda operation, subject: before(f"{place}.{operation}", subject),
                lambda operation, subject: after(f"{place}.{operation}", subject),
            )

        job_store = HookedStore(self.job_store(root, storage), *hooks("job"))
        store = HookedStore(self.table_store(root), *hooks("table"))
        return TableSink(
            name,
            job=job,
            mode=self.mode,
            key=self.key,
            store=store,
            format_name=self.format_name,
            by_buckets=self.mode is SinkMode.UPSERT and self.format_name in ("delta", "iceberg"),
            table_format=HookedFormat(self.table_format(store), *hooks("format")),
            marks=MarkRecords(job_store, name),
            records=ContentsRecords(job_store),
            identity=lambda: life,
            partition=self.partition,
            adopts=adopts,
        )

    def job_store(self, root: Path, storage: str = "job") -> ObjectStore:
        return open_store(self.store_config(root, storage))

    def table_store(self, root: Path) -> ObjectStore:
        return open_store(self.store_config(root, "table"))

    def begin(self, root: Path) -> Story:
        """Return a job's new table."""
        sink = self.open_sink(root)
        sink.reserve(LIFE)
        return Story(sink, PlayedManifest(self.job_store(root)))

    def copy_of(self, root: Path, story: Story) -> Story:
        """Return a copy of the job, storage and all, that has the same table."""
        source, target = self.job_store(root), self.job_store(root, "copy")
        for stat in source.list(""):
            target.put(stat.key, source.get(stat.key))
        manifest = PlayedManifest(target)
        was = story.manifest
        manifest.version, manifest.next_id = was.version, was.next_id
        manifest.live, manifest.head = was.live, was.head
        return Story(self.open_sink(root, storage="copy"), manifest)


def pairs(table: pa.Table) -> Pairs:
    """Return the first two columns of a table, sorted."""
    return sorted(zip(table.column("k").to_pylist(), table.column("v").to_pylist(), strict=True))
