"""The chain walk collects the facts for an audit of a table: all objects at its path, and what its heads say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from milepost.dataflow.sinks.committables import TableObject, TableReference, TableWalk
from milepost.dataflow.sinks.reservation import RESERVATION
from milepost.dataflow.sinks.sink_head import HEADS, SinkHead, data_key_owner, head_key, head_version, snapshot_version
from milepost.dataflow.sinks.table_garbage import TableGarbage, is_list_key
from milepost.dataflow.sinks.table_history import TableHistory
from milepost.protocol.records.errors import NotFound, StateCorrupt
from milepost.protocol.records.object_store import ObjectStat, ObjectStore

_PARALLEL_READS = 8


def list_table(store: ObjectStore) -> tuple[TableObject, ...]:
    """Return all objects below the path of a table."""
    return tuple(_placed(stat) for stat in store.list(""))


def walk_chain(store: ObjectStore, history: TableHistory) -> TableWalk:
    """Read every head of a table, newest first. Raises InvalidRequest when the path belongs to another job or sink."""
    objects = list_table(store)
    newest = next((head_version(stat.key) for stat in store.list(HEADS, limit=1)), 0)
    references: dict[str, TableReference] = {}
    published: set[str] = set()
    problems: list[str] = []
    read = 0
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        for head in pool.map(lambda version: _read(history, version), range(newest, 0, -1)):
            if isinstance(head, str):
                problems.append(head)
                continue
            read += 1
            published |= {file.key for file in (*head.added, *((head.replaced_by,) if head.replaced_by else ()))}
    try:
        references.update((reference.key, reference) for reference in (*history.links(), *history.live()))
    except (NotFound, StateCorrupt) as error:
        if error.message not in problems:
            problems.append(error.message)
    garbage = TableGarbage(store).read(item.stat.key for item in objects if item.list_of_garbage)
    return TableWalk(
        objects,
        tuple(references.values()),
        frozenset(published),
        garbage.files,
        garbage.unreadable,
        tuple(problems),
        read,
    )


def _placed(stat: ObjectStat) -> TableObject:
    return TableObject(
        stat,
        data_key_owner(stat.key),
        permanent=stat.key.startswith(HEADS) or stat.key == RESERVATION,
        snapshot_of=snapshot_version(stat.key),
        list_of_garbage=is_list_key(stat.key),
    )


def _read(history: TableHistory, version: int) -> SinkHead | str:
    try:
        return history.at(version)
    except NotFound:
        return f"{head_key(version)}: missing from the chain of heads"
    except StateCorrupt as error:
        return error.message
