"""Model of a job's garbage: entries, since when, and what may be deleted (I8)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from milepost_testkit.models.protocol.require import require
from milepost_testkit.models.protocol.stored_entries import Json, covers

Since = tuple[int, int]
"""The version and time (ms) at which an entry was listed."""


class PlainGarbage:
    """The garbage of one job. Entries are keys, or prefixes that end with a slash.

    Args:
        stored: returns an object of the job's store, or None if it does not exist. grace_ms: the grace period.
    Attributes:
        entries: the entries that the newest state names individually, not in a list.
    """

    def __init__(self, stored: Callable[[str], bytes | None], grace_ms: int) -> None:
        self._stored, self._grace_ms = stored, grace_ms
        self.entries: set[str] = set()
        self._since: dict[str, Since] = {}
        self._every: dict[str, list[Since]] = {}  # a heartbeat may be listed again, and is due when any listing is
        self._twice: set[str] = set()
        self._lists: dict[str, int] = {}

    def add(self, entries: Iterable[str], since: Since, needed: set[str], pending: str | None) -> None:
        """Check and add listed garbage: no needed key, and nothing below the prefix of a pending checkpoint."""
        for entry in entries:
            hurt = [key for key in needed if covers(entry, key)]
            require(not hurt, f"I8: {entry} is listed as garbage, and {hurt[:1]} is needed")
            still = pending is not None and entry.startswith(pending)
            require(not still, f"I8: {entry} is listed as garbage, and its checkpoint is pending")
            self._since.setdefault(entry, since)
            self._every.setdefault(entry, []).append(since)

    def fold(self, named: Json) -> None:
        """Check that entries moved into a list stay garbage and become due no earlier."""
        folded = (named["since_version"], named["since_ms"])
        for key in self.keys_of(named):
            if key in self._twice:  # due with either list, and possibly deleted by the other one
                self._every[key].append(folded)
                continue
            require(key in self._since, f"I8: {key} is folded, and was not listed")
            require(folded >= self._since[key], f"I8: {key} may go earlier once it is folded")
            self._since[key] = folded

    def delete(self, event: Json, later: Callable[[int], bool]) -> None:
        """Check garbage that an event records as deleted.

        Args:
            later: whether only leaders after that version, or none at all, could still need it.
        """
        gone = set(event["prefixes"])
        for digest, done in event["lists"]:
            gone |= set(self.keys_of({"sha256": digest, "count": self._lists[digest], "done": 0})[:done])
        for entry in (gone - self.entries) & self._since.keys():
            since = self._since.pop(entry)
            every = self._every[entry] if entry in self._twice else [since]
            over = [version for version, since_ms in every if event["at_ms"] - since_ms > self._grace_ms]
            require(over, f"I8: {entry} is deleted before the grace period is over")
            require(any(later(version) for version in over), f"I8: {entry} is deleted by no later leader")

    def can_migrate(self, key: str, now_ms: int) -> None:
        """Check that an object may be deleted as garbage now."""
        listed = [since for entry, listings in self._every.items() if covers(entry, key) for _, since in listings]
        require(listed, f"I8: {key} is deleted, and was never listed as garbage")
        require(now_ms - min(listed) > self._grace_ms, f"I8: {key} is deleted before the grace period is over")

    def keys_of(self, named: Json | None) -> list[str]:
        """Return the keys of a garbage list. The list is written before the manifest entry that names it."""
        if named is None:
            return []
        body = self._stored(f"garbage/{named['sha256']}.json")
        require(body is not None, f"I8: list of garbage {named['sha256']} is named, and is not there")
        keys = json.loads(body or b"")["keys"]
        require(len(keys) == named["count"] > named["done"], f"I8: {named} names {len(keys)} keys")
        return list(keys)

    def shown(self) -> dict[str, Since]:
        """Return the garbage by the model, without entries that two lists name."""
        return {key: self._since[key] for key in sorted(self._since.keys() - self._twice)}

    def told(self, state: Json) -> dict[str, Since]:
        """Return the same from a stored state, which names entries individually and in lists."""
        self._lists |= {one["sha256"]: one["count"] for one in state["garbage_lists"]}
        listed = {one["prefix"]: (one["since_version"], one["since_ms"]) for one in state["garbage"]}
        for one in state["garbage_lists"]:
            for key in self.keys_of(one)[one["done"] :]:
                if key in listed:  # a heartbeat, listed by the completion and again by the subsumption
                    self._twice.add(key)
                listed[key] = (one["since_version"], one["since_ms"])
        return {key: listed[key] for key in sorted(listed.keys() - self._twice)}
