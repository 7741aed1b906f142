"""The audit of a job proves what is missing, by chains of references, and what nothing needs.

Reads only. Missing, or a root that cannot be read, is damage (exit 7), also of a savepoint that the job lists and that
lies elsewhere; what is merely unreachable costs space and is no damage (exit 0): a crashed or fenced session may leave
such objects at any time, and `gc` takes them. Nor is a list of a table's garbage that cannot be read, on which nothing
depends: it is told, for somebody to delete it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from milepost.errors import EnvironmentUnusable, StoreUnavailable
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.reachability import JobReach, TableReach, missing_objects, walk_job
from milepost.jobmaster.retention.savepoint_audit import audit_savepoint
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import checkpoint_of_key
from milepost.protocol.records.object_store import ObjectStat
from milepost.protocol.retention.reach import (
    ObjectStatus,
    object_status,
    proof,
    published_proof,
    published_status,
    staged_proof,
    staged_status,
)

_IDLE = (ObjectStatus.UNREACHABLE, ObjectStatus.PROBE, ObjectStatus.EXPIRED, ObjectStatus.REPLACED_LIST)
"""Where an object stands that nothing refers to, and that a collection may delete."""

DAMAGED = 7
"""Exit code when something that is needed is missing or cannot be read."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One stored object and where it stands.

    Attributes:
        sink: whose object it is; None for the job's own store.
        staged_by: checkpoint id and token that staged it at the sink.
        prunable: part of the sink's table, or of its chain: `table_pruning.py` says whether it goes.
        proof: of an unreachable one: why nothing can need it any more.
    """

    stat: ObjectStat
    status: ObjectStatus
    sink: str | None = None
    staged_by: tuple[CheckpointId, FencingToken] | None = None
    prunable: bool = False
    proof: str = ""


@dataclass(frozen=True, slots=True)
class MissingObject:
    """An object that something refers to, and that is gone or another one. chain: of references, from a root."""

    where: str
    key: str
    problem: str
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A stored object, and why it is needed, or by nothing."""

    where: str
    key: str
    size: int
    age_ms: int
    proof: str


@dataclass(frozen=True, slots=True)
class ListedGarbage:
    """What the job's list of garbage names."""

    entries: int
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Audit:
    """What a walk of every root found.

    Attributes:
        roots: that were walked. complete: each could be read; else nothing is called unreachable.
        objects: how many, by where they stand. damaged: what cannot be read.
        unasked: savepoints that did not answer, and tables that the spec leads away from.
        foreign: objects that are not the job's. exit_code: 0, or `DAMAGED`.
    """

    job: str
    manifest_version: int
    roots: tuple[str, ...]
    complete: bool
    objects: Mapping[str, int]
    damaged: tuple[str, ...]
    missing: tuple[MissingObject, ...]
    unasked: tuple[str, ...]
    unreadable_lists: tuple[str, ...]
    unreachable: tuple[StoredObject, ...]
    foreign: tuple[StoredObject, ...]
    garbage: ListedGarbage
    exit_code: int


def check_job(context: JobContext) -> Audit:
    """Walk every root and compare with what is stored."""
    reach = walk_job(context)
    missing = [
        MissingObject(where, reference.key, problem, tuple(reference.chain))
        for where, reference, problem in missing_objects(context, reach)
    ]
    elsewhere, unasked = _savepoints_elsewhere(context, reach)
    missing += elsewhere
    unasked += reach.unasked
    unasked += [f"sink {one.name}: {one.needs.led_away}" for one in reach.tables if one.needs and one.needs.led_away]
    unread = [f"sink {table.name}: {each}" for table in reach.tables for each in table.unreadable_lists]
    faults = [*reach.faults, *reach.conflicts]
    placed = list(place_objects(reach))
    idle = [item for item in placed if item.status in _IDLE]
    unreachable = idle if reach.complete else []
    foreign = [item for item in placed if item.status is ObjectStatus.FOREIGN]
    listed = [item for item in placed if item.status is ObjectStatus.LISTED]
    counts = Counter(item.status.name.lower() for item in placed)
    if not reach.complete:
        counts.pop(ObjectStatus.UNREACHABLE.name.lower(), None)
    return Audit(
        job=reach.state.job,
        manifest_version=reach.state.version,
        roots=tuple(reach.roots),
        complete=reach.complete,
        objects=dict(sorted(counts.items())),
        damaged=tuple(faults),
        missing=tuple(missing),
        unasked=tuple(unasked),
        unreadable_lists=tuple(unread),
        unreachable=tuple(describe(reach, item) for item in unreachable),
        foreign=tuple(describe(reach, item) for item in foreign),
        garbage=ListedGarbage(len(reach.listed.keys), len(listed), sum(item.stat.size for item in listed)),
        exit_code=DAMAGED if missing or faults else 0,
    )


