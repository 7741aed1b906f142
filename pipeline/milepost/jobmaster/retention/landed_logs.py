"""Walk the logs of landed sources: their chains, their objects, and the positions on them (L1, L2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from milepost.protocol.landed import JOB, LogPosition, StoredRecord
from milepost.protocol.records import ObjectHandle, ObjectStore, landed_objects_prefix
from milepost.storage.log import SourceLog


@dataclass(slots=True)
class WalkedLog:
    """What was read of one log, from its first retained record on.

    Attributes:
        floor: where it was read from; None: the first record of the log.
        end: the position after the newest record that was read; None: there was none.
        job: identity of the life of the job whose log it is; None: it has no record.
        first: sequence of the first record that was read.
        digests: of the records, in order. objects: of all records, with keys below the job's store.
    """

    source: str
    floor: LogPosition | None = None
    end: LogPosition | None = None
    job: str | None = None
    first: int = 1
    digests: list[str] = field(default_factory=list)
    objects: list[ObjectHandle] = field(default_factory=list)

    @property
    def newest(self) -> int:
        """Sequence of the newest record that was read; 0: there was none."""
        return 0 if self.end is None else self.end.next - 1

    def add(self, stored: StoredRecord) -> None:
        """Add the next record."""
        prefix = landed_objects_prefix(self.source)
        self.objects += (ObjectHandle(prefix + item.key, item.size, item.sha256) for item in stored.record.objects)
        if not self.digests:
            self.first = stored.record.sequence
        self.digests.append(stored.digest)
        self.end, self.job = stored.position, stored.record.identity.get(JOB)

    def position_fault(self, position: LogPosition) -> str | None:
        """Return why a position is not one of this log, or None."""
        last = position.next - 1
        what = f"source {self.source}: log {position.log} was read up to record {last}, and "
        if self.end is None:
            return f"{what}there is no log now"
        if self.end.log != position.log:
            return f"{what}what is stored is log {self.end.log}"
        if last > self.newest:
            return f"{what}it ends at record {self.newest} now"
        if self.floor is not None and last < self.first:
            is_floor = position == self.floor
            return None if is_floor else f"{what}its retained records begin with record {self.first} now"
        return (
            None
            if last >= self.first and self.digests[last - self.first] == position.digest
            else f"{what}that record is another one now"
        )


class LandedLogs:
    """The logs in a job's store. Records never change, so a repeated walk reads only the new ones."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._walked: dict[str, WalkedLog] = {}

    def walk(self, source: str, floor: LogPosition | None) -> WalkedLog:
        """Read a log from its floor up to its newest record.

        Args:
            floor: by the head; None: the log has none.
        Raises: StateCorrupt: a record is missing, unreadable or out of place.
        """
        log = SourceLog(self._store, source, floor)
        walked = self._walked.setdefault(source, WalkedLog(source, floor))
        newest = log.newest()
        if newest is None:
            log.require_continues(walked.end, None)
            return walked
        for stored in log.since(walked.end, newest):
            walked.add(stored)
        return walked
