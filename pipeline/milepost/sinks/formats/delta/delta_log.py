"""Read commits of a Delta log, one object per version, backwards from the newest.

A snapshot of the table does not contain this: which commits are the job's, and the foreign commits since.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from milepost.errors import NotFound
from milepost.protocol.records import ObjectStore
from milepost.sinks.table_format import ForeignCommit
from milepost.storage.concurrency import parallel_map
from milepost.tables.delta import LOG, parse_actions, read_commit
from milepost.tables.records import StagedFile, TableOwner

LAST_CHECKPOINT = f"{LOG}_last_checkpoint"

_OURS = "milepost"
_MAX_PARALLEL_READS = 64


@dataclass(frozen=True, slots=True)
class JobCommit:
    """The metadata that a commit of the job carries.

    Attributes:
        identity, sink: of the owner.
        number, write_id: of the move; number 0 if the commit adopted a table. None if it created or widened the table.
    """

    identity: str
    sink: str
    number: int | None = None
    write_id: str | None = None

    def as_metadata(self) -> dict[str, dict[str, object]]:
        """Return the `commitInfo` entry."""
        entry = {"identity": self.identity, "sink": self.sink, "number": self.number, "writeId": self.write_id}
        return {_OURS: {name: value for name, value in entry.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class LogTail:
    """The commits of a log from the job's newest move on.

    Attributes:
        job_commit: the newest move; None if there is none, or the log no longer has it.
        foreign: later commits of other writers, oldest first.
    """

    job_commit: JobCommit | None
    foreign: tuple[ForeignCommit, ...]


def read_log_tail(
    store: ObjectStore, newest: int, owner: TableOwner | None, partition_by: tuple[str, ...] = ()
) -> LogTail:
    """Read the log backwards from a version to the newest move of a sink, 1, 2, 4, ... 64 objects at a time.

    Usually that is one object. Versions that the log no longer has are returned as one commit without files.

        versions  7 move of the job   8 OPTIMIZE by Spark   9 ADD COLUMNS by the job
        newest 9  ->  job_commit: 7, foreign: 8

    Args:
        owner: the owner in the table's properties; None if it is unowned, and every commit is foreign.
        partition_by: columns of the table.
    Raises: StateCorrupt: an object of the log cannot be read. Also what the store raises.
    """
    foreign: list[ForeignCommit] = []
    version, step = newest, 1
    while version >= 0:
        batch = range(version, max(version - step, -1), -1)
        for number, body in zip(batch, parallel_map(store, lambda each: read_commit(store, each), batch), strict=True):
            if body is None:
                what = f"the versions up to {number}, which are no longer in the log"
                return LogTail(None, (ForeignCommit(number, what, frozenset(), (), False), *reversed(foreign)))
            actions = parse_actions(number, body)
            job_commit = _job_commit(actions, owner)
            if job_commit is None:
                foreign.append(_foreign_commit(number, actions, partition_by))
            elif job_commit.number is not None:
                return LogTail(job_commit, tuple(reversed(foreign)))
        version, step = version - step, min(2 * step, _MAX_PARALLEL_READS)
    return LogTail(None, tuple(reversed(foreign)))


def job_protocol_changes(store: ObjectStore, newest: int, owner: TableOwner | None) -> list[int]:
    """Return the newest versions in which a commit of the sink changed the protocol, newest first.

    Reads a bounded number of versions. Raises: as `read_log_tail`.
    """
    versions = range(newest, max(newest - _MAX_PARALLEL_READS, 0), -1)
    changes = []
    for version, body in zip(
        versions, parallel_map(store, lambda each: read_commit(store, each), versions), strict=True
    ):
        actions = parse_actions(version, body) if body is not None else []
        if _job_commit(actions, owner) is not None and any("protocol" in action for action in actions):
            changes.append(version)
    return changes


def last_checkpoint(store: ObjectStore) -> int:
    """Return the version of the checkpoint in the hint; -1 if there is none. Raises what the store raises."""
    try:
        return int(json.loads(store.get(LAST_CHECKPOINT))["version"])
    except (NotFound, ValueError, KeyError, TypeError):  # only a hint, which any writer may omit or corrupt
        return -1


def _job_commit(actions: list[dict[str, Any]], owner: TableOwner | None) -> JobCommit | None:
    entry = _info(actions).get(_OURS)
    if owner is None or not isinstance(entry, dict):
        return None
    if (entry.get("identity"), entry.get("sink")) != (owner.identity, owner.sink):
        return None
    return JobCommit(owner.identity, owner.sink, entry.get("number"), entry.get("writeId"))


def _foreign_commit(version: int, actions: list[dict[str, Any]], partition_by: tuple[str, ...]) -> ForeignCommit:
    added = [action["add"] for action in actions if "add" in action]
    removed = [action["remove"] for action in actions if "remove" in action]
    return ForeignCommit(
        version,
        str(_info(actions).get("operation") or "a commit without an operation"),
        frozenset(unquote(file["path"]) for file in removed),
        tuple(_foreign_file(file, partition_by) for file in added),
        not any(file.get("dataChange", True) for file in (*added, *removed)),
    )


def _foreign_file(add: dict[str, Any], partition_by: tuple[str, ...]) -> StagedFile:
    """Return a file as its writer describes it. Rows are 0 if they are not stated, and there is no digest."""
    statistics = add.get("stats")
    try:
        rows = int(json.loads(statistics)["numRecords"]) if statistics else 0
    except (ValueError, KeyError, TypeError):
        rows = 0
    values = add.get("partitionValues") or {}
    partition = tuple((name, values.get(name) or None) for name in partition_by)
    return StagedFile(unquote(add["path"]), rows, add["size"], "", statistics, partition=partition)


def _info(actions: list[dict[str, Any]]) -> dict[str, Any]:
    return next((action["commitInfo"] for action in actions if isinstance(action.get("commitInfo"), dict)), {})
