"""List the objects below a table's root, with the role of each."""

from __future__ import annotations

from milepost.protocol.records import ObjectStore
from milepost.sinks.contract import TableObject
from milepost.tables.records import RESERVATION, SUCCESSORS, is_list_key, staged_by


def table_objects(store: ObjectStore, log_prefix: str) -> tuple[TableObject, ...]:
    """Return all objects of a table.

    Args:
        store: rooted at the table. log_prefix: prefix of the format's log.
    """
    return tuple(
        TableObject(
            stat,
            staged_by(stat.key),
            permanent=stat.key == RESERVATION or stat.key.startswith((SUCCESSORS, log_prefix)),
            list_of_garbage=is_list_key(stat.key),
        )
        for stat in store.list("")
    )