def _savepoints_elsewhere(context: JobContext, reach: JobReach) -> tuple[list[MissingObject], list[str]]:
    """Return what is missing of the savepoints outside of the job's storage; and, one line each, who did not answer."""
    missing: list[MissingObject] = []
    unasked = []
    for savepoint in reach.state.savepoints:
        if savepoint.location is None:
            continue
        where = f"savepoint {savepoint.name} at {savepoint.location}"
        chain = f"manifest version {reach.state.version}", f"savepoint {savepoint.name}"
        try:
            found = list(audit_savepoint(context, savepoint))
        except (StoreUnavailable, EnvironmentUnusable) as error:
            unasked.append(f"{where}: {error.message}")
            continue
        missing += [MissingObject(where, key, problem, chain) for key, problem in found]
    return missing, unasked


def place_objects(reach: JobReach) -> Iterator[Placed]:
    """Yield every stored object, of the job and of its sinks, with where it stands."""
    for stat in reach.objects.values():
        found = object_status(reach.state, stat.key, reach.references, reach.listed)
        yield Placed(stat, found, proof=_proof(reach, stat.key) if found is ObjectStatus.UNREACHABLE else "")
    for table in reach.tables:
        yield from _place_at_table(reach, table)


def describe(reach: JobReach, item: Placed) -> StoredObject:
    """One object for people and programs; an age needs a clock: the job store's, which may differ from a sink's."""
    return StoredObject(
        where="job" if item.sink is None else f"sink {item.sink}",
        key=item.stat.key,
        size=item.stat.size,
        age_ms=max(0, reach.now_ms - item.stat.last_modified_ms),
        proof=item.proof or item.status.value,
    )


def _place_at_table(reach: JobReach, table: TableReach) -> Iterator[Placed]:
    needed = table.references().keys() | (table.needs.elsewhere if table.needs is not None else frozenset())
    for item in table.opened.objects:
        if item.stat.key in needed:
            yield Placed(item.stat, ObjectStatus.REFERENCED, table.name)
        elif item.list_of_garbage:
            yield Placed(item.stat, ObjectStatus.LISTED, table.name)
        elif item.staged_by is None:
            yield Placed(item.stat, ObjectStatus.LOG if item.permanent else ObjectStatus.FOREIGN, table.name)
        else:
            yield _place_staged(reach, table, item.stat, *item.staged_by)


def _place_staged(
    reach: JobReach, table: TableReach, stat: ObjectStat, checkpoint_id: CheckpointId, token: FencingToken
) -> Placed:
    """Return where a staged file stands that nothing needs; of a token that won its checkpoint, it was published.

    Of a dropped sink none is going to be, and none is discarded by its token.
    """
    outcome, listed = reach.outcomes.get(checkpoint_id), stat.key in table.listed
    prunable = table.is_dropped or (outcome is not None and outcome.winner == token)
    if prunable:
        free = table.needs is not None and table.needs.frees(reach.state, stat.key)
        found, why = published_status(free=free, listed=listed), published_proof(checkpoint_id)
    else:
        found = staged_status(reach.state, checkpoint_id, token, outcome, reach.listed)
        found = ObjectStatus.LISTED if found is ObjectStatus.UNREACHABLE and listed else found
        why = staged_proof(checkpoint_id, token, outcome)
    proof = why if found is ObjectStatus.UNREACHABLE else ""
    return Placed(stat, found, table.name, (checkpoint_id, token), prunable=prunable, proof=proof)


def _proof(reach: JobReach, key: str) -> str:
    checkpoint_id = checkpoint_of_key(key)
    return proof(key, None if checkpoint_id is None else reach.outcomes.get(checkpoint_id))
