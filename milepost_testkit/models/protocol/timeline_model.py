"""Plain model of a job with all of its timelines, by its stored bytes.

The model follows each checkpoint to its parents and reads the objects that each epoch consumed. Those objects alone
determine tables and state at a checkpoint, through any history of epochs, aborts, rollbacks, backfills and
parallelisms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from milepost_testkit.models.protocol.require import require
from milepost_testkit.models.protocol.retention_tiers import kept_on_timelines
from milepost_testkit.models.protocol.stored_entries import Json, covers
from milepost_testkit.models.protocol.stored_job import StoredJob


class TimelineModel(StoredJob):
    """One job with all of its timelines.

    Attributes:
        left: heads of the timelines that a switch abandoned. lived: checkpoints completed on a live timeline.
        savepoints: consumed objects by name or location. restores: by session, the savepoint it will restore.
        saved_rules, rules, rule: the count rule by savepoint, by spec hash and by checkpoint.
        unreplayable: checkpoints that a backfill cannot replay past. trigger_times_ms: by checkpoint.
        policies: by session, the retention of its spec (last, hourly, daily).
    """

    def __init__(self, sinks: Iterable[str], stored: Callable[[str], bytes | None]) -> None:
        super().__init__(sinks, stored)
        self.listed: set[str] = set()
        self.switches: dict[int, Json] = {}
        self.left: dict[str, int] = {}
        self.lived: set[int] = set()
        self.savepoints: dict[str, list[str]] = {}
        self.restores: dict[str, list[str]] = {}
        self.saved_rules: dict[str, str] = {}
        self.rules: dict[str, str] = {}
        self.rule: dict[int, str] = {}
        self.unreplayable: set[int] = set()
        self.policies: dict[str, tuple[int, int, int]] = {}
        self.trigger_times_ms: dict[int, int] = {}

    # -- what follows from it ---------------------------------------------------------------------------------------

    @property
    def live(self) -> Json:
        """The stored live timeline."""
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
        """Whether a sink has yet to publish a checkpoint or to follow a switch."""
        waiting = any(one["unconfirmed"] for one in self.state["checkpoints"])
        return waiting or self.state["reconciliation"] is not None

    def needed(self) -> set[str]:
        """Return the keys of the job's store that retained checkpoints name."""
        keys = {key for one in self.retained for key in self.keys[one]}
        for timeline in self.state.get("timelines", ()):
            pending = timeline["pending"]
            keys |= {pending["plan"]["key"]} if pending else set()
        return keys

    # -- what reaches the stores ------------------------------------------------------------------------------------

    def transition(self, before: Json, event: Json) -> None:
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
                restored = event["leader"]["session_id"] in self.restores  # copied from a savepoint, without an epoch
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
                self.abort(event)
            case "JobCanceled":
                for aborted in event["aborted"]:
                    self.abort(aborted)
            case "ForkDisposed":
                if event["aborted"]:
                    self.abort(event["aborted"])
            case "SinksConfirmed":
                self.confirm(event)
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

    def _subsumed(self, before: Json, event: Json) -> None:
        dropped = set(event["checkpoint_ids"])
        lost = sorted(dropped & self._kept(before, self.policies[event["session_id"]]))
        require(not lost, f"I8: {lost} are subsumed, and must stay")
        require(before["reconciliation"] is None, f"I8: {sorted(dropped)} are subsumed, and a sink has yet to follow")
        for sink in self.heads:
            require(self.at(sink) not in dropped, f"I8: {self.at(sink)} is subsumed, and {sink} shows it")

    def _kept(self, state: Json, policy: tuple[int, int, int]) -> set[int]:
        """Return the retained checkpoints that must stay, by the rules of the design."""
        retained = {one["checkpoint_id"] for one in state["checkpoints"]}
        forks = {one["timeline_id"] for one in state["timelines"] if one["role"] == "fork"}
        kept = {one["checkpoint_id"] for one in (*state["pins"], *state["savepoints"])}
        kept |= {one["checkpoint_id"] for one in state["checkpoints"] if one["unconfirmed"] or one["timeline"] in forks}
        for one in state["timelines"]:
            kept |= {one["head"]} if one["role"] != "abandoned" else set()
            kept |= {one["pending"]["base"]} if one["pending"] else set()
            kept |= {one["parent"][1]} if one["role"] == "fork" else set()
        listed = {one["timeline_id"] for one in state["timelines"]}
        left = [head for name, head in self.left.items() if name in listed]
        return kept | kept_on_timelines(
            retained, self.lineage, self.head, left, self.lived, self.trigger_times_ms, policy
        )

    def _completed(self, done: Json) -> None:
        number, restored = done["checkpoint_id"], self.restores.get(done["session_id"])
        plan = self.complete(done, restored)
        self.lived |= {number} if done["timeline"] == self.state["live"] else set()
        self.unreplayable |= {number} if restored is not None or plan["final"] else set()
        self.rule[number] = self.rules[done["spec_hash"]]
        before = self.rule.get(done["parent"], self.rule[number])
        require(before == self.rule[number], f"checkpoint {number} continues {before} as {self.rule[number]}")

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

    def may_show(self, sink: str, number: int, decision: int, files: list[str]) -> None:
        switch = self.switches.get(decision)
        if switch is not None:
            require(switch["to"] == number, f"I14: {sink} follows {decision} to {number}, not {switch}")
            return
        require(self.versions.get(number) == decision, f"I14: {sink} shows {number} under {decision}")
        require(self.parents[number] == self.at(sink), f"I14: {sink}: {number} does not follow {self.at(sink)}")
        if decision > max(self.switches, default=0):
            on = number in self.lineage(self.head)
            require(on, f"I14: {sink} publishes {number}, which the live timeline does not have")

    def object_deleted(self, key: str) -> None:
        owner = next((one for one in self.retained if key in self.keys[one]), None)
        require(owner is None, f"I8: {key} is deleted, and checkpoint {owner} needs it")
        listed = any(covers(entry, key) for entry in self.listed)
        require(listed or not key.startswith("chk-"), f"I8: {key} is deleted, and not listed as garbage")
