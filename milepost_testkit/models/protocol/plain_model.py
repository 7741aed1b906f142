"""Plain model of a job after each write, by the rules of DESIGN 3.

The model reads only stored bytes. It shares no codec, coordinator, retention or contents code with the product. Each
manifest entry must be allowed after the previous ones, and its state must equal the model's state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from milepost_testkit.models.protocol.plain_garbage import PlainGarbage
from milepost_testkit.models.protocol.require import require
from milepost_testkit.models.protocol.retention_tiers import kept_by_tiers
from milepost_testkit.models.protocol.stored_entries import Json, prefix, state_of
from milepost_testkit.models.protocol.stored_job import StoredJob, owner
from milepost_testkit.models.protocol.stored_tables import LISTS

TIMEOUT_MS = 600_000
HEARTBEAT_MS = 60_000
MAX_UNCONFIRMED = 3
COUNTED = {
    "IO_EXCEPTION",
    "CHECKPOINT_ASYNC_EXCEPTION",
    "CHECKPOINT_EXPIRED",
    "CHECKPOINT_DECLINED",
    "FINALIZE_CHECKPOINT_FAILURE",
    "SINK_PREPARE_FAILED",
    "ATTEMPTS_MIXED",
    "ACKNOWLEDGEMENT_MISSING",
    "STATE_CORRUPT",
}
"""Of the reasons that can occur here, those that say that the epoch itself failed."""


class PlainModel(StoredJob):
    """A job with one timeline.

    Args:
        retained: number of newest checkpoints to retain. tolerable: tolerated consecutive failures.
    Attributes:
        retained: by checkpoint id, the sinks that have yet to confirm it.
    """

    def __init__(
        self, sinks: Iterable[str], retained: int, tolerable: int, stored: Callable[[str], bytes | None]
    ) -> None:
        super().__init__(sinks, stored)
        self._retained, self._tolerable = retained, tolerable
        self.status = "running"
        self.incarnation = 1
        self.next_id = 1
        self.head = 0
        self.leader: tuple[str, int] | None = None
        self.pending: Json | None = None
        self.retained: dict[int, set[str]] = {}
        self.failures = 0
        self.counted: set[int] = set()
        self.garbage = PlainGarbage(stored, TIMEOUT_MS)
        self.pins: dict[str, tuple[int, int]] = {}
        self.results: dict[int, tuple[str, str]] = {}
        self.session_ends: dict[str, int] = {}
        self.final: int | None = None

    # -- what reaches the stores ------------------------------------------------------------------------------------

    def transition(self, before: Json, event: Json) -> None:
        self.garbage.entries = {one["prefix"] for one in self.state["garbage"]}
        getattr(self, "_" + re.sub(r"(?<!^)(?=[A-Z])", "_", event["type"]).lower())(event)
        said = state_of(self.state) | {"garbage": self.garbage.told(self.state)}
        known = self.expected()
        wrong = {name: (said[name], known[name]) for name in known if said[name] != known[name]}
        require(not wrong, f"I2: after {event['type']} (said, expected): {wrong}")

    def may_show(self, sink: str, number: int, decision: int, files: list[str]) -> None:
        """Check that a table shows the next epoch of the lineage, once, with the files of published epochs."""
        chain = self.shown[sink]
        require(self.ended.get(number), f"I14: checkpoint {number} is published at {sink}, and not completed")
        require(number not in chain, f"I14: checkpoint {number} is published twice at {sink}")
        due = self.epochs()[self.published(sink)]
        require(number == due, f"I14: {sink} publishes checkpoint {number}, {due} is next")
        require(decision == self.versions[number], f"I14: {sink}: checkpoint {number} under {decision}")
        for key in files:
            of, token = owner(key)
            require(of in (*chain, number), f"I14: {sink}: {key} of no epoch that is published")
            require(token == self.ended[of], f"I3: {sink}: {key} of another try is published")

    def deleted(self, sink: str | None, key: str) -> None:
        """Check the deletion of an object (I8)."""
        super().deleted(sink, key)
        if sink is not None and not key.startswith(("_probe/", LISTS)):
            number, token = owner(key)
            over = self.ended[number] != token or number in self.shown[sink]
            require(over, f"I8: {key} is deleted, and may still be published")

    def object_deleted(self, key: str) -> None:
        if key.startswith("garbage/"):
            return
        self.garbage.can_migrate(key, self.latest_ms)
        require(key not in self.needed(), f"I8: {key} is deleted, and a root needs it")

    # -- what follows from it ---------------------------------------------------------------------------------------

    def expected(self) -> Json:
        """Return the expected state, without the parts that the model does not cover."""
        return {
            "status": self.status,
            "incarnation": self.incarnation,
            "next": self.next_id,
            "head": self.head,
            "leader": self.leader,
            "pending": self.pending and {name: self.pending[name] for name in ("id", "token", "base", "deadline")},
            "retained": {number: sorted(waits) for number, waits in self.retained.items()},
            "failures": (self.failures, sorted(self.counted)),
            "garbage": self.garbage.shown(),
            "pins": dict(sorted(self.pins.items())),
            "results": self.results,
        }

    def needed(self) -> set[str]:
        """Return the keys of the job's store that retained or pending checkpoints name."""
        pending = {self.pending["plan"]} if self.pending else set()
        return pending.union(*(self.keys[number] for number in self.retained))

    def waiting(self) -> list[int]:
        """Return the completed checkpoints that some sink has not confirmed."""
        return [number for number, waits in self.retained.items() if waits]

    def published(self, sink: str) -> int:
        """Return the number of epochs in the sink's table."""
        return len(self.shown[sink]) - 1

    def epochs(self) -> list[int]:
        """Return the completed checkpoints, in order."""
        return self.lineage(self.head)

    def unread(self, landed: Iterable[str]) -> set[str]:
        """Return the landed objects that no completed epoch has consumed."""
        return set(landed).difference(self.consumed(self.head))

    # -- the transitions --------------------------------------------------------------------------------------------

    def _job_created(self, event: Json) -> None:
        require(self.version == 1, "I2: a job is created twice")

    def _checkpoint_triggered(self, event: Json) -> None:
        pending, session = event["pending"], event["leader"]["session_id"]
        number = pending["checkpoint_id"]
        require(self.status == "running", f"I4: checkpoint {number} is triggered while the job is {self.status}")
        require(self.pending is None, f"I2: checkpoint {number} is triggered beside another")
        require(number not in self.ended and number == self.next_id, f"I5: checkpoint id {number}, not {self.next_id}")
        waiting = self.waiting()
        require(len(waiting) <= MAX_UNCONFIRMED, f"I8: checkpoints {waiting} wait for a sink, and one more begins")
        if session.startswith("airflow:"):
            require(session not in self.session_ends, f"I3: {session} begins a second checkpoint")
        self.next_id += 1
        self.pins = {name: pin for name, pin in self.pins.items() if pin[1] > event["at_ms"]}
        self.pending = {
            "id": number,
            "base": self.head,
            "deadline": event["at_ms"] + TIMEOUT_MS,
            "plan": pending["plan"]["key"],
            "session": session,
            "prefixes": [],
        }
        self._grant(session)

    def _checkpoint_rebound(self, event: Json) -> None:
        pending = self._pending_is(event["checkpoint_id"])
        require(event["session_id"] == pending["session"], f"I3: {event['session_id']} takes another's checkpoint")
        pending["deadline"] = max(pending["deadline"], event["at_ms"] + TIMEOUT_MS)
        self._grant(pending["session"])

    def _grant(self, session: str) -> None:
        self.granted[self.pending["id"]] = self.version
        self.leader = (session, self.version)  # I3: a token is the version of the transition that granted it
        self.pending["token"] = self.version
        self.pending["prefixes"].append(self.version)

    def _checkpoint_completed(self, event: Json) -> None:
        done = event["checkpoint"]
        number, token = done["checkpoint_id"], done["token"]
        pending = self._pending_is(number)
        require(done["parent"] == self.head, f"I7: checkpoint {number} continues {done['parent']}, not {self.head}")
        plan = self.complete(done)
        self.retained[number] = set(self.shown)
        self.final = number if plan["final"] else self.final
        self.session_ends[pending["session"]] = number
        self.head, self.pending = number, None
        self.failures, self.counted = 0, set()
        losers = [prefix(number, one) for one in pending["prefixes"] if one != token]
        self._list([*losers, prefix(number, token) + "_heartbeat"], event["at_ms"])

    def _checkpoint_aborted(self, event: Json) -> None:
        number, by = event["pending"]["checkpoint_id"], event["aborted_by"]
        pending = self._pending_is(number)
        if by != pending["session"] and event["reason"] != "ABORTED_BY_USER":
            require(self._lease_is_over(by, pending), f"I10: {by} takes checkpoint {number} from a living holder")
        self._give_up(event)
        if self.failures > self._tolerable:
            self.status = "failed"

    def _lease_is_over(self, by: str, pending: Json) -> bool:
        beat = self.heartbeats.get(prefix(pending["id"], pending["token"]) + "_heartbeat")
        return (
            by in self.insisting
            or pending["session"] in self.dead
            or self.latest_ms >= pending["deadline"]
            or (beat is not None and self.latest_ms - beat >= HEARTBEAT_MS)
        )

    def _give_up(self, event: Json) -> None:
        pending = self._pending_is(event["pending"]["checkpoint_id"])
        number = self.abort(event)
        if event["reason"] in COUNTED:
            self.failures += 1
            self.counted.add(number)
        self.session_ends[pending["session"]] = number
        self.pending = None
        self._list([prefix(number, one) for one in pending["prefixes"]], event["at_ms"])

    def _sinks_confirmed(self, event: Json) -> None:
        self.confirm(event)
        for sink in event["sinks"]:
            self.retained[event["checkpoint_id"]].remove(sink)

    def _checkpoints_subsumed(self, event: Json) -> None:
        if event["confirmed"]:
            self._sinks_confirmed(event["confirmed"])
        self._must_lead(event["session_id"])
        kept = kept_by_tiers(dict.fromkeys(self.retained, 0), self._retained, 0, 0)
        kept |= {self.head, *(pin[0] for pin in self.pins.values())}
        kept |= {self.pending["base"]} if self.pending else set()
        kept |= {*self.waiting(), *map(self.at, self.shown)}  # the tables continue from what they show
        lost = kept.intersection(event["checkpoint_ids"])
        require(not lost, f"I8: checkpoints {sorted(lost)} are subsumed, and must stay")
        for number in event["checkpoint_ids"]:
            del self.retained[number]
        self._list([*event["garbage"], *self.garbage.keys_of(event["garbage_list"])], event["at_ms"])

    def _garbage_listed(self, event: Json) -> None:
        self.pins = {name: pin for name, pin in self.pins.items() if pin[1] > event["at_ms"]}
        self._list([*event["garbage"], *self.garbage.keys_of(event["garbage_list"])], event["at_ms"])

    def _garbage_folded(self, event: Json) -> None:
        self.garbage.fold(event["garbage_list"])

    def _log_compacted(self, event: Json) -> None:
        require(event["through"] < self.version, "I6: the head is compacted")

    def _garbage_deleted(self, event: Json) -> None:
        leads = self.leader is not None and self.leader[0] == event["session_id"]

        def later(version: int) -> bool:
            if leads:
                return self.leader is not None and self.leader[1] > version
            return self.pending is None or self.pending["prefixes"][0] > version

        self.garbage.delete(event, later)

    def _job_resumed(self, event: Json) -> None:
        require(self.status == "failed", f"I4: a job that is {self.status} is resumed")
        self.status = "running"
        self.failures, self.counted = 0, set()

    def _job_canceled(self, event: Json) -> None:
        require(self.status in ("running", "failed"), f"I4: a job that is {self.status} is canceled")
        for aborted in event["aborted"]:
            self._give_up(aborted)
        self._end("canceled")

    def _job_finished(self, event: Json) -> None:
        require(self.status == "running" and self.pending is None, "I4: a job is finished beside an epoch")
        require(self.head == self.final, f"I4: finished at checkpoint {self.head}, the final one is {self.final}")
        self._all_published("finished")
        self._end("finished")

    def _end(self, status: str) -> None:
        require(self.incarnation not in self.results, f"I4: incarnation {self.incarnation} ends twice")
        self.status, self.leader = status, None
        self.results[self.incarnation] = (status, "dirty")

    def _job_cleaned(self, event: Json) -> None:
        self._all_published("clean")
        status, _ = self.results[event["incarnation"]]
        self.results[event["incarnation"]] = (status, "clean")

    def _job_started(self, event: Json) -> None:
        require(self.status in ("canceled", "finished"), f"I4: a job that is {self.status} is started")
        require(self.results[self.incarnation][1] == "clean", "I4: started before the clean-up is over")
        self.incarnation += 1
        self.status = "running"
        self.failures, self.counted = 0, set()

    def _checkpoint_pinned(self, event: Json) -> None:
        pin = event["pin"]
        require(pin["checkpoint_id"] in self.retained, f"I8: {pin} of a checkpoint that is not retained")
        self.pins = {name: one for name, one in self.pins.items() if one[1] > event["at_ms"]}
        self.pins[pin["name"]] = (pin["checkpoint_id"], pin["until_ms"])

    def _checkpoint_unpinned(self, event: Json) -> None:
        del self.pins[event["name"]]

    # -- details ----------------------------------------------------------------------------------------------------

    def _pending_is(self, number: int) -> Json:
        require(number not in self.ended, f"I9: checkpoint {number} is over already")
        require(self.pending is not None and self.pending["id"] == number, f"I9: checkpoint {number} is not pending")
        return self.pending

    def _must_lead(self, session: str) -> None:
        require(self.leader is not None and self.leader[0] == session, f"I8: {session} does not lead")

    def _all_published(self, what: str) -> None:
        waiting = self.waiting()
        require(not waiting, f"I4: {what}, while checkpoints {waiting} wait for a sink")

    def _list(self, entries: Iterable[str], at_ms: int) -> None:
        pending = None if self.pending is None else f"chk-{self.pending['id']:020d}/"
        self.garbage.add(entries, (self.version, at_ms), self.needed(), pending)
