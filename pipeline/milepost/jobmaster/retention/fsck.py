"""Audit a job's storage: report missing objects, and unreferenced objects.

Read-only. A missing object or an unreadable root is damage (exit code 7), including in savepoints outside of the job's
storage. An unreachable object only costs space (exit code 0): a crashed or fenced session may leave one at any time,
and `gc` deletes it. An unreadable list of a table's garbage, or object with figures of past epochs, is reported but is
not damage, since nothing depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from milepost.errors import EnvironmentUnusable, StoreUnavailable
from milepost.jobmaster.figures.stored_rows import StoredRows
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.reachability import JobReach, TableReach, missing_objects, walk_job
from milepost.jobmaster.retention.savepoint_audit import audit_savepoint
from milepost.protocol.records import CheckpointId, FencingToken, ObjectStat, checkpoint_of_key
from milepost.protocol.retention import (
    ObjectStatus,
    object_status,
    proof,
    published_proof,
    published_status,
    staged_proof,
    staged_status,
)

_COLLECTABLE = (
    ObjectStatus.UNREACHABLE,
    ObjectStatus.PROBE,
    ObjectStatus.EXPIRED,
    ObjectStatus.REPLACED_LIST,
    ObjectStatus.LOST_LANDING,
)
"""Statuses of objects that nothing refers to and that a collection may delete."""

DAMAGED = 7
"""Exit code if a needed object is missing or cannot be read."""


@dataclass(frozen=True, slots=True)
class ClassifiedObject:
    """One stored object and its status.

    Attributes:
        sink: the sink that it belongs to; None for the job's own store.
        staged_by: checkpoint id and token that staged it at the sink.
        prunable: it was published; `table_pruning.py` decides whether it is deleted.
        proof: of an unreachable object: why nothing can need it.
    """

    stat: ObjectStat
    status: ObjectStatus
    sink: str | None = None
    staged_by: tuple[CheckpointId, FencingToken] | None = None
    prunable: bool = False
    proof: str = ""


@dataclass(frozen=True, slots=True)
class MissingObject:
    """An object that is referenced, and is missing or differs. chain: of references, from a root."""

    where: str
    key: str
    problem: str
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A stored object, and why it is needed or unneeded."""

    where: str
    key: str
    size: int
    age_ms: int
    proof: str


@dataclass(frozen=True, slots=True)
class ListedGarbage:
    """Totals of the job's list of garbage."""

    entries: int
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of walking every root.

    Attributes:
        roots: the roots that were walked. complete: all could be read; otherwise no object is reported unreachable.
        objects: number of objects by status. damaged: what cannot be read.
        unasked: savepoints that did not answer, and tables whose location in the spec is not the head's.
        unreadable_figures: objects with figures of past epochs, on which nothing depends.
        foreign: objects that are not the job's. exit_code: 0 or `DAMAGED`.
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
    unreadable_figures: tuple[str, ...]
    unreachable: tuple[StoredObject, ...]
    foreign: tuple[StoredObject, ...]
    garbage: ListedGarbage
    exit_code: int


def check_job(context: JobContext) -> Audit:
    """Walk every root and compare the references with the stored objects."""
    reach = walk_job(context)
    missing = [
        MissingObject(where, reference.key, problem, tuple(reference.chain))
        for where, reference, problem in missing_objects(context, reach)
    ]
    elsewhere, unasked = _savepoints_elsewhere(context, reach)
    missing += elsewhere
    unasked += reach.unasked
    unasked += [
        f"sink {one.name}: {one.needs.location_mismatch}"
        for one in reach.tables
        if one.needs and one.needs.location_mismatch
    ]
    unread = [f"sink {table.name}: {each}" for table in reach.tables for each in table.unreadable_lists]
    faults = [*reach.faults, *reach.conflicts]
    classified = list(classify_objects(reach))
    collectable = [item for item in classified if item.status in _COLLECTABLE]
    unreachable = collectable if reach.complete else []
    foreign = [item for item in classified if item.status is ObjectStatus.FOREIGN]
    listed = [item for item in classified if item.status is ObjectStatus.LISTED]
    counts = Counter(item.status.name.lower() for item in classified)
    if not reach.complete:
        for status in (ObjectStatus.UNREACHABLE, ObjectStatus.LOST_LANDING):
            counts.pop(status.name.lower(), None)
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
        unreadable_figures=tuple(StoredRows(context.store).check()),
        unreachable=tuple(describe(reach, item) for item in unreachable),
        foreign=tuple(describe(reach, item) for item in foreign),
        garbage=ListedGarbage(len(reach.listed.keys), len(listed), sum(item.stat.size for item in listed)),
        exit_code=DAMAGED if missing or faults else 0,
    )


