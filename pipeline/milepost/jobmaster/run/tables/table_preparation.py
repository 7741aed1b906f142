"""Prepare the commits of an epoch's tables while its gate judges, before the commit point (DESIGN 7).

Each table is read while the data plane runs. Once the tasks have staged their files, its new contents are computed and
recorded below the token's own prefix, while the gate judges. No table is changed before the gate has passed the epoch:
a preparation that must change one waits for the gate. For a table in a directory, all of it waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.checkpoint_metadata import write_contents
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.protocol.records import TimelineRole
from milepost.sinks import PreparedTable, TableRead
from milepost.storage.concurrency import parallel_map, prefetch
from milepost.tables.records import Committable, TableContents

_FRESH_S = 5.0
"""A read of a table is reused for this long. Its commit is a compare-and-set on the state that was read."""


@dataclass(frozen=True, slots=True)
class _TableRead:
    read: Callable[[], TableRead]
    started_s: float


class Preparation:
    """The preparation of all tables of one epoch.

    Create it before the tasks run, and call `begin` after they have finished. On a fork the tables are not read: they
    follow as a whole, later.
    """

    def __init__(self, context: JobContext, opened: OpenedEpoch) -> None:
        self._context, self._opened = context, opened
        self._is_live = opened.timeline.role is TimelineRole.LIVE
        self._reads = {sink.name: self._start_read(sink.name) for sink in context.spec.sinks} if self._is_live else {}
        self._passed: Future[None] = Future()

    @contextmanager
    def begin(self, committables: Mapping[str, Committable]) -> Iterator[Callable[[], dict[str, TableContents]]]:
        """Prepare in the background while the block runs. Work that still waits for the gate at its end is cancelled.

        Yields: a function to call once the gate has passed the epoch. It returns the contents of each table after the
            epoch, by sink. Raises InvalidRequest, StateCorrupt, CommitConflict, StoreUnavailable.
        """
        for name, read in self._reads.items():
            if time.monotonic() - read.started_s > _FRESH_S:
                self._reads[name] = self._start_read(name)
        checks = [
            prefetch(self._context.store, partial(self._context.sink(name).check_staged, committable), "staged-files")
            for name, committable in committables.items()
        ]
        wait_for_tables = prefetch(self._context.store, partial(self._tables, committables), "tables")

        def pass_gate() -> dict[str, TableContents]:
            self._passed.set_result(None)
            for wait_for_check in checks:
                wait_for_check()
            return wait_for_tables()

        try:
            yield pass_gate
        finally:
            self._passed.cancel()

    def _start_read(self, name: str) -> _TableRead:
        return _TableRead(prefetch(self._context.store, self._context.sink(name).read_table, "table"), time.monotonic())

    def _tables(self, committables: Mapping[str, Committable]) -> dict[str, TableContents]:
        contents = parallel_map(
            self._context.store, lambda name: self._contents(name, committables[name]), committables
        )
        return dict(zip(committables, contents, strict=True))

    def _contents(self, name: str, committable: Committable) -> TableContents:
        context, pending, base = self._context, self._opened.pending, self._opened.base
        before = None if base is None else base.tables.get(name)
        place = context.sink_address(name), context.sink_location(name)
        table = self._prepare(name, committable, before)
        return write_contents(context.table_records, name, place, (pending.checkpoint_id, pending.token), before, table)

    def _prepare(self, name: str, committable: Committable, before: TableContents | None) -> PreparedTable:
        sink = self._context.sink(name)
        if not self._is_live:
            return sink.prepare_fork(committable, before)
        return sink.prepare(
            committable,
            before,
            waits=self._opened.waits(name),
            read_table=self._reads[name].read,
            before_change=self._passed.result,
        )
