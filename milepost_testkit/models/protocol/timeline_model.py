"""What the live timeline of a job has consumed, by the bytes that reached its stores; DuckDB says what follows from it.

It follows each checkpoint to its parent, and reads which objects each of their epochs was to consume. What a table or
an operator's state must hold at a checkpoint is one query over those objects, whatever way led there: epochs, aborts,
rollbacks, backfills, other parallelisms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from milepost_testkit.models.protocol.lineage_model import kept_by_a_plain_reading
from milepost_testkit.models.protocol.require import require
from milepost_testkit.models.protocol.stored_entries import contents_in, covers, entry_of, keys_in
from milepost_testkit.models.protocol.stored_tables import LISTS, STAGED, files_of, is_old_mark, mark_of

Rows = list[tuple[Any, ...]]
Json = dict[str, Any]


class TimelineModel:
    """One job with all of its timelines.

    Args:
        landings: the folder of its one source, then those of other jobs whose savepoints it may be restored from.
        stored: reads an object of the job's store; None: it is not there.
    Attributes:
        state: of the newest manifest entry, as it is stored.
        left: by timeline that a switch has left: its head. lived: what was completed on the live one.
        parents, objects: by completed checkpoint: where it comes from, what its own epoch consumed.
        ended: by checkpoint id: the winning token, 0: aborted. granted: by checkpoint id: the token in force.
        heads: per sink, its newest head as it is stored. shown: per sink, the checkpoints that its table has shown, the
            newest last; 0: nothing. versions: by completed checkpoint: the version that completed it.
        tables: by completed checkpoint and sink: the files that its contents list.
        savepoints: by name or place: the objects that had been consumed. restores: by session: what it is about to
            restore. saved_rules, rules, rule: by savepoint, hash of a spec, checkpoint: what the counts count.
        unreplayable: checkpoints that no recorded input leads past. trigger_times_ms: by checkpoint.
        policies: by session: last, hourly, daily of the spec that it was given.
        answers, heartbeats, dead, insisting, latest_ms: what the world tells; see `PlainModel`.
    """

    def __init__(self, sinks: Iterable[str], landings: Sequence[Path], stored: Callable[[str], bytes | None]) -> None:
        self._landings, self.stored = landings, stored
        self._duckdb = duckdb.connect(config={"threads": 1})
        self._duckdb.execute("create table landed (name varchar, k bigint, v varchar)")
        self._loaded: set[str] = set()
        self._answered: dict[tuple[str, int], Rows] = {}
        self.version = 0
        self.state: Json = {}
        self.parents: dict[int, int] = {}
        self.objects: dict[int, list[str]] = {}
        self.keys: dict[int, set[str]] = {}
        self.ended: dict[int, int] = {}
        self.granted: dict[int, int] = {}
        self.listed: set[str] = set()
        self.switches: dict[int, Json] = {}
        self.left: dict[str, int] = {}
        self.lived: set[int] = set()
        self.heads: dict[str, Json | None] = dict.fromkeys(sinks)
        self.shown: dict[str, list[int]] = {sink: [0] for sink in self.heads}
        self.versions: dict[int, int] = {}
        self.tables: dict[int, dict[str, list[str]]] = {0: {}}
        self.savepoints: dict[str, list[str]] = {}
        self.restores: dict[str, list[str]] = {}
        self.saved_rules: dict[str, str] = {}
        self.rules: dict[str, str] = {}
        self.rule: dict[int, str] = {}
        self.unreplayable: set[int] = set()
        self.policies: dict[str, tuple[int, int, int]] = {}
        self.trigger_times_ms: dict[int, int] = {}
        self.answers: dict[tuple[int, int], bool] = {}
        self.heartbeats: dict[str, int] = {}
        self.dead: set[str] = set()
        self.insisting: set[str] = set()
        self.latest_ms = 0

    # -- what it says -----------------------------------------------------------------------------------------------

    @property
    def live(self) -> Json:
        """The live timeline, as it is stored."""
        return next(one for one in self.state["timelines"] if one["timeline_id"] == self.state["live"])

    @property
    def head(self) -> int:
        return int(self.live["head"]) if self.state else 0

    @property
    def status(self) -> str:
        return str(self.state["status"]) if self.state else "running"

    @property
    def retained(self) -> list[int]:
        return [one["checkpoint_id"] for one in self.state["checkpoints"]] if self.state else []

    @property
    def owed(self) -> bool:
        """Whether some sink has yet to publish, or to follow."""
        waiting = any(one["unconfirmed"] for one in self.state["checkpoints"])
        return waiting or self.state["reconciliation"] is not None

    def lineage(self, checkpoint: int) -> list[int]:
        """From the first checkpoint to this one."""
        found = []
        while checkpoint:
            found.append(checkpoint)
            checkpoint = self.parents[checkpoint]
        return found[::-1]

    def consumed(self, checkpoint: int) -> list[str]:
        """The objects that its lineage has consumed, in order."""
        return [name for one in self.lineage(checkpoint) for name in self.objects[one]]

    def counts(self, checkpoint: int) -> Rows:
        """Per key what the rule of its spec makes of the rows as of a checkpoint, by key."""
        rule = self.rule.get(checkpoint, "count(*)")
        return self._query(f"select k, ({rule})::bigint from {{}} group by k order by k", checkpoint)

    def seen(self, checkpoint: int) -> Rows:
        """The different rows as of a checkpoint, in order."""
        return self._query("select distinct k, v from {} order by k, v", checkpoint)

    def at(self, sink: str) -> int:
        """The checkpoint that the sink's table shows; 0: it is empty."""
        return self.shown[sink][-1]

    def _query(self, sql: str, checkpoint: int) -> Rows:
        names = self.consumed(checkpoint)
        for name in set(names) - self._loaded:
            self._loaded.add(name)
            path = next(str(folder / name) for folder in self._landings if (folder / name).is_file())
            source = "read_csv(?, header = true, columns = {'k': 'BIGINT', 'v': 'VARCHAR'})"
            self._duckdb.execute(f"insert into landed select ?, * from {source}", [name, path])
        if (sql, checkpoint) not in self._answered:  # what has led to a checkpoint never changes
            source = "(select k, v from landed where name in (select unnest(?)))"
            self._answered[sql, checkpoint] = self._duckdb.execute(sql.format(source), [names]).fetchall()
        return self._answered[sql, checkpoint]

    # -- what reaches the stores ------------------------------------------------------------------------------------

    def entry(self, body: bytes) -> None:
        """A new entry of the manifest log."""
        document = entry_of(body)
        if isinstance(document, list):
            version = document[1]
            needed = [one["token"] for one in self.state["checkpoints"]]
            require(version < min([self.version, *needed]), f"I6: version {version} is compacted, and needed whole")
            return
        event = document["event"]
        require(document["version"] == self.version + 1, f"I1: version {document['version']} after {self.version}")
        self.version += 1
        before, self.state = self.state, document["state"]
        self.listed |= {entry["prefix"] for entry in self.state["garbage"]}
        for one in self.state["garbage_lists"]:
            body = self.stored(f"garbage/{one['sha256']}.json")
            require(body is not None, f"I8: list of garbage {one['sha256']} is named, and is not there")
            self.listed |= set(json.loads(body or b"")["keys"])
        match event["type"]:
            case "CheckpointTriggered":
                number = event["pending"]["checkpoint_id"]
                require(number > max(self.granted, default=0), f"I5: checkpoint id {number} is given again")
                ended = before["status"] in ("canceled", "finished")
                restored = event["leader"]["session_id"] in self.restores  # copied, and not run
                require(restored or not ended, f"I4: epoch {number} begins in an ended job")
                due = before["reconciliation"] if event["timeline"] == self.state["live"] else None
                require(due is None, f"I14: epoch {number} begins, and sinks have yet to follow: {due}")
                self.trigger_times_ms[number] = event["at_ms"]
                self.granted[number] = self.version
            case "CheckpointRebound":
                self.granted[event["checkpoint_id"]] = self.version
            case "CheckpointCompleted":
                self._completed(event["checkpoint"])
            case "CheckpointAborted":
                self._aborted(event)
            case "JobCanceled":
                for aborted in event["aborted"]:
                    self._aborted(aborted)
            case "ForkDisposed":
                if event["aborted"]:
                    self._aborted(event["aborted"])
            case "SinksConfirmed":
                self._confirmed(event)
            case "SinkReconciled":
                head = self.heads[event["sink"]]
                require(head and head["number"] >= event["decision"], f"I11: {event['sink']} has not followed")
            case "SavepointCreated":
                saved = event["savepoint"]
                self.savepoints[saved["name"]] = self.consumed(saved["checkpoint_id"])
                self.saved_rules[saved["name"]] = self.rule[saved["checkpoint_id"]]
            case "SavepointDisposed":
                del self.savepoints[event["savepoint"]["name"]]
            case "TimelineSwitched":
                self._switched(before, event)
            case "CheckpointsSubsumed":
                self._subsumed(before, event)

    def _confirmed(self, event: Json) -> None:
        number = event["checkpoint_id"]
        for sink in event["sinks"]:
            require(number in self.shown[sink], f"I11: {sink} confirms {number}, and has not published it")

    def _subsumed(self, before: Json, event: Json) -> None:
        dropped = set(event["checkpoint_ids"])
        lost = sorted(dropped & self._kept(before, self.policies[event["session_id"]]))
        require(not lost, f"I8: {lost} are subsumed, and must stay")
        require(before["reconciliation"] is None, f"I8: {sorted(dropped)} are subsumed, and a sink has yet to follow")
        for sink in self.heads:
            require(self.at(sink) not in dropped, f"I8: {self.at(sink)} is subsumed, and {sink} shows it")

    def _kept(self, state: Json, policy: tuple[int, int, int]) -> set[int]:
        """What has to stay of what is retained, by the words of the design."""
        retained = {one["checkpoint_id"] for one in state["checkpoints"]}
        forks = {one["timeline_id"] for one in state["timelines"] if one["role"] == "fork"}
        kept = {one["checkpoint_id"] for one in (*state["pins"], *state["savepoints"])}
        kept |= {one["checkpoint_id"] for one in state["checkpoints"] if one["unconfirmed"] or one["timeline"] in forks}
        for one in state["timelines"]:
            kept |= {one["head"]} if one["role"] != "abandoned" else set()
            kept |= {one["pending"]["base"]} if one["pending"] else set()
            kept |= {one["parent"][1]} if one["role"] == "fork" else set()
        listed = {one["timeline_id"] for one in state["timelines"]}
        gone_on = [
            retained & {*self.lineage(head), *(one for one in self.lived if one > head)}
            for name, head in self.left.items()
            if name in listed
        ]
        for group in (retained & set(self.lineage(self.head)), *gone_on):
            kept |= kept_by_a_plain_reading({one: self.trigger_times_ms[one] for one in group}, *policy)
        return kept

    def _completed(self, done: Json) -> None:
        number, token = done["checkpoint_id"], done["token"]
        require(number not in self.ended, f"I9: checkpoint {number} is over already")
        require(token == self.granted[number], f"I3: checkpoint {number} completes under {token}")
        body, metadata = self.stored(done["plan"]["key"]), self.stored(done["metadata"]["key"])
        require(body and metadata, f"I7: checkpoint {number} is committed, and its objects are not there")
        plan = json.loads(body or b"")
        objects = [row[0] for source in plan["sources"].values() for row in source["objects"]]
        restored = self.restores.get(done["session_id"])
        if restored is not None:
            require(done["parent"] == 0, f"a restored checkpoint {number} continues {done['parent']}")
            objects = restored
        else:
            require(self.answers.get((number, token)), f"I7: checkpoint {number}: its answers do not allow it")
        again = set(objects).intersection(self.consumed(done["parent"]))
        require(not again, f"checkpoint {number} reads {sorted(again)} once more")
        self.ended[number] = token
        self.parents[number], self.objects[number] = done["parent"], objects
        self.lived |= {number} if done["timeline"] == self.state["live"] else set()
        self.unreplayable |= {number} if restored is not None or plan["final"] else set()
        self.rule[number] = self.rules[done["spec_hash"]]
        before = self.rule.get(done["parent"], self.rule[number])
        require(before == self.rule[number], f"checkpoint {number} continues {before} as {self.rule[number]}")
        self.keys[number] = keys_in(metadata or b"{}")
        self.keys[number] |= {done["metadata"]["key"], done["plan"]["key"]}
        require(done["version"] == self.version, f"I14: checkpoint {number} says that {done['version']} completed it")
        self.versions[number] = self.version
        tables = contents_in(metadata or b"{}")
        self.tables[number] = {sink: files_of(self.stored, contents) for sink, contents in tables.items()}

    def _aborted(self, event: Json) -> None:
        number = event["pending"]["checkpoint_id"]
        require(number not in self.ended, f"I9: checkpoint {number} is over already")
        self.ended[number] = 0

    def _switched(self, before: Json, event: Json) -> None:
        require(event["to"] == 0 or event["to"] in self.parents, f"a switch to {event['to']}, never completed")
        if event["kind"] == "fast_forward":
            left, taken = self.consumed(event["from_head"]), self.consumed(event["to"])
            require(sorted(left) == sorted(taken), f"fast-forward from what read {left} to what read {taken}")
        self.switches[self.version] = event
        open_still = {one["timeline_id"] for one in self.state["timelines"] if one["role"] != "abandoned"}
        for one in before["timelines"]:
            if one["role"] != "abandoned" and one["timeline_id"] not in open_still:
                self.left[one["timeline_id"]] = one["head"]

    def sink_head(self, sink: str, body: bytes) -> None:
        """A new head of a sink's table (I14)."""
        head = json.loads(body)
        before, mark, decision = self.heads[sink], mark_of(self.stored, sink, head), head["number"]
        number = int(mark["contents"]["checkpoint_id"]) if mark["contents"] else 0
        carried = before["number"] if before else 0
        require(decision > carried, f"I14: {sink} goes back from mark {carried} to {decision}")
        files = files_of(self.stored, mark["contents"])
        known = self.tables.get(number, {}).get(sink, [])
        require(files == known, f"I14: {sink} at checkpoint {number} lists {files}, its contents are {known}")
        switch = self.switches.get(decision)
        if switch is not None:
            require(switch["to"] == number, f"I14: {sink} follows {decision} to {number}, not {switch}")
        else:
            require(self.versions.get(number) == decision, f"I14: {sink} shows {number} under {decision}")
            require(self.parents[number] == self.at(sink), f"I14: {sink}: {number} does not follow {self.at(sink)}")
            if decision > max(self.switches, default=0):
                on = number in self.lineage(self.head)
                require(on, f"I14: {sink} publishes {number}, which the live timeline does not have")
        self.shown[sink].append(number)
        self.heads[sink] = head

    def deleted(self, sink: str | None, key: str) -> None:
        """An object is about to be deleted (I8)."""
        if key.startswith("_probe/"):
            return
        if sink is None and key.startswith("sinks/"):
            numbers = {name: head["number"] if head else 0 for name, head in self.heads.items()}
            require(is_old_mark(numbers, key), f"I14: {key} is deleted, and its table is not beyond it")
            return
        if sink is None:
            owner = next((one for one in self.retained if key in self.keys[one]), None)
            require(owner is None, f"I8: {key} is deleted, and checkpoint {owner} needs it")
            listed = any(covers(entry, key) for entry in self.listed)
            require(listed or not key.startswith("chk-"), f"I8: {key} is deleted, and not listed as garbage")
            return
        if key.startswith(LISTS):
            return  # what a list names is judged file by file
        found = STAGED.match(key)
        require(found, f"I8: {key} of sink {sink} is deleted, and is no staged file")
        number, token = (int(found[1]), int(found[2])) if found else (0, 0)
        require(number in self.ended, f"I8: {key} is deleted, and may still be published")
        won = self.ended[number] == token
        for one in (self.at(sink), *self.retained) if won else ():
            needs = key in self.tables[one].get(sink, ())
            require(not needs, f"I8: {key} of {sink} is deleted, checkpoint {one} needs it")

    def needed(self) -> set[str]:
        """Every key of the job's store that a retained checkpoint names."""
        keys = {key for one in self.retained for key in self.keys[one]}
        for timeline in self.state.get("timelines", ()):
            pending = timeline["pending"]
            keys |= {pending["plan"]["key"]} if pending else set()
        return keys
