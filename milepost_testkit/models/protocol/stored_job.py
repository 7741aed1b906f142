"""Track a job by the bytes written to its stores, with the rules common to all models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from milepost_testkit.models.protocol.require import require
from milepost_testkit.models.protocol.stored_entries import Json, contents_in, entry_of, keys_in, prefix
from milepost_testkit.models.protocol.stored_tables import LISTS, STAGED, files_of, is_old_mark, mark_of


class StoredJob:
    """One job. A subclass decides which transitions, table heads and deletions are allowed.

    Args:
        sinks: their names. stored: returns an object of the job's store, or None if it does not exist.
    Attributes:
        state: the stored state of the newest manifest entry. version: its version.
        granted: current token by checkpoint id. ended: winning token by checkpoint id; 0 if it was aborted.
        parents, objects, keys: by completed checkpoint, its parent, the objects its epoch consumed, the keys it names.
        versions: by completed checkpoint, the version that completed it.
        tables: by completed checkpoint and sink, the files in its contents.
        heads: per sink, its newest stored head.
        shown: per sink, the checkpoints that its table has shown, newest last; 0 is the empty table.
        answers: by (checkpoint, token), whether the answers that reached the driver allow it to complete.
        figures: by key of an object of figures, its rows: checkpoint id, token and status.
        latest_ms: the latest time of any clock.
        dead: sessions whose process is visibly dead. insisting: sessions that may take over.
    """

    retained: Any

    def __init__(self, sinks: Iterable[str], stored: Callable[[str], bytes | None]) -> None:
        self.stored = stored
        self.version = 0
        self.state: Json = {}
        self.granted: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.parents: dict[int, int] = {}
        self.objects: dict[int, list[str]] = {}
        self.keys: dict[int, set[str]] = {}
        self.versions: dict[int, int] = {}
        self.tables: dict[int, dict[str, list[str]]] = {0: {}}
        self.heads: dict[str, Json | None] = dict.fromkeys(sorted(sinks))
        self.shown: dict[str, list[int]] = {sink: [0] for sink in self.heads}
        self.answers: dict[tuple[int, int], bool] = {}
        self.heartbeats: dict[str, int] = {}
        self.figures: dict[str, set[tuple[int, int, str]]] = {}
        self.latest_ms = 0
        self.dead: set[str] = set()
        self.insisting: set[str] = set()

    # -- derived values ---------------------------------------------------------------------------------------------

    def lineage(self, checkpoint: int) -> list[int]:
        """Return the checkpoints from the first one to this one, ascending."""
        return lineage(checkpoint, self.parents.__getitem__)

    def consumed(self, checkpoint: int) -> list[str]:
        """Return the objects that its lineage consumed, in order."""
        return [name for ancestor in self.lineage(checkpoint) for name in self.objects[ancestor]]

    def at(self, sink: str) -> int:
        """Return the checkpoint that the sink's table shows; 0 if it is empty."""
        return self.shown[sink][-1]

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each table's mark; 0 without a head."""
        return {sink: head["number"] if head else 0 for sink, head in self.heads.items()}

    @property
    def files(self) -> dict[str, dict[int, list[str]]]:
        """The files of each table, by sink and by each checkpoint that the table has shown."""
        return {
            sink: {number: self.tables[number].get(sink, []) for number in shown if number}
            for sink, shown in self.shown.items()
        }

    # -- rules of a subclass ----------------------------------------------------------------------------------------

    def transition(self, before: Json, event: Json) -> None:
        """Check a new manifest entry. `state` already holds its state."""
        raise NotImplementedError

    def may_show(self, sink: str, number: int, decision: int, files: list[str]) -> None:
        """Check that a table may show a checkpoint, under the number of a decision (I14)."""
        raise NotImplementedError

    def object_deleted(self, key: str) -> None:
        """Check the deletion of an object in the job's own store (I8)."""
        raise NotImplementedError

    # -- writes to the stores ---------------------------------------------------------------------------------------

    def entry(self, body: bytes) -> None:
        """Check a new manifest entry, or the tombstone of an entry that no retained checkpoint needs (I6)."""
        document = entry_of(body)
        if isinstance(document, list):
            version = document[1]
            needed = [checkpoint["token"] for checkpoint in self.state["checkpoints"]]
            require(version < min([self.version, *needed]), f"I6: version {version} is compacted, and needed whole")
            return
        require(document["version"] == self.version + 1, f"I1: version {document['version']} after {self.version}")
        self.version += 1
        before, self.state = self.state, document["state"]
        self.transition(before, document["event"])

    def sink_head(self, sink: str, body: bytes) -> None:
        """Check a new head of a sink's table (I14)."""
        head = json.loads(body)
        mark, carried = mark_of(self.stored, sink, head), self.numbers[sink]
        require(head["number"] > carried, f"I14: {sink} goes back from mark {carried} to {head['number']}")
        number = int(mark["contents"]["checkpoint_id"]) if mark["contents"] else 0
        files = files_of(self.stored, mark["contents"])
        self.may_show(sink, number, head["number"], files)
        expected = self.tables.get(number, {}).get(sink, [])
        require(files == expected, f"I14: {sink} at checkpoint {number} lists {files}, its contents are {expected}")
        self.shown[sink].append(number)
        self.heads[sink] = head

    def figures_written(self, key: str, body: bytes) -> None:
        """Check that an object of figures replaces no other one."""
        require(key not in self.figures, f"{key} is written twice")
        rows = pq.read_table(pa.BufferReader(body), columns=["checkpoint_id", "token", "status"])
        self.figures[key] = {tuple(row.values()) for row in rows.to_pylist()}

    def _figures_deleted(self, key: str) -> None:
        """Check that no row is lost with an object of figures."""
        lost = self.figures.pop(key, set()).difference(*self.figures.values())
        require(not lost, f"{key} is deleted, and no other object has the rows {sorted(lost)}")

    def deleted(self, sink: str | None, key: str) -> None:
        """Check the deletion of an object (I8). sink: None for the job's own store."""
        if key.startswith("_probe/") or (sink is not None and key.startswith(LISTS)):
            return  # the files that a list names are checked one by one
        if sink is None and key.startswith("figures/"):
            return self._figures_deleted(key)
        if sink is None and key.startswith("sinks/"):
            require(is_old_mark(self.numbers, key), f"I14: {key} is deleted, and its table is not beyond it")
            return
        if sink is None:
            self.object_deleted(key)
            return
        number, token = owner(key)
        require(number in self.ended, f"I8: {key} is deleted, and may still be published")
        for checkpoint in (self.at(sink), *self.retained) if self.ended[number] == token else ():
            shows = key in self.tables[checkpoint].get(sink, ())
            require(not shows, f"I8: {key} is deleted, and checkpoint {checkpoint} shows it")

    # -- transitions ------------------------------------------------------------------------------------------------

    def complete(self, done: Json, restored: list[str] | None = None) -> Json:
        """Check and record a completed checkpoint.

        Args:
            restored: the objects that its savepoint had consumed, if it is a copy of one; None after an epoch.
        Returns: its plan.
        """
        number, token = done["checkpoint_id"], done["token"]
        require(number not in self.ended, f"I9: checkpoint {number} is over already")
        require(token == self.granted[number], f"I3: checkpoint {number} completes under {token}")
        require(done["version"] == self.version, f"I14: checkpoint {number} says that {done['version']} completed it")
        require(done["metadata"]["key"].startswith(prefix(number, token)), "I7: metadata of another token")
        metadata, plan = self._read(done["metadata"]), json.loads(self._read(done["plan"]))
        require(json.loads(metadata)["token"] == token, f"I7: checkpoint {number}: metadata of another token")
        objects = [row[0] for source in plan["sources"].values() for row in source["objects"]]
        if restored is None:
            allowed = self.answers.get((number, token))
            require(allowed, f"I7: checkpoint {number}, token {token}: its answers do not allow it")
        else:
            require(done["parent"] == 0, f"a restored checkpoint {number} continues {done['parent']}")
            objects = restored
        again = set(objects).intersection(self.consumed(done["parent"]))
        require(not again, f"checkpoint {number} reads {sorted(again)} once more")
        self.ended[number], self.versions[number] = token, self.version
        self.parents[number], self.objects[number] = done["parent"], objects
        self.keys[number] = keys_in(metadata) | {done["metadata"]["key"], done["plan"]["key"]}
        contents = contents_in(metadata)
        self.tables[number] = {sink: files_of(self.stored, table) for sink, table in contents.items()}
        return dict(plan)

    def abort(self, event: Json) -> int:
        """Record an aborted checkpoint. Returns its id."""
        number = int(event["pending"]["checkpoint_id"])
        require(number not in self.ended, f"I9: checkpoint {number} is over already")
        self.ended[number] = 0
        return number

    def confirm(self, event: Json) -> None:
        """Check that the sinks that confirm a checkpoint have published it (I11)."""
        number = event["checkpoint_id"]
        for sink in event["sinks"]:
            require(number in self.shown[sink], f"I11: {sink} confirms checkpoint {number}, and has not published it")

    def _read(self, handle: Json) -> bytes:
        body = self.stored(handle["key"])
        require(body is not None, f"I7: {handle['key']} is committed, and is not there")
        actual = (len(body or b""), hashlib.sha256(body or b"").hexdigest())
        require(actual == (handle["size"], handle["sha256"]), f"I7: {handle['key']} is not what the event says")
        return body or b""


def owner(key: str) -> tuple[int, int]:
    """Return the checkpoint and token that staged a table's file."""
    match = STAGED.match(key)
    require(match, f"I8: {key} of a sink is no staged file")
    return (int(match[1]), int(match[2])) if match else (0, 0)


def lineage(checkpoint: int, parent_of: Callable[[int], int]) -> list[int]:
    """Return a checkpoint and its ancestors, ascending, including those no longer retained.

    With parents {1: 0, 2: 1, 4: 2} the lineage of 4 is [1, 2, 4].
    """
    checkpoints = []
    while checkpoint:
        checkpoints.append(checkpoint)
        checkpoint = parent_of(checkpoint)
    return checkpoints[::-1]
