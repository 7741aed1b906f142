"""The log of a Delta table says who committed what: one object per version, read back from the newest.

What is in no snapshot of the table is looked up here: which commits are ours, and what others did since.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from milepost.errors import NotFound, StateCorrupt
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.records.committables import StagedFile
from milepost.sinks.records.reservation import TableOwner
from milepost.sinks.table_format import ForeignCommit
from milepost.storage.concurrency.parallel_map import parallel_map

LOG = "_delta_log/"
LAST_CHECKPOINT = f"{LOG}_last_checkpoint"

_OURS = "milepost"
_MOST_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class OurCommit:
    """What a commit of ours says of itself.

    Attributes:
        identity, sink: of the owner.
        number, write_id: of the move; 0: a table of others became the owner's. None: it made or widened the table.
    """

    identity: str
    sink: str
    number: int | None = None
    write_id: str | None = None

    def as_metadata(self) -> dict[str, dict[str, object]]:
        """Return it as a commit carries it."""
        said = {"identity": self.identity, "sink": self.sink, "number": self.number, "writeId": self.write_id}
        return {_OURS: {name: value for name, value in said.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class LogTail:
    """The newest commits of a log.

    Attributes:
        ours: our newest move; None: there is none, or the log no longer has it. foreign: what others committed since,
            oldest first.
    """

    ours: OurCommit | None
    foreign: tuple[ForeignCommit, ...]


def read_log_tail(
    store: ObjectStore, newest: int, owner: TableOwner | None, partition_by: tuple[str, ...] = ()
) -> LogTail:
    """Read the log back from a version to the newest move of a sink.

    Ordinarily that is one object. What the log no longer has is told as one commit, of which nothing is known.

    Args:
        owner: the sink, as the table itself has it; None: nobody's, so that every commit is another's.
        partition_by: columns of the table.
    Raises: StateCorrupt: an object of the log is not readable. What the store raises.
    """
    foreign: list[ForeignCommit] = []
    version, step = newest, 1
    while version >= 0:
        wanted = range(version, max(version - step, -1), -1)
        for number, body in zip(wanted, parallel_map(store, lambda one: _body(store, one), wanted), strict=True):
            if body is None:
                what = f"the versions up to {number}, which the log no longer has"
                return LogTail(None, (ForeignCommit(number, what, frozenset(), (), False), *reversed(foreign)))
            actions = _actions(number, body)
            ours = _our_commit(actions, owner)
            if ours is None:
                foreign.append(_foreign_commit(number, actions, partition_by))
            elif ours.number is not None:
                return LogTail(ours, tuple(reversed(foreign)))
        version, step = version - step, min(2 * step, _MOST_AT_ONCE)
    return LogTail(None, tuple(reversed(foreign)))


def our_protocol_changes(store: ObjectStore, newest: int, owner: TableOwner | None) -> list[int]:
    """Return which of the newest versions are commits of a sink that wrote the table's protocol, newest first.

    Looks at a bounded number of versions. Raises: as `read_log_tail`.
    """
    versions = range(newest, max(newest - _MOST_AT_ONCE, 0), -1)
    found = []
    for version, body in zip(versions, parallel_map(store, lambda one: _body(store, one), versions), strict=True):
        actions = _actions(version, body) if body is not None else []
        if _our_commit(actions, owner) is not None and any("protocol" in action for action in actions):
            found.append(version)
    return found


def last_checkpoint(store: ObjectStore) -> int:
    """Return the version of the newest checkpoint that the log names; -1: none. Raises what the store raises."""
    try:
        return int(json.loads(store.get(LAST_CHECKPOINT))["version"])
    except (NotFound, ValueError, KeyError, TypeError):  # it is a hint, that any writer may leave out or spoil
        return -1


def log_key(version: int) -> str:
    """Return the object of one version, as Delta's protocol names it."""
    return f"{LOG}{version:020d}.json"


def _body(store: ObjectStore, version: int) -> bytes | None:
    try:
        return store.get(log_key(version))
    except NotFound:
        return None


def _actions(version: int, body: bytes) -> list[dict[str, Any]]:
    try:
        actions = [json.loads(line) for line in body.splitlines() if line.strip()]
    except ValueError as error:
        raise _unreadable(version) from error
    if not all(isinstance(action, dict) for action in actions):
        raise _unreadable(version)
    return actions


def _unreadable(version: int) -> StateCorrupt:
    key = log_key(version)
    return StateCorrupt(f"{key} of a Delta table is not a commit: no lines of JSON objects.", key=key)


def _our_commit(actions: list[dict[str, Any]], owner: TableOwner | None) -> OurCommit | None:
    said = _info(actions).get(_OURS)
    if owner is None or not isinstance(said, dict):
        return None
    if (said.get("identity"), said.get("sink")) != (owner.identity, owner.sink):
        return None
    return OurCommit(owner.identity, owner.sink, said.get("number"), said.get("writeId"))


def _foreign_commit(version: int, actions: list[dict[str, Any]], partition_by: tuple[str, ...]) -> ForeignCommit:
    added = [action["add"] for action in actions if "add" in action]
    removed = [action["remove"] for action in actions if "remove" in action]
    return ForeignCommit(
        version,
        str(_info(actions).get("operation") or "a commit that does not say what it is"),
        frozenset(unquote(file["path"]) for file in removed),
        tuple(_foreign_file(file, partition_by) for file in added),
        not any(file.get("dataChange", True) for file in (*added, *removed)),
    )


def _foreign_file(add: dict[str, Any], partition_by: tuple[str, ...]) -> StagedFile:
    """A file as its writer describes it; rows are 0 where it says nothing of them, and there is no digest."""
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
