"""What the bytes of a job's stores say about it, and the rules that hold on one timeline as on many."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from milepost_testkit.models.protocol.require import require
from milepost_testkit.models.protocol.stored_entries import Json, contents_in, entry_of, keys_in, prefix
from milepost_testkit.models.protocol.stored_tables import LISTS, STAGED, files_of, is_old_mark, mark_of


class StoredJob:
    """One job. A subclass says which transitions, table heads and deletions its timelines allow.

    Args:
        sinks: their names. stored: reads an object of the job's store; None: it is not there.
    Attributes:
        state: of the newest manifest entry, as it is stored. version: of that entry.
        granted: by checkpoint id: the token in force. ended: by checkpoint id: the winning token, 0: aborted.
        parents, objects, keys: by completed checkpoint: its parent, what its own epoch consumed, the keys it names.
        versions: by completed checkpoint: the version that completed it.
        tables: by completed checkpoint and sink: the files that its contents list.
        heads: per sink, its newest head as it is stored.
        shown: per sink, the checkpoints that its table has shown, the newest last; 0: nothing.
        answers: by (checkpoint, token): whether what reached the driver allows to complete.
        latest_ms: how far the clock has ever been.
        dead: sessions whose process is gone, as everybody can see. insisting: those that came to take over.
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
        self.latest_ms = 0
        self.dead: set[str] = set()
        self.insisting: set[str] = set()

    # -- what follows from it ---------------------------------------------------------------------------------------

    def lineage(self, checkpoint: int) -> list[int]:
        """From the first checkpoint to this one."""
        return lineage(checkpoint, self.parents.__getitem__)

    def consumed(self, checkpoint: int) -> list[str]:
        """The objects that its lineage has consumed, in order."""
        return [name for one in self.lineage(checkpoint) for name in self.objects[one]]

    def at(self, sink: str) -> int:
        """The checkpoint that the sink's table shows; 0: it is empty."""
        return self.shown[sink][-1]

    @property
    def numbers(self) -> dict[str, int]:
        """The mark that each table carries."""
        return {sink: head["number"] if head else 0 for sink, head in self.heads.items()}

    @property
    def files(self) -> dict[str, dict[int, list[str]]]:
        """Per sink and checkpoint that its table has shown: the files that it then consisted of."""
        return {
            sink: {number: self.tables[number].get(sink, []) for number in shown if number}
            for sink, shown in self.shown.items()
        }

    # -- what a subclass says ---------------------------------------------------------------------------------------

    def transition(self, before: Json, event: Json) -> None:
        """A new entry has landed; `state` is what it says."""
        raise NotImplementedError

    def may_show(self, sink: str, number: int, decision: int, files: list[str]) -> None:
        """A table is about to show a checkpoint, under the number of a decision (I14)."""
        raise NotImplementedError

    def object_deleted(self, key: str) -> None:
        """An object of the job's own store is about to be deleted (I8)."""
        raise NotImplementedError

    # -- what reaches the stores ------------------------------------------------------------------------------------

    def entry(self, body: bytes) -> None:
        """A new entry of the manifest log, or the tombstone of one that nothing retained needs (I6)."""
        document = entry_of(body)
        if isinstance(document, list):
            version = document[1]
            needed = [one["token"] for one in self.state["checkpoints"]]
            require(version < min([self.version, *needed]), f"I6: version {version} is compacted, and needed whole")
            return
        require(document["version"] == self.version + 1, f"I1: version {document['version']} after {self.version}")
        self.version += 1
        before, self.state = self.state, document["state"]
        self.transition(before, document["event"])

    def sink_head(self, sink: str, body: bytes) -> None:
        """A new head of a sink's table (I14)."""
        head = json.loads(body)
        mark, carried = mark_of(self.stored, sink, head), self.numbers[sink]
        require(head["number"] > carried, f"I14: {sink} goes back from mark {carried} to {head['number']}")
        number = int(mark["contents"]["checkpoint_id"]) if mark["contents"] else 0
        files = files_of(self.stored, mark["contents"])
        self.may_show(sink, number, head["number"], files)
        known = self.tables.get(number, {}).get(sink, [])
        require(files == known, f"I14: {sink} at checkpoint {number} lists {files}, its contents are {known}")
        self.shown[sink].append(number)
        self.heads[sink] = head

    def deleted(self, sink: str | None, key: str) -> None:
        """An object is about to be deleted (I8)."""
        if key.startswith("_probe/") or (sink is not None and key.startswith(LISTS)):
            return  # what a list names is judged file by file
        if sink is None and key.startswith("sinks/"):
            require(is_old_mark(self.numbers, key), f"I14: {key} is deleted, and its table is not beyond it")
            return
        if sink is None:
            self.object_deleted(key)
            return
        number, token = owner(key)
        require(number in self.ended, f"I8: {key} is deleted, and may still be published")
        for one in (self.at(sink), *self.retained) if self.ended[number] == token else ():
            shows = key in self.tables[one].get(sink, ())
            require(not shows, f"I8: {key} is deleted, and checkpoint {one} shows it")

    # -- transitions ------------------------------------------------------------------------------------------------

    def complete(self, done: Json, restored: list[str] | None = None) -> Json:
        """A checkpoint is completed.

        Args:
            restored: what the savepoint had consumed that it is a copy of; None: an epoch has run.
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
        self.tables[number] = {sink: files_of(self.stored, one) for sink, one in contents.items()}
        return dict(plan)

    def abort(self, event: Json) -> int:
        """A checkpoint is aborted. Returns: its id."""
        number = int(event["pending"]["checkpoint_id"])
        require(number not in self.ended, f"I9: checkpoint {number} is over already")
        self.ended[number] = 0
        return number

    def confirm(self, event: Json) -> None:
        """Sinks confirm a checkpoint."""
        number = event["checkpoint_id"]
        for sink in event["sinks"]:
            require(number in self.shown[sink], f"I11: {sink} confirms checkpoint {number}, and has not published it")

    def _read(self, handle: Json) -> bytes:
        body = self.stored(handle["key"])
        require(body is not None, f"I7: {handle['key']} is committed, and is not there")
        found = (len(body or b""), hashlib.sha256(body or b"").hexdigest())
        require(found == (handle["size"], handle["sha256"]), f"I7: {handle['key']} is not what the event says")
        return body or b""


def owner(key: str) -> tuple[int, int]:
    """The checkpoint and the token that a staged file of a table belongs to."""
    found = STAGED.match(key)
    require(found, f"I8: {key} of a sink is no staged file")
    return (int(found[1]), int(found[2])) if found else (0, 0)


def lineage(checkpoint: int, parent_of: Callable[[int], int]) -> list[int]:
    """The checkpoints that one continues, itself included, ascending; those no longer retained, too."""
    found = []
    while checkpoint:
        found.append(checkpoint)
        checkpoint = parent_of(checkpoint)
    return found[::-1]