def _savepoints_elsewhere(context: JobContext, reach: JobReach) -> tuple[list[MissingObject], list[str]]:
    """Return the missing objects of external savepoints, and one line for each savepoint that does not answer."""
    missing: list[MissingObject] = []
    unasked = []
    for savepoint in reach.state.savepoints:
        if savepoint.location is None:
            continue
        where = f"savepoint {savepoint.name} at {savepoint.location}"
        chain = f"manifest version {reach.state.version}", f"savepoint {savepoint.name}"
        try:
            problems = list(audit_savepoint(context, savepoint))
        except (StoreUnavailable, EnvironmentUnusable) as error:
            unasked.append(f"{where}: {error.message}")
            continue
        missing += [MissingObject(where, key, problem, chain) for key, problem in problems]
    return missing, unasked


def classify_objects(reach: JobReach) -> Iterator[ClassifiedObject]:
    """Yield every stored object, of the job and of its sinks, with its status."""
    for stat in reach.objects.values():
        status = object_status(reach.state, stat.key, reach.references, reach.listed, reach.logs)
        proof_text = _proof(reach, stat.key) if status is ObjectStatus.UNREACHABLE else ""
        yield ClassifiedObject(stat, status, proof=proof_text)
    for table in reach.tables:
        yield from _classify_table(reach, table)


def describe(reach: JobReach, item: ClassifiedObject) -> StoredObject:
    """Return one object for reports. Its age is by the clock of the job's store, which may differ from a sink's."""
    return StoredObject(
        where="job" if item.sink is None else f"sink {item.sink}",
        key=item.stat.key,
        size=item.stat.size,
        age_ms=max(0, reach.now_ms - item.stat.last_modified_ms),
        proof=item.proof or item.status.value,
    )


def _classify_table(reach: JobReach, table: TableReach) -> Iterator[ClassifiedObject]:
    needed = table.references().keys() | (table.needs.elsewhere_keys if table.needs is not None else frozenset())
    for item in table.opened.objects:
        if item.stat.key in needed:
            yield ClassifiedObject(item.stat, ObjectStatus.REFERENCED, table.name)
        elif item.list_of_garbage:
            yield ClassifiedObject(item.stat, ObjectStatus.LISTED, table.name)
        elif item.staged_by is None:
            yield ClassifiedObject(item.stat, ObjectStatus.LOG if item.permanent else ObjectStatus.FOREIGN, table.name)
        else:
            yield _classify_staged(reach, table, item.stat, *item.staged_by)


def _classify_staged(
    reach: JobReach, table: TableReach, stat: ObjectStat, checkpoint_id: CheckpointId, token: FencingToken
) -> ClassifiedObject:
    """Return the status of an unreferenced staged file.

    A file of the token that completed its checkpoint was published, so pruning decides. All files of a dropped sink are
    pruned too, because nothing else publishes or discards them.
    """
    outcome, listed = reach.outcomes.get(checkpoint_id), stat.key in table.listed
    prunable = table.is_dropped or (outcome is not None and outcome.winner == token)
    if prunable:
        free = table.needs is not None and table.needs.is_free(reach.state, stat.key)
        status, reason = published_status(free=free, listed=listed), published_proof(checkpoint_id)
    else:
        status = staged_status(reach.state, checkpoint_id, token, outcome, reach.listed)
        status = ObjectStatus.LISTED if status is ObjectStatus.UNREACHABLE and listed else status
        reason = staged_proof(checkpoint_id, token, outcome)
    proof = reason if status is ObjectStatus.UNREACHABLE else ""
    return ClassifiedObject(stat, status, table.name, (checkpoint_id, token), prunable=prunable, proof=proof)


def _proof(reach: JobReach, key: str) -> str:
    checkpoint_id = checkpoint_of_key(key)
    return proof(key, None if checkpoint_id is None else reach.outcomes.get(checkpoint_id))
