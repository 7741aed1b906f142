"""What a job must be after each write that landed: a few dicts and lists, by the rules of DESIGN 3.

It reads the bytes that reached the store, and nothing of the code that wrote them: it has no codec, no coordinator, no
retention and no contents of its own. Each entry of the manifest must be one that the rules allow after the ones
before, and must say of the job's state what the model says.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from milepost_testkit.models.protocol.plain_garbage import PlainGarbage
from milepost_testkit.models.protocol.require import require
from milepost_testkit.models.protocol.stored_entries import entry_of, keys_in, prefix, state_of
from milepost_testkit.models.protocol.stored_tables import LISTS, STAGED, files_of, is_old_mark, mark_of

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

Json = dict[str, Any]


class PlainModel:
    """One job with one timeline.

    Args:
        sinks: their names. retained: how many of the newest checkpoints stay. tolerable: failures in a row.
        stored: reads an object of the job's store; None: it is not there.
    Attributes:
        ended: by checkpoint id: the winning token, 0: aborted. lineage: (checkpoint id, objects it consumed).
        chains: per sink, the checkpoint ids in the order of their commits. files: what its table then consisted of.
        numbers: the mark that each table carries.
        versions: by completed checkpoint: the version that completed it.
        answers: by (checkpoint, token): whether what reached the driver allows to complete.
        latest_ms: how far the clock has ever been.
        dead: sessions whose process is gone, as everybody can see. insisting: those that came to take over.
    """

    def __init__(
        self, sinks: Iterable[str], retained: int, tolerable: int, stored: Callable[[str], bytes | None]
    ) -> None:
        self._sinks, self._retained, self._tolerable, self._stored = sorted(sinks), retained, tolerable, stored
        self.version = 0
        self.status = "running"
        self.incarnation = 1
        self.next_id = 1
        self.head = 0
        self.leader: tuple[str, int] | None = None
        self.pending: Json | None = None
        self.retained: dict[int, Json] = {}
        self.failures = 0
        self.counted: set[int] = set()
        self.garbage = PlainGarbage(stored, TIMEOUT_MS)
        self._tokens: list[int] = []
        self.pins: dict[str, tuple[int, int]] = {}
        self.results: dict[int, tuple[str, str]] = {}
        self.ended: dict[int, int] = {}
        self.session_ends: dict[str, int] = {}
        self.lineage: list[tuple[int, list[str]]] = []
        self.final: int | None = None
        self.chains: dict[str, list[int]] = {sink: [] for sink in self._sinks}
        self.files: dict[str, dict[int, list[str]]] = {sink: {} for sink in self._sinks}
        self.numbers: dict[str, int] = dict.fromkeys(self._sinks, 0)
        self.versions: dict[int, int] = {}
        self.answers: dict[tuple[int, int], bool] = {}
        self.heartbeats: dict[str, int] = {}
        self.latest_ms = 0
        self.dead: set[str] = set()
        self.insisting: set[str] = set()

    # -- what reaches the stores ------------------------------------------------------------------------------------

    def entry(self, body: bytes) -> None:
        """A new entry of the manifest log, or the tombstone of one that nothing retained needs (I6)."""
        document = entry_of(body)
        if isinstance(document, list):
            version = document[1]
            require(
                version < min([self.version, *self._tokens]), f"I6: version {version} is compacted, and needed whole"
            )
            return
        event = document["event"]
        self.garbage.entries = {one["prefix"] for one in document["state"]["garbage"]}
        self._tokens = [one["token"] for one in document["state"]["checkpoints"]]
        require(document["version"] == self.version + 1, f"I1: version {document['version']} after {self.version}")
        self.version += 1
        getattr(self, "_" + re.sub(r"(?<!^)(?=[A-Z])", "_", event["type"]).lower())(event)
        said = state_of(document) | {"garbage": self.garbage.told(document["state"])}
        known = self.shown()
        wrong = {name: (said[name], known[name]) for name in known if said[name] != known[name]}
        require(not wrong, f"I2: after {event['type']} (said, expected): {wrong}")

    def sink_head(self, sink: str, body: bytes) -> None:
        """A new head of a sink's table (I14)."""
        head = json.loads(body)
        mark, chain = mark_of(self._stored, sink, head), self.chains[sink]
        number = mark["contents"]["checkpoint_id"]
        require(self.ended.get(number), f"I14: checkpoint {number} is published at {sink}, and not completed")
        require(number not in chain, f"I14: checkpoint {number} is published twice at {sink}")
        due = self.lineage[len(chain)][0]
        require(number == due, f"I14: {sink} publishes checkpoint {number}, {due} is next")
        require(head["number"] == self.versions[number], f"I14: {sink}: checkpoint {number} under {head['number']}")
        require(head["number"] > self.numbers[sink], f"I14: {sink} goes back from mark {self.numbers[sink]}")
        files = self.files[sink][number] = files_of(self._stored, mark["contents"])
        for key in files:
            owner, token = self._owner(key)
            require(owner in (*chain, number), f"I14: {sink}: {key} of no epoch that is published")
            require(token == self.ended[owner], f"I3: {sink}: {key} of another try is published")
        chain.append(number)
        self.numbers[sink] = head["number"]

    def deleted(self, sink: str | None, key: str) -> None:
        """An object is about to be deleted (I8)."""
        if key.startswith(("_probe/", "garbage/", LISTS)):
            return
        if sink is None and key.startswith("sinks/"):
            require(is_old_mark(self.numbers, key), f"I14: {key} is deleted, and its table is not beyond it")
            return
        if sink is not None:
            number, token = self._owner(key)
            winner, chain = self.ended.get(number), self.chains[sink]
            over = winner is not None and (winner != token or number in chain)
            require(over, f"I8: {key} is deleted, and may still be published")
            for one in (chain[-1], *self.retained) if winner == token else ():
                require(
                    key not in self.files[sink].get(one, ()), f"I8: {key} is deleted, and checkpoint {one} shows it"
                )
            return
        self.garbage.may_go(key, self.latest_ms)
        require(key not in self.needed(), f"I8: {key} is deleted, and a root needs it")

    # -- what follows from it ---------------------------------------------------------------------------------------

    def shown(self) -> Json:
        """The state, as far as the model has an opinion."""
        return {
            "status": self.status,
            "incarnation": self.incarnation,
            "next": self.next_id,
            "head": self.head,
            "leader": self.leader,
            "pending": self.pending and {name: self.pending[name] for name in ("id", "token", "base", "deadline")},
            "retained": {number: sorted(one["unconfirmed"]) for number, one in self.retained.items()},
            "failures": (self.failures, sorted(self.counted)),
            "garbage": self.garbage.shown(),
            "pins": dict(sorted(self.pins.items())),
            "results": self.results,
        }

    def needed(self) -> set[str]:
        """Every key of the job's store that something retained, or pending, names."""
        keys = {self.pending["plan"]} if self.pending else set()
        for one in self.retained.values():
            keys |= one["keys"]
        return keys

    def waiting(self) -> list[int]:
        """The completed checkpoints that some sink has not confirmed."""
        return [number for number, one in self.retained.items() if one["unconfirmed"]]

    def published(self, sink: str) -> int:
        """How many epochs of the lineage are in the sink's table."""
        return len(self.chains[sink])

    def epochs(self, count: int | None = None) -> list[list[str]]:
        """The objects that the first so many epochs consumed."""
        return [objects for _, objects in self.lineage[:count]]

    def unread(self, landed: Iterable[str]) -> set[str]:
        """The objects that no completed epoch has consumed."""
        return set(landed) - {name for objects in self.epochs() for name in objects}

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
        self.leader = (session, self.version)  # I3: a token is the version of the transition that granted it
        self.pending["token"] = self.version
        self.pending["prefixes"].append(self.version)

    def _checkpoint_completed(self, event: Json) -> None:
        done = event["checkpoint"]
        number, token = done["checkpoint_id"], done["token"]
        pending = self._pending_is(number)
        require(token == pending["token"], f"I3: checkpoint {number} completes under {token}, not {pending['token']}")
        require(self.answers.get((number, token)), f"I7: checkpoint {number}, token {token}: answers do not allow it")
        require(done["metadata"]["key"].startswith(prefix(number, token)), "I7: metadata of another token")
        metadata = self._read(done["metadata"])
        require(json.loads(metadata)["token"] == token, f"I7: checkpoint {number}: metadata of another token")
        plan = json.loads(self._read(done["plan"]))
        objects = [row[0] for source in plan["sources"].values() for row in source["objects"]]
        again = [name for name in objects if name not in self.unread(objects)]
        require(not again, f"checkpoint {number} reads {again} once more")
        keys = keys_in(metadata) | {done["metadata"]["key"], done["plan"]["key"]}
        self.retained[number] = {"unconfirmed": set(self._sinks), "keys": keys}
        self.lineage.append((number, objects))
        self.final = number if plan["final"] else self.final
        self.ended[number] = token
        require(done["version"] == self.version, f"I14: checkpoint {number} says that {done['version']} completed it")
        self.versions[number] = self.version
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
        number = event["pending"]["checkpoint_id"]
        pending = self._pending_is(number)
        if event["reason"] in COUNTED:
            self.failures += 1
            self.counted.add(number)
        self.ended[number] = 0
        self.session_ends[pending["session"]] = number
        self.pending = None
        self._list([prefix(number, one) for one in pending["prefixes"]], event["at_ms"])

    def _sinks_confirmed(self, event: Json) -> None:
        number = event["checkpoint_id"]
        for sink in event["sinks"]:
            require(number in self.chains[sink], f"I11: {sink} confirms checkpoint {number}, and has not published it")
            self.retained[number]["unconfirmed"].remove(sink)

    def _checkpoints_subsumed(self, event: Json) -> None:
        if event["confirmed"]:
            self._sinks_confirmed(event["confirmed"])
        self._must_lead(event["session_id"])
        kept = {self.head, *sorted(self.retained)[-self._retained :], *(pin[0] for pin in self.pins.values())}
        kept |= {self.pending["base"]} if self.pending else set()
        kept |= {number for number, one in self.retained.items() if one["unconfirmed"]}
        kept |= {chain[-1] for chain in self.chains.values() if chain}  # the tables go on from what they show
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

    def _read(self, handle: Json) -> bytes:
        body = self._stored(handle["key"])
        require(body is not None, f"I7: {handle['key']} is committed, and is not there")
        found = (len(body), hashlib.sha256(body).hexdigest())
        require(found == (handle["size"], handle["sha256"]), f"I7: {handle['key']} is not what the event says")
        return body

    def _owner(self, key: str) -> tuple[int, int]:
        found = STAGED.match(key)
        require(found, f"I8: {key} of a sink is no staged file")
        return int(found[1]), int(found[2])
