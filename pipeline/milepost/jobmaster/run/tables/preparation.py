"""The tables of an epoch are prepared beside its gate, before the commit point (DESIGN 7).

A table is looked at beside the data plane. Once the tasks have staged their files, what the table is to consist of is
worked out, and its record put below the token's own prefix, while the gate judges. Nothing of a table is changed before
the gate has let the epoch pass: a preparation that has to change one waits for it. On a directory all is done then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.jobmaster.run.results import contents_after
from milepost.protocol.records.manifest_state import TimelineRole
from milepost.sinks.contract import Look, PreparedTable
from milepost.sinks.records.committables import Committable
from milepost.sinks.records.contents import TableContents
from milepost.storage.concurrency.background import prefetch
from milepost.storage.concurrency.parallel_map import parallel_map

_FRESH_S = 5.0
"""For so long a look at a table counts; its commit compares and sets on what is there then."""


@dataclass(frozen=True, slots=True)
class _BegunLook:
    look: Callable[[], Look]
    begun_s: float


class Preparation:
    """The preparation of all tables of one epoch: made before its tasks run; its work begins once they have.

    On a fork the tables themselves do not matter: it moves them as a whole, later.
    """

    def __init__(self, context: JobContext, opened: OpenedEpoch) -> None:
        self._context, self._opened = context, opened
        self._is_live = opened.timeline.role is TimelineRole.LIVE
        self._looks = {sink.name: self._look(sink.name) for sink in context.spec.sinks} if self._is_live else {}
        self._passed: Future[None] = Future()

    @contextmanager
    def begin(self, committables: Mapping[str, Committable]) -> Iterator[Callable[[], dict[str, TableContents]]]:
        """Prepare beside the block; what still waits for the gate at its end is given up.

        Yields: to be called once the gate has let the epoch pass: what each table consists of after it, by sink. Raises
            InvalidRequest, StateCorrupt, CommitConflict, StoreUnavailable.
        """
        for name, look in self._looks.items():
            if time.monotonic() - look.begun_s > _FRESH_S:
                self._looks[name] = self._look(name)
        checked = [
            prefetch(self._context.store, partial(self._context.sink(name).check_staged, one), "staged-files")
            for name, one in committables.items()
        ]
        prepared = prefetch(self._context.store, partial(self._tables, committables), "tables")

        def tables() -> dict[str, TableContents]:
            self._passed.set_result(None)
            for wait in checked:
                wait()
            return prepared()

        try:
            yield tables
        finally:
            self._passed.cancel()

    def _look(self, name: str) -> _BegunLook:
        return _BegunLook(prefetch(self._context.store, self._context.sink(name).look, "table"), time.monotonic())

    def _tables(self, committables: Mapping[str, Committable]) -> dict[str, TableContents]:
        contents = parallel_map(
            self._context.store, lambda name: self._contents(name, committables[name]), committables
        )
        return dict(zip(committables, contents, strict=True))

    def _contents(self, name: str, committable: Committable) -> TableContents:
        context, pending, base = self._context, self._opened.pending, self._opened.base
        before = None if base is None else base.tables.get(name)
        place = context.sink_address(name), context.sink_location(name)
        table = self._prepared(name, committable, before)
        return contents_after(context.table_records, name, place, (pending.checkpoint_id, pending.token), before, table)

    def _prepared(self, name: str, committable: Committable, before: TableContents | None) -> PreparedTable:
        sink = self._context.sink(name)
        if not self._is_live:
            return sink.prepare_fork(committable, before)
        return sink.prepare(
            committable,
            before,
            waits=self._opened.waits(name),
            look=self._looks[name].look,
            before_change=self._passed.result,
        )
