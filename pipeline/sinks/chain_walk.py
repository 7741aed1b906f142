"""Everything a sink's path holds, and everything its heads need: the facts for an audit of the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from pipeline.protocol.errors import NotFound, StateCorrupt
from pipeline.protocol.object_store import ObjectStat, ObjectStore
from pipeline.sinks.contract import TableObject, TableReference, TableWalk
from pipeline.sinks.sink_chain import SinkChain
from pipeline.sinks.sink_head import HEADS, SNAPSHOTS, SinkHead, head_key, head_version

_STAGED_KEY = re.compile(r"data/chk-(\d{20})/t(\d+)/[^/]+")
_PARALLEL_READS = 8


def walk_chain(store: ObjectStore, chain: SinkChain) -> TableWalk:
    """Read every head of a table, newest first. Raises InvalidRequest when the path belongs to another job or sink."""
    objects = tuple(_placed(stat) for stat in store.list(""))
    newest = next((head_version(stat.key) for stat in store.list(HEADS, limit=1)), 0)
    references: dict[str, TableReference] = {}
    problems: list[str] = []
    read = 0
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        for head in pool.map(lambda version: _read(chain, version), range(newest, 0, -1)):
            if isinstance(head, str):
                problems.append(head)
                continue
            read += 1
            for reference in _references(head):
                references.setdefault(reference.key, reference)
    return TableWalk(objects, tuple(references.values()), tuple(problems), read)


def _placed(stat: ObjectStat) -> TableObject:
    match = _STAGED_KEY.fullmatch(stat.key)
    staged_by = None if match is None else (int(match[1]), int(match[2]))
    return TableObject(stat, staged_by, permanent=stat.key.startswith((HEADS, SNAPSHOTS)))


def _read(chain: SinkChain, version: int) -> SinkHead | str:
    try:
        return chain.at(version)
    except NotFound:
        return f"{head_key(version)}: missing from the chain of heads"
    except StateCorrupt as error:
        return error.message


def _references(head: SinkHead) -> Iterator[TableReference]:
    via = (f"head {head.version} of checkpoint {head.mark.checkpoint_id}",)
    for file in (*head.added, *((head.replaced_by,) if head.replaced_by else ())):
        yield TableReference(file.key, file.size, via)
    if head.snapshot is not None:
        yield TableReference(head.snapshot.key, head.snapshot.size, via)
