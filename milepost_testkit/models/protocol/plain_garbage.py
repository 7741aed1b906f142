"""What of a job is garbage, since when, and what may go: a part of the plain model, by I8."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from milepost_testkit.models.protocol.require import require
from milepost_testkit.models.protocol.stored_entries import Json, covers

Since = tuple[int, int]
"""The version and the time at which something was listed."""


class PlainGarbage:
    """Entries are keys, or prefixes that end with a slash.

    Args:
        stored: reads an object of the job's store; None: it is not there. grace_ms: how long garbage stays.
    Attributes:
        entries: those that the newest state names one by one, not in a list.
    """

    def __init__(self, stored: Callable[[str], bytes | None], grace_ms: int) -> None:
        self._stored, self._grace_ms = stored, grace_ms
        self.entries: set[str] = set()
        self._since: dict[str, Since] = {}
        self._every: dict[str, list[Since]] = {}  # a heartbeat may be listed again: it may go once any is over
        self._twice: set[str] = set()
        self._lists: dict[str, int] = {}

    def add(self, entries: Iterable[str], since: Since, needed: set[str], pending: str | None) -> None:
        """Garbage is listed: nothing that is needed, and nothing below the prefix of a pending checkpoint."""
        for entry in entries:
            hurt = [key for key in needed if covers(entry, key)]
            require(not hurt, f"I8: {entry} is listed as garbage, and {hurt[:1]} is needed")
            still = pending is not None and entry.startswith(pending)
            require(not still, f"I8: {entry} is listed as garbage, and its checkpoint is pending")
            self._since.setdefault(entry, since)
            self._every.setdefault(entry, []).append(since)

    def fold(self, named: Json) -> None:
        """Entries become a list: what is garbage stays the same, and none of it may go earlier."""
        folded = (named["since_version"], named["since_ms"])
        for key in self.keys_of(named):
            if key in self._twice:  # it goes with either list, and may be gone by the other one
                self._every[key].append(folded)
                continue
            require(key in self._since, f"I8: {key} is folded, and was not listed")
            require(folded >= self._since[key], f"I8: {key} may go earlier once it is folded")
            self._since[key] = folded

    def delete(self, event: Json, later: Callable[[int], bool]) -> None:
        """Garbage is said to be gone. later: whether a leader after that version, or nobody, could still need it."""
        gone = set(event["prefixes"])
        for digest, done in event["lists"]:
            gone |= set(self.keys_of({"sha256": digest, "count": self._lists[digest], "done": 0})[:done])
        for entry in (gone - self.entries) & self._since.keys():
            known = self._since.pop(entry)
            every = self._every[entry] if entry in self._twice else [known]
            over = [version for version, since_ms in every if event["at_ms"] - since_ms > self._grace_ms]
            require(over, f"I8: {entry} is deleted before the grace period is over")
            require(any(later(version) for version in over), f"I8: {entry} is deleted by no later leader")

    def may_go(self, key: str, now_ms: int) -> None:
        """An object is about to be deleted as garbage."""
        listed = [since for entry, known in self._every.items() if covers(entry, key) for _, since in known]
        require(listed, f"I8: {key} is deleted, and was never listed as garbage")
        require(now_ms - min(listed) > self._grace_ms, f"I8: {key} is deleted before the grace period is over")

    def keys_of(self, named: Json | None) -> list[str]:
        """The keys of a list of garbage, which is there before the entry of the log that names it."""
        if named is None:
            return []
        body = self._stored(f"garbage/{named['sha256']}.json")
        require(body is not None, f"I8: list of garbage {named['sha256']} is named, and is not there")
        keys = json.loads(body or b"")["keys"]
        require(len(keys) == named["count"] > named["done"], f"I8: {named} names {len(keys)} keys")
        return list(keys)

    def shown(self) -> dict[str, Since]:
        """What is garbage, by the model: without what two lists name."""
        return {key: self._since[key] for key in sorted(self._since.keys() - self._twice)}

    def told(self, state: Json) -> dict[str, Since]:
        """The same by a stored state, which names entries one by one and in lists."""
        self._lists |= {one["sha256"]: one["count"] for one in state["garbage_lists"]}
        listed = {one["prefix"]: (one["since_version"], one["since_ms"]) for one in state["garbage"]}
        for one in state["garbage_lists"]:
            for key in self.keys_of(one)[one["done"] :]:
                if key in listed:  # a heartbeat, as what a completion and then what a subsumption leaves
                    self._twice.add(key)
                listed[key] = (one["since_version"], one["since_ms"])
        return {key: listed[key] for key in sorted(listed.keys() - self._twice)}
