"""Whose a table is, by its own properties: one that nobody owns becomes the job's, if the spec says so (TABLES 1.9).

Order: the table is looked at -> its place is reserved, which of two jobs only one gets (`reservation.py`) -> one commit
of the format makes the table the owner's, and its properties what retained checkpoints need, compare-and-set. Whoever
stops between finds the reservation its own again, and the table still nobody's; all of it lies before a commit point.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from uuid import uuid4

from milepost.errors import CommitConflict, CommitOutcomeUnknown, InvalidRequest
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.records.reservation import Reservation, TableOwner, is_same, named, reserved_for
from milepost.sinks.table_format import OpenTable, TableFormat

_LOG = logging.getLogger(__name__)


class TableOwnership:
    """What one sink may do to the owner of its table.

    Args:
        store: rooted at the table. owner: the sink, asked for when it has a job.
        adopts: a table that nobody owns becomes the sink's, and its rows stay.
        only_empty: such a table must have no rows: the sink's rows have a key, and theirs may have it too.
    """

    def __init__(
        self,
        sink: str,
        store: ObjectStore,
        form: TableFormat,
        owner: Callable[[], TableOwner],
        *,
        adopts: bool,
        only_empty: bool,
    ) -> None:
        self._sink, self._store, self._format, self._owner = sink, store, form, owner
        self._adopts, self._only_empty = adopts, only_empty

    def reservation(self) -> Reservation | None:
        """Return the reservation of the table's location: its owner, mode and key; None: it is not reserved."""
        return reserved_for(self._store)

    def reserved_owner(self) -> TableOwner | None:
        """Return for whom the table is reserved; of a database's, whose reservation is the job's own, whose it is."""
        if (reserved := self.reservation()) is not None:
            return reserved.owner
        table = self._format.open() if self._format.is_database else None
        return None if table is None else table.owner

    def check_place(self, owner: TableOwner) -> None:
        """Refuse what lies at a place that nobody has reserved, unless it is this owner's or may become that.

        Raises: InvalidRequest: nothing was reserved.
        """
        table = self._format.open() if self._format.names_owner else None
        if table is None or is_same(table.owner, owner):
            return
        if table.owner is not None:
            raise self._refused(f"is of {named(table.owner)}", "give the sink another path")
        self._check_adoptable(table)
        table.check(None)

    def refuse_others(self, table: OpenTable) -> None:
        """Refuse a table that says it is another's, as it does once another job has taken it over."""
        if table.owner is not None and not is_same(table.owner, self._owner()):
            raise self._refused(
                f"is of {named(table.owner)}",
                "give the sink another path; if that job took it over by `start --claim`, this one has ended there",
            )

    def settle(self, table: OpenTable, planned: str | None, before_change: Callable[[], None] = lambda: None) -> bool:
        """Make the table the owner's, with the properties that its checkpoints need, unless it is that already.

        Args:
            planned: the table's own identity, as far as the job knows it.
            before_change: is called before a commit is tried; what it raises ends this.
        Returns: True: it is. False: a commit was tried: look at the table again.
        Raises: InvalidRequest: it is somebody else's, or cannot be made ours. CommitOutcomeUnknown, StoreUnavailable,
            EnvironmentUnusable.
        """
        owner = self._owner()
        self.refuse_others(table)
        if table.owner is None:
            if planned not in (None, table.table_id):
                raise self._refused(
                    "took the place of the job's own, and nobody owns it",
                    "put the job's table back, or give the sink a new name and path to begin a new one",
                )
            self._check_adoptable(table)
        lacking = table.lacks(owner)
        if lacking:
            before_change()
            self._claim(table, owner, lacking)
        return not lacking

    def _check_adoptable(self, table: OpenTable) -> None:
        if self._only_empty and table.live():
            raise self._refused(
                "was made by somebody else and has rows, and `mode: upsert` adopts an empty table only: rows of others "
                "have no key",
                "give the sink a new path, use mode: changelog, or empty the table",
            )
        if not self._adopts:
            raise self._refused(
                "was made by somebody else",
                "`adopt: true` at the sink makes it this job's: its rows stay; or give the sink a new path",
            )

    def _claim(self, table: OpenTable, owner: TableOwner, lacking: Mapping[str, str]) -> None:
        try:
            table.claim(owner, lacking, (0, uuid4().hex) if table.owner is None else None)
            _LOG.info("sink %s: properties of its table were set: %s", self._sink, lacking)
            return
        except (CommitConflict, CommitOutcomeUnknown) as error:
            now = self._format.open()
            if now is None or now.version != table.version or isinstance(error, CommitConflict):
                return  # it landed, or somebody else's commit came before: decide again
            reason = error.message
        raise CommitOutcomeUnknown(
            f"sink {self._sink}: properties of its table that retained checkpoints need are not set yet: {reason} "
            "Nothing was published.",
            hint=f"try again; if it fails each time: ALTER TABLE … SET TBLPROPERTIES ({_sql(lacking)})",
            sink=self._sink,
        )

    def _refused(self, fault: str, hint: str) -> InvalidRequest:
        return InvalidRequest(
            f"sink {self._sink}: the table at {self._store.config.url} {fault}. Nothing was changed.",
            hint=hint,
            sink=self._sink,
        )


def _sql(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in sorted(properties.items()))
