"""The tables of a job: of each sink the one in force, and those from before and after its migrations (I8)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from milepost.errors import StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import is_job_table
from milepost.protocol.records.manifest_state import ManifestState
from milepost.sinks.contract import Sink
from milepost.sinks.records.contents import TableContents
from milepost.sinks.records.table_address import TableAddress
from milepost.sinks.records.table_registry import RegisteredTable, TableRegistry
from milepost.storage.concurrency.background import prefetch
from milepost.storage.concurrency.parallel_map import parallel_map


@dataclass(frozen=True, slots=True)
class JobTable:
    """One table of one sink.

    Attributes:
        location: as in `TableContents`.
        elsewhere: locations of the sink's other tables. in_force: whether the job's head is of it.
    """

    sink: str
    address: TableAddress
    location: str
    elsewhere: frozenset[str]
    in_force: bool

    @property
    def label(self) -> str:
        """What people call it."""
        return self.sink if self.in_force else f"{self.sink} (its other table, {self.address})"

    def holds(self, contents: TableContents | None) -> bool:
        """Return whether contents are of this table; what is of no table that is known counts for the one in force."""
        if contents is None:
            return self.in_force
        return contents.location not in self.elsewhere if self.in_force else contents.location == self.location

    def has_files_of(self, contents: TableContents) -> bool:
        """Return whether files of contents that it `holds` lie where its own do; all of databases lie in one place.

        Elsewhere are those of a table that the sink had before a hand changed its path: nobody looks for them there.
        """
        return contents.location == self.location or (contents.address.path is None and self.address.path is None)

    def open(self, context: JobContext) -> Sink:
        """Return the sink, opened for this table."""
        return context.sink(self.sink, self.address)


def job_tables(context: JobContext, state: ManifestState) -> tuple[JobTable, ...]:
    """Return every table of the sinks of the spec; of each sink first the one in force. Raises StateCorrupt."""
    return find_job_tables(context)(state)


def find_job_tables(context: JobContext) -> Callable[[ManifestState], tuple[JobTable, ...]]:
    """Begin to list the registers beside what the caller does next; return what is `job_tables` of a state."""
    names = [spec.name for spec in context.spec.sinks]

    def listed() -> list[tuple[RegisteredTable, ...]]:
        return parallel_map(context.store, lambda name: TableRegistry(context.store, name).tables(), names)

    registered = prefetch(context.store, listed, "registered-tables")

    def tables(state: ManifestState) -> tuple[JobTable, ...]:
        pairs = zip(names, registered(), strict=True)
        return tuple(table for name, found in pairs for table in _of_sink(context, state, name, found))

    return tables


def staging_tables(context: JobContext, name: str) -> tuple[Sink, ...]:
    """Return a sink, opened for each table in which a session of the job may have staged something."""
    registered = TableRegistry(context.store, name).tables()
    others = _registered_beside(context, name, registered, context.sink_location(name))
    return (context.sink(name), *(context.sink(name, one.address) for one in others))


def forget_table(context: JobContext, table: JobTable) -> None:
    """Take a table off the register, of which nothing is left."""
    assert not table.in_force, "only what is registered is forgotten"
    TableRegistry(context.store, table.sink).forget(RegisteredTable(table.address, table.location))


def _of_sink(
    context: JobContext, state: ManifestState, name: str, registered: Collection[RegisteredTable]
) -> Iterator[JobTable]:
    address, location = _in_force(context, state, name)
    url = context.sink_config(name, address).url
    beside = _registered_beside(context, name, registered, location)
    others = [one for one in beside if context.sink_config(name, one.address).url != url]
    locations = frozenset(one.location for one in others)
    yield JobTable(name, address, location, locations, in_force=True)
    for one in others:
        elsewhere = (locations | {location}) - {one.location}
        yield JobTable(name, one.address, one.location, elsewhere, in_force=False)


def _in_force(context: JobContext, state: ManifestState, name: str) -> tuple[TableAddress, str]:
    """Return where the head has the table; else as the spec says, which may be a copy's."""
    try:
        base = context.base_metadata(state, state.timeline().head)
    except StateCorrupt:
        base = None
    contents = base.tables.get(name) if base is not None else None
    if contents is None or not is_job_table(context, name, contents):
        return context.sink_address(name), context.sink_location(name)
    return contents.address, contents.location


def _registered_beside(
    context: JobContext, name: str, registered: Collection[RegisteredTable], location: str
) -> list[RegisteredTable]:
    """Return the registered tables beside one, which are still where they were, as this environment resolves them.

    A migration registers both of its tables. Where the one is not registered, a hand has written it: the others may be
    those of the job that this one is a copy of.
    """
    if location not in {one.location for one in registered}:
        return []
    others = [one for one in registered if one.location != location]
    return [one for one in others if context.sink_location(name, one.address) == one.location]
