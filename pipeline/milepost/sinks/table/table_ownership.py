"""Table ownership, stored in table properties. An unowned table is adopted if the spec allows it (TABLES 1.9).

Order of writes: read the table -> reserve its location, which only one of two jobs gets (`reservation.py`) -> one
compare-and-set commit of the format sets the owner, and the properties that retained checkpoints need. A job that
crashes between the last two finds its own reservation and a table that is still unowned. All of this precedes the
commit point.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from uuid import uuid4

from milepost.errors import CommitConflict, CommitOutcomeUnknown, InvalidRequest
from milepost.protocol.records import ObjectStore
from milepost.sinks.table_format import OpenTable, TableFormat
from milepost.tables.records import Reservation, TableOwner, describe_owner, is_same_owner, read_reservation

_LOG = logging.getLogger(__name__)


class TableOwnership:
    """Checks and sets the owner of one sink's table.

    Args:
        store: rooted at the table. owner: returns the sink as an owner; called once the job has an identity.
        adopts: adopt an unowned table, and leave its rows in place.
        only_empty: adopt only an empty table, because existing rows could share keys with the sink's rows.
    """

    def __init__(
        self,
        sink: str,
        store: ObjectStore,
        table_format: TableFormat,
        owner: Callable[[], TableOwner],
        *,
        adopts: bool,
        only_empty: bool,
    ) -> None:
        self._sink, self._store, self._format, self._owner = sink, store, table_format, owner
        self._adopts, self._only_empty = adopts, only_empty

    def reservation(self) -> Reservation | None:
        """Return the reservation of the table's location; None if it is not reserved."""
        return read_reservation(self._store)

    def reserved_owner(self) -> TableOwner | None:
        """Return the owner in the reservation; for a database table without one, the owner in its head."""
        if (reserved := self.reservation()) is not None:
            return reserved.owner
        table = self._format.open() if self._format.is_database else None
        return None if table is None else table.owner

    def check_unreserved(self, owner: TableOwner) -> None:
        """Refuse a table at an unreserved location, unless this owner has it or may adopt it.

        Raises: InvalidRequest: nothing was reserved.
        """
        table = self._format.open() if self._format.stores_owner else None
        if table is None or is_same_owner(table.owner, owner):
            return
        if table.owner is not None:
            raise self._refused(f"belongs to {describe_owner(table.owner)}", "give the sink another path")
        self._check_adoptable(table)
        table.check(None)

    def refuse_foreign_owner(self, table: OpenTable) -> None:
        """Refuse a table with properties that name another owner, for example after a takeover."""
        if table.owner is not None and not is_same_owner(table.owner, self._owner()):
            raise self._refused(
                f"belongs to {describe_owner(table.owner)}",
                "give the sink another path; if that job took it over (`start --claim`), this job must stop writing it",
            )

    def ensure_owned(
        self, table: OpenTable, expected_id: str | None, before_change: Callable[[], None] = lambda: None
    ) -> bool:
        """Set the owner, and the properties that its checkpoints need, if they are not set.

        Args:
            expected_id: the table's identity in the job's contents; None if the job has none.
            before_change: called before a commit; may raise.
        Returns: True if nothing is missing. False after a commit attempt: open the table again.
        Raises: InvalidRequest: another job owns it, or it cannot be adopted. CommitOutcomeUnknown, StoreUnavailable,
            EnvironmentUnusable.
        """
        owner = self._owner()
        self.refuse_foreign_owner(table)
        if table.owner is None:
            if expected_id not in (None, table.table_id):
                raise self._refused(
                    "has replaced the job's table, and has no owner",
                    "restore the job's table, or give the sink a new name and path for a new table",
                )
            self._check_adoptable(table)
        missing = table.missing_properties(owner)
        if missing:
            before_change()
            self._claim(table, owner, missing)
        return not missing

    def _check_adoptable(self, table: OpenTable) -> None:
        if self._only_empty and table.live_files():
            raise self._refused(
                "was created by another writer and has rows; `mode: upsert` adopts only an empty table, because "
                "foreign rows have no key",
                "give the sink a new path, use mode: changelog, or empty the table",
            )
        if not self._adopts:
            raise self._refused(
                "was created by another writer",
                "set `adopt: true` at the sink to take it over with its rows, or give the sink a new path",
            )

    def _claim(self, table: OpenTable, owner: TableOwner, missing: Mapping[str, str]) -> None:
        try:
            table.claim(owner, missing, (0, uuid4().hex) if table.owner is None else None)
            _LOG.info("sink %s: properties of its table were set: %s", self._sink, missing)
            return
        except (CommitConflict, CommitOutcomeUnknown) as error:
            now = self._format.open()
            if now is None or now.version != table.version or isinstance(error, CommitConflict):
                return  # this commit landed, or a foreign one came first: decide again
            reason = error.message
        raise CommitOutcomeUnknown(
            f"sink {self._sink}: properties of its table that retained checkpoints need are not set yet: {reason} "
            "Nothing was published.",
            hint=f"try again; if it fails each time: ALTER TABLE … SET TBLPROPERTIES ({_sql(missing)})",
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
