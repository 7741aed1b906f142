"""List the tables of a job: of each sink the current table, and its others from migrations (I8)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from milepost.errors import StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import is_job_table
from milepost.protocol.records import ManifestState
from milepost.sinks import Sink
from milepost.storage.concurrency import parallel_map, prefetch
from milepost.tables.records import RegisteredTable, TableAddress, TableContents, TableRegistry


@dataclass(frozen=True, slots=True)
class JobTable:
    """One table of one sink.

    Attributes:
        location: as in `TableContents`.
        other_locations: of the sink's other tables. is_current: it is the sink's table at the job's head.
    """

    sink: str
    address: TableAddress
    location: str
    other_locations: frozenset[str]
    is_current: bool

    @property
    def label(self) -> str:
        """Its name in reports."""
        return self.sink if self.is_current else f"{self.sink} (its other table, {self.address})"

    def holds(self, contents: TableContents | None) -> bool:
        """Return whether contents belong to this table. Contents of an unknown table belong to the current one."""
        if contents is None:
            return self.is_current
        return contents.location not in self.other_locations if self.is_current else contents.location == self.location

    def has_files_of(self, contents: TableContents) -> bool:
        """Return whether the files of contents that it `holds` are stored at this table's location.

        They are not if a person changed the sink's path in the spec: the old files stay, and are not looked for.
        All database tables of a sink have their files in one place.
        """
        return contents.location == self.location or (contents.address.path is None and self.address.path is None)

    def open(self, context: JobContext) -> Sink:
        """Return the sink, opened for this table."""
        return context.sink(self.sink, self.address)


def job_tables(context: JobContext, state: ManifestState) -> tuple[JobTable, ...]:
    """Return every table of the sinks of the spec, the current table of a sink first. Raises StateCorrupt."""
    return prefetch_job_tables(context)(state)


def prefetch_job_tables(context: JobContext) -> Callable[[ManifestState], tuple[JobTable, ...]]:
    """Start listing the table registries in the background. Returns `job_tables` as a function of the state."""
    names = [spec.name for spec in context.spec.sinks]

    def listed() -> list[tuple[RegisteredTable, ...]]:
        return parallel_map(context.store, lambda name: TableRegistry(context.store, name).tables(), names)

    registered = prefetch(context.store, listed, "registered-tables")

    def tables(state: ManifestState) -> tuple[JobTable, ...]:
        pairs = zip(names, registered(), strict=True)
        return tuple(table for name, registry in pairs for table in _of_sink(context, state, name, registry))

    return tables


def staging_tables(context: JobContext, name: str) -> tuple[Sink, ...]:
    """Return a sink, opened for each table in which a session of the job may have staged files."""
    registered = TableRegistry(context.store, name).tables()
    others = _other_registered_tables(context, name, registered, context.sink_location(name))
    return (context.sink(name), *(context.sink(name, other.address) for other in others))


def unregister_table(context: JobContext, table: JobTable) -> None:
    """Remove a table of which nothing is left from the registry."""
    assert not table.is_current, "the current table stays registered"
    TableRegistry(context.store, table.sink).forget(RegisteredTable(table.address, table.location))


def _of_sink(
    context: JobContext, state: ManifestState, name: str, registered: Collection[RegisteredTable]
) -> Iterator[JobTable]:
    address, location = _current_table(context, state, name)
    url = context.sink_config(name, address).url
    registered_tables = _other_registered_tables(context, name, registered, location)
    others = [one for one in registered_tables if context.sink_config(name, one.address).url != url]
    locations = frozenset(one.location for one in others)
    yield JobTable(name, address, location, locations, is_current=True)
    for one in others:
        other_locations = (locations | {location}) - {one.location}
        yield JobTable(name, one.address, one.location, other_locations, is_current=False)


def _current_table(context: JobContext, state: ManifestState, name: str) -> tuple[TableAddress, str]:
    """Return address and location of the table at the head, or else in the spec, which may be that of a copied job."""
    try:
        base = context.base_metadata(state, state.timeline().head)
    except StateCorrupt:
        base = None
    contents = base.tables.get(name) if base is not None else None
    if contents is None or not is_job_table(context, name, contents):
        return context.sink_address(name), context.sink_location(name)
    return contents.address, contents.location


def _other_registered_tables(
    context: JobContext, name: str, registered: Collection[RegisteredTable], location: str
) -> list[RegisteredTable]:
    """Return the registered tables other than the one at `location` that this environment resolves to the same place.

    A migration registers both of its tables. If the table at `location` is not registered, a person wrote it into the
    spec. The registered ones may then belong to the job that this one is a copy of.
    """
    if location not in {table.location for table in registered}:
        return []
    others = [table for table in registered if table.location != location]
    return [table for table in others if context.sink_location(name, table.address) == table.location]
