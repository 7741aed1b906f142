"""Read the state and the commits of a Delta table."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from milepost.errors import InvalidRequest, StateCorrupt
from milepost.protocol.records import ObjectStat, ObjectStore
from milepost.sources.landed.contract import NOTHING_LANDED
from milepost.sources.landed.tables.table_failures import TableFailures
from milepost.storage.concurrency import parallel_map
from milepost.tables.delta import FAULTS, LOG, log_key, parse_actions, parse_reason, read_commit, readable_location

_COMMIT = re.compile(rf"{LOG}(\d{{20}})\.json")
_MAX_PARALLEL_READS = 64
_FILE = ("path", "size_bytes", "modification_time", "partition")
"""Columns that are read of a list of files. The others are statistics."""


@dataclass(frozen=True, slots=True)
class TableState:
    """The metadata of one version.

    Attributes:
        id: stays the same for the life of the table. fields: the columns as in the log.
    """

    version: int
    id: str
    reader_version: int
    reader_features: tuple[str, ...]
    configuration: Mapping[str, str]
    fields: Sequence[Mapping[str, Any]]
    table: DeltaTable = field(repr=False)


class DeltaLog:
    """Reads a table's log. Arguments: store: rooted at the table."""

    def __init__(self, failures: TableFailures, store: ObjectStore) -> None:
        self._failures, self._store = failures, store

    def state(self, version: int | None = None) -> TableState | None:
        """Return the table as of a version; None: the log no longer has it.

        Args:
            version: None: the newest one.
        Raises:
            InvalidRequest: there is no such table. SourceUnreachable: it did not answer.
        """
        # The store is queried first: its errors name the bucket, endpoint or credentials to correct.
        if next(iter(self._store.list(LOG, limit=1)), None) is None:
            raise self._failures.invalid("does not exist", "correct `path`: it is the folder that has `_delta_log`")
        location = readable_location("source", self._failures.source, self._store.config, NOTHING_LANDED)
        is_unreadable = False
        try:
            table = DeltaTable(location.uri, version=version, storage_options=location.options)
            protocol, metadata = table.protocol(), table.metadata()
            return TableState(
                table.version(),
                str(metadata.id),
                protocol.min_reader_version,
                tuple(protocol.reader_features or ()),
                metadata.configuration,
                json.loads(table.schema().to_json())["fields"],
                table,
            )
        except FAULTS as error:
            reason, is_unreadable = parse_reason(location, error), isinstance(error, DeltaError)
        # The library's error is not chained: it may quote a secret.
        if is_unreadable and version is not None:
            return None
        if is_unreadable:
            raise self._failures.invalid(
                f"cannot be opened: {reason}",
                "repair the table with the engine that wrote it, or drop the feature (ALTER TABLE … DROP FEATURE)",
            )
        raise self._failures.unreachable(f"did not answer: {reason}")

    def files(self, state: TableState) -> list[dict[str, Any]]:
        """Return the `add` actions of all files of a version, the oldest first. Raises InvalidRequest."""
        if "deletionVectors" in state.reader_features and next(iter(state.table.deletion_vectors()), None) is not None:
            raise self._failures.refused(
                "has data files with deleted rows (deletion vectors)",
                "purge them (REORG TABLE … APPLY (PURGE)), or begin with `start: latest`",
            )
        actions = pa.table(state.table.get_add_actions())
        rows = actions.select([name for name in _FILE if name in actions.column_names]).to_pylist()
        return sorted(rows, key=lambda row: (row["modification_time"], row["path"]))

    @staticmethod
    def count_files(state: TableState) -> int:
        """Return how many data files a version has."""
        return pa.table(state.table.get_add_actions()).num_rows

    def commits(self, first: int, last: int) -> Iterator[tuple[int, bytes | None, list[dict[str, Any]]]]:
        """Yield the version, object and actions of each commit; None and [] if the log no longer has it.

        Reads 1, 2, 4, … 64 commits at a time. Raises InvalidRequest: one is not a commit.
        """
        step = 1
        while first <= last:
            batch = range(first, min(first + step, last + 1))
            bodies = parallel_map(self._store, lambda each: read_commit(self._store, each), batch)
            for version, body in zip(batch, bodies, strict=True):
                yield version, body, [] if body is None else self._actions(version, body)
            first, step = first + step, min(2 * step, _MAX_PARALLEL_READS)

    def body(self, version: int) -> bytes | None:
        """Return the object of a commit; None if the log does not have it."""
        return read_commit(self._store, version) if version >= 0 else None

    def oldest(self) -> int | None:
        """Return the oldest version with a commit in the log; None: it has none."""
        return next((version for version, _ in self._listed()), None)

    def first_since(self, time_ms: int, state: TableState, *, may_be_cleaned: bool = False) -> int:
        """Return the oldest version that was committed at a time or later; without one, the version after the newest.

        The time of a commit is its in-commit timestamp, or else the time of its object, as in Spark.

        Args:
            may_be_cleaned: whether older commits, which may be later than the time, may be deleted.
        Raises InvalidRequest: they are.
        """
        listed = list(self._listed())
        is_within = state.configuration.get("delta.enableInCommitTimestamps", "").lower() == "true"

        def time_of(item: tuple[int, ObjectStat]) -> int:
            version, stat = item
            body = self.body(version) if is_within else None
            stated = None if body is None else _in_commit_time(self._actions(version, body))
            return stat.last_modified_ms if stated is None else stated

        at = bisect_left(listed, time_ms, key=time_of)
        if not may_be_cleaned and at == 0 and listed and listed[0][0] > 0 and time_of(listed[0]) > time_ms:
            raise self._failures.invalid(
                f"no longer has commits before version {listed[0][0]}, which is later than `start`",
                "choose a later time, or `start: earliest`",
            )
        return listed[at][0] if at < len(listed) else state.version + 1

    def _listed(self) -> Iterator[tuple[int, ObjectStat]]:
        for stat in self._store.list(LOG):
            if (match := _COMMIT.fullmatch(stat.key)) is not None:
                yield int(match[1]), stat

    def _actions(self, version: int, body: bytes) -> list[dict[str, Any]]:
        try:
            return parse_actions(version, body)
        except StateCorrupt as error:
            raise self._unreadable(version) from error

    def _unreadable(self, version: int) -> InvalidRequest:
        return self._failures.invalid(
            f"has a commit that is not readable, {log_key(version)}: expected JSON objects, one per line",
            "restore it from a copy",
        )


def _in_commit_time(actions: Sequence[Mapping[str, Any]]) -> int | None:
    stated = [action["commitInfo"].get("inCommitTimestamp") for action in actions if "commitInfo" in action]
    return stated[0] if stated and isinstance(stated[0], int) else None
