"""Detect missing objects of a Delta log, without which no engine opens the table, and name the recovery steps."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from milepost.protocol.records import ObjectStore
from milepost.sinks.formats.delta.delta_log import LAST_CHECKPOINT, last_checkpoint
from milepost.tables.delta import LOG, log_key
from milepost.tables.records import read_reservation

_COMMIT = re.compile(rf"{LOG}(\d{{20}})\.json")
_CHECKPOINT = re.compile(rf"{LOG}(\d{{20}})\.checkpoint\.(?:(\d{{10}})\.(\d{{10}})\.parquet|.*)")

_SHOWN = 3
"""Missing objects that a message names."""


@dataclass(frozen=True, slots=True)
class LogFault:
    """The fault of a log and its remedy, as parts of a message."""

    what: str
    remedy: str


def log_fault(sink: str, store: ObjectStore) -> LogFault | None:
    """Return the names of the objects that are missing from a log; None: none are.

    A table is the newest checkpoint, or version 0, and every commit after it::

        0.json … 9.json, 9.checkpoint.parquet, 10.json    whole, also without 0.json to 9.json
        0.json … 10.json, a hint of checkpoint 9          whole, but the hint keeps readers from it
        10.json, a hint of checkpoint 9                   versions 0 to 9 are missing

    Raises: what the store raises.
    """
    commits, checkpoints = _versions(store)
    start = max(checkpoints, default=-1)
    missing = sorted({*range(start + 1, max(commits, default=-1))} - commits)
    hinted = last_checkpoint(store)
    if missing:
        lost = f", and so is checkpoint {hinted}, which contained them" if hinted > start else ""
        needed = f"{hinted:020d}.checkpoint.*" if hinted > start else ", ".join(map(_object_name, missing[:_SHOWN]))
        more = ", …" * (hinted <= start and len(missing) > _SHOWN)
        return LogFault(
            f"of its log, {_versions_are(missing)} missing{lost}",
            f"restore {needed}{more} below {store.config.url}/{LOG} from a copy{realign_hint(sink, store)}",
        )
    if hinted > start:
        return LogFault(
            f"{LAST_CHECKPOINT} names checkpoint {hinted}, which was deleted",
            f"delete {store.config.url}/{LAST_CHECKPOINT}: it is only a hint, and no commit is missing",
        )
    return None


def realign_hint(sink: str, store: ObjectStore) -> str:
    """Return the last resort for a table of this sink, as the end of a hint; "" for another table."""
    reserved = read_reservation(store)
    if reserved is None or reserved.owner.sink != sink:
        return ""
    return (
        f"; or, if only the job's own rows count, move {store.config.url}/{LOG} out of the table's folder, and then: "
        f"milepost realign {reserved.owner.job} {sink}"
    )


def _versions_are(versions: list[int]) -> str:
    """Return versions as the subject of a sentence, with its verb."""
    if len(versions) == 1:
        return f"version {versions[0]} is"
    few = len(versions) <= versions[-1] - versions[0]
    return f"{f'{len(versions)} of the ' if few else ''}versions {versions[0]} to {versions[-1]} are"


def _object_name(version: int) -> str:
    return log_key(version).removeprefix(LOG)


def _versions(store: ObjectStore) -> tuple[set[int], set[int]]:
    """Return the versions of the log's commits, and of its whole checkpoints."""
    commits, checkpoints = set[int](), set[int]()
    parts: dict[tuple[int, int], int] = defaultdict(int)
    for stat in store.list(LOG):
        if commit := _COMMIT.fullmatch(stat.key):
            commits.add(int(commit[1]))
        elif (checkpoint := _CHECKPOINT.fullmatch(stat.key)) and checkpoint[2] is None:
            checkpoints.add(int(checkpoint[1]))
        elif checkpoint is not None:
            parts[int(checkpoint[1]), int(checkpoint[3])] += 1
    return commits, checkpoints | {version for (version, of), count in parts.items() if count == of}
