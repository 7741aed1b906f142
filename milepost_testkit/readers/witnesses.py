"""What engines see of tables: at rest, row by row; in a loop meanwhile, nothing but states that were published."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from milepost_testkit.readers.reading_engines import SPARK, CatalogTable, ReadingEngines, Where
from milepost_testkit.rows.tables import assert_same_rows, fingerprint

_COMPARISONS = {"=": pc.equal, ">": pc.greater, ">=": pc.greater_equal}


@dataclass
class Witnesses:
    """Engines, the tables that they look at, and what was published.

    Attributes:
        engines: the processes that read at rest; Spark's reads in the loop too, the others' loops have their own.
        names: of the engines. place: of a table, by its name.
        published: by table, the fingerprints of its states, in the order in which they were to be seen.
    """

    engines: ReadingEngines
    names: tuple[str, ...]
    table_format: str
    place: Callable[[str], Path | CatalogTable]
    published: dict[str, list[str]] = field(default_factory=dict)

    def see(self, expected: Mapping[str, pa.Table], filters: Mapping[str, Where]) -> dict[str, str]:
        """Every engine sees exactly these rows of each table, and of a filter what it leaves; the state is kept.

        Returns: the state of each table.
        """
        states = {}
        for table, rows in expected.items():
            seen = {engine: self._read(engine, table) for engine in self.names}
            for engine, found in seen.items():
                assert_same_rows(found, rows, f"{table} by {engine}")
                if where := filters.get(table):
                    kept = self._read(engine, table, where)
                    assert_same_rows(kept, kept_rows(rows, where), f"{table} by {engine} where {where}")
            prints = {engine: fingerprint(found) for engine, found in seen.items()}
            assert len(set(prints.values())) == 1, f"{table}: engines differ in some bit of it: {prints}"
            states[table] = prints[self.names[0]]
            self.published.setdefault(table, []).append(states[table])
        return states

    @contextmanager
    def watching(self) -> Iterator[dict[tuple[str, str], list[str]]]:
        """Read every table again and again, each engine in a process of its own, for as long as the block runs.

        Afterwards each read was a whole state that was published, and no state came before an earlier one.
        Yields: by (engine, table) the states that were seen, each only once in a row.
        """
        ended = threading.Event()
        seen: dict[tuple[str, str], list[str]] = {}
        own = {engine: self.engines if engine == SPARK else ReadingEngines() for engine in self.names}
        with ThreadPoolExecutor(len(own)) as pool:
            loops = [pool.submit(self._loop, engine, own[engine], ended, seen) for engine in self.names]
            try:
                yield seen
            finally:
                ended.set()
                _wait(loops)
                for engines in own.values():
                    if engines is not self.engines:
                        engines.stop()
        for loop in loops:
            loop.result()
        for (engine, table), states in seen.items():
            assert_in_order(f"{table} by {engine}", states, self.published[table])

    def _loop(
        self, engine: str, engines: ReadingEngines, ended: threading.Event, seen: dict[tuple[str, str], list[str]]
    ) -> None:
        last = False
        while not last:
            last = ended.is_set()  # once more at the end: what is seen then is what was published last
            for table in self.published:
                rows = engines.read(engine, self.place(table), table_format=self.table_format)
                states = seen.setdefault((engine, table), [])
                if states[-1:] != [state := fingerprint(rows)]:
                    states.append(state)

    def _read(self, engine: str, table: str, where: Where | None = None) -> pa.Table:
        return self.engines.read(engine, self.place(table), table_format=self.table_format, where=where)


def kept_rows(rows: pa.Table, where: Where) -> pa.Table:
    """Return what a filter leaves of rows in which times are microseconds."""
    column, operator, text = where
    values = rows.column(column)
    wanted: object = text
    if pa.types.is_integer(values.type):
        wanted = int(text) if text.lstrip("-").isdigit() else round(datetime.fromisoformat(text).timestamp() * 1e6)
    return rows.filter(_COMPARISONS[operator](values, pa.scalar(wanted, values.type)))


def _wait(loops: list[Future[None]]) -> None:
    for loop in loops:
        loop.exception()  # what it raised is told where the block succeeded


def assert_in_order(what: str, seen: list[str], published: list[str]) -> None:
    """Fail unless what a loop saw is what was published: in that order, some of it left out, up to its last state."""
    position = -1
    for number, state in enumerate(seen):
        assert state in published, f"{what} saw {state}, which was never published; {published}"
        assert state in published[position + 1 :], f"{what} saw {seen[: number + 1]}; published in order: {published}"
        position = published.index(state, position + 1)
    assert seen[-1:] == published[-1:], f"{what} saw {seen} last; published in order: {published}"
