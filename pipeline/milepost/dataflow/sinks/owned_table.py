"""A table has one owner: reserved for it, adopted by it, or taken over from another job by a savepoint (TABLES 1.9)."""

from __future__ import annotations

from milepost.dataflow.sinks.contents import TableContents
from milepost.dataflow.sinks.contract import ShownTable, SinkMode, TableTarget
from milepost.dataflow.sinks.reservation import TableOwner, reservation, reserve, reserved_for
from milepost.dataflow.sinks.table_format import TableFormat
from milepost.dataflow.sinks.table_ownership import TableOwnership
from milepost.dataflow.sinks.table_takeover import Takeover
from milepost.protocol.records.object_store import ObjectStore


class OwnedTable:
    """What of a sink is about its table's owner; the sink fills in the attributes."""

    name: str
    mode: SinkMode
    key: tuple[str, ...]
    _job: str
    _store: ObjectStore
    _format: TableFormat
    _format_name: str
    _ownership: TableOwnership
    _takeover: Takeover

    def reserve(self, identity: str) -> None:
        """Make a table this job's, before anything is staged for it; refuse another's, and one not to be adopted."""
        if reserved_for(self._store) is None:
            self._ownership.check_place(self._owner(identity))
        reserve(self._store, reservation(self._owner(identity), self._format_name, self.mode.value, self.key))

    def owner(self) -> TableOwner | None:
        """Return for whom the table is reserved; of a database's, whose reservation is the job's own, whose it is."""
        if (reserved := reserved_for(self._store)) is not None:
            return reserved.owner
        table = self._format.open() if self._format.is_database else None
        return None if table is None else table.owner

    def is_anothers(self, identity: str) -> bool:
        """Return whether the table is reserved for another job or sink."""
        return self.owner() not in (None, self._owner(identity))

    def shown_as(self, contents: TableContents | None) -> ShownTable | None:
        """Return how the table shows contents; None: it never did, as far as the job knows."""
        return self._takeover.shown_as(contents)

    def check_takeover(self, identity: str, job: str, shown: ShownTable) -> None:
        """Refuse to take over another job's table that is not as a savepoint shows it."""
        self._takeover.check(TableOwner(job, "", self.name), self._owner(identity), shown)

    def take_over(self, identity: str, job: str, shown: ShownTable, target: TableTarget) -> None:
        """Make another job's table this one's, as it is."""
        self._takeover.take(TableOwner(job, "", self.name), self._owner(identity), shown, target)

    def _owner(self, identity: str) -> TableOwner:
        return TableOwner(self._job, identity, self.name)
