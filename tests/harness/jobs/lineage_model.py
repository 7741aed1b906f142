"""What a job with timelines must be, in plain words: every checkpoint ever completed, and tables that follow.

Nothing here asks the coordinator. A lineage is the walk from parent to parent, for the model forgets nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

HOUR_MS = 3_600_000
SINKS = ("lake", "late")


@dataclass(frozen=True)
class Done:
    """A checkpoint that was completed: its timeline and parent, and when it was triggered."""

    number: int
    timeline: str
    parent: int
    at_ms: int


@dataclass
class Table:
    """One sink: an atomic head, all former heads, and the compare-and-swap rules of its contract (I14)."""

    mark: tuple[str, int] | None = None
    decision: int = 0
    content: tuple[int, ...] = ()
    history: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def commit(self, done: Done) -> bool:
        """Say whether this checkpoint's rows are in the table now, or were put there."""
        if done.number in self.content:
            return True
        first = self.mark is None and done.parent == 0
        if not first and self.mark != (done.timeline, done.parent):
            return False
        self._show((done.timeline, done.number), (*self.content, done.number))
        return True

    def follow(self, switch: Switch, numbers: Iterable[int], base: int) -> bool:
        """Show the table as of `base` with these checkpoints after it; False when a newer switch was followed."""
        if switch.decision <= self.decision:
            return switch.decision == self.decision
        self.decision = switch.decision
        self._show((switch.timeline, switch.to), (*self.history.get(base, ()), *numbers))
        return True

    def _show(self, mark: tuple[str, int], content: tuple[int, ...]) -> None:
        self.mark, self.content = mark, content
        assert self.history.setdefault(mark[1], content) == content, "one checkpoint, one table"


@dataclass(frozen=True)
class Switch:
    """A change of the live timeline, as whoever lets the sinks follow remembers it, also long after."""

    decision: int
    timeline: str
    to: int


@dataclass
class Job:
    """Everything that was ever completed, what is retained of it, and what each timeline has reached.

    Attributes:
        left: by timeline that a switch has left: its head. lived: what was completed on the live one.
    """

    done: dict[int, Done] = field(default_factory=dict)
    retained: set[int] = field(default_factory=set)
    shown: dict[int, set[str]] = field(default_factory=dict)
    owed: dict[int, set[str]] = field(default_factory=dict)
    live: str = "main"
    heads: dict[str, int] = field(default_factory=lambda: {"main": 0})
    forks: set[str] = field(default_factory=set)
    forked_at: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    lived: set[int] = field(default_factory=set)
    following: Switch | None = None
    must_follow: set[str] = field(default_factory=set)
    tables: dict[str, Table] = field(default_factory=lambda: {sink: Table() for sink in SINKS})

    def lineage(self, number: int) -> list[int]:
        """The checkpoints that one continues, itself included, ascending; those no longer retained, too."""
        found = []
        while number:
            found.append(number)
            number = self.done[number].parent
        return found[::-1]

    def completed(self, done: Done) -> None:
        self.done[done.number] = done
        self.retained.add(done.number)
        self.shown[done.number] = set()
        self.heads[done.timeline] = done.number
        if done.timeline == self.live:
            self.lived.add(done.number)
            self.owed[done.number] = set(SINKS)

    def switched(self, switch: Switch, left: Iterable[str]) -> None:
        """What the live timeline still owed its sinks is void: they follow to the new one instead."""
        self.forks -= {*left, switch.timeline}
        self.left |= {name: self.heads[name] for name in (self.live, *left)}
        self.live = switch.timeline
        self.heads[switch.timeline] = switch.to
        self.owed.clear()
        self.following, self.must_follow = switch, set(SINKS)

    def way(self, table: Table, to: int) -> tuple[int, list[int]]:
        """How a table gets to a checkpoint: the newest one of its history on the way, and what comes after it."""
        missing: list[int] = []
        while to and to not in table.history:
            missing.append(to)
            to = self.done[to].parent
        return to, missing[::-1]

    def kept(self, policy: tuple[int, int, int], roots: Iterable[int], lowest_pending: int | None) -> set[int]:
        """What retention has to keep of what is retained, by the words of the design."""
        on_live = self.retained & set(self.lineage(self.heads[self.live]))
        kept = {*roots, *self.owed, *(self.heads[name] for name in (self.live, *self.forks))}
        kept |= {self.forked_at[name] for name in self.forks}
        listed = {self.done[one].timeline for one in self.retained}
        gone_on = [
            self.retained & {*self.lineage(head), *(one for one in self.lived if one > head)}
            for name, head in self.left.items()
            if name in listed
        ]
        for group in (on_live, *gone_on):
            kept |= kept_by_a_plain_reading({one: self.done[one].at_ms for one in group}, *policy)
        kept |= {one for one in self.retained if self.done[one].timeline in self.forks}
        kept |= {one for one in self.retained if lowest_pending is not None and one >= lowest_pending}
        if self.must_follow and self.following is not None:
            kept |= set(self.lineage(self.following.to))
        for number in sorted(kept & self.retained):
            while number and self.shown[number] < set(SINKS):
                kept.add(number)
                number = self.done[number].parent
        return kept & self.retained


def kept_by_a_plain_reading(times_ms: dict[int, int], last: int, hourly: int, daily: int) -> set[int]:
    """Which checkpoints the tiers keep: what the words of the spec say, one checkpoint at a time.

    Args:
        times_ms: when each was triggered, by id.
    """
    kept = set()
    for number, at in times_ms.items():
        newer = {other: time for other, time in times_ms.items() if other > number}
        if len(newer) < last:
            kept.add(number)
        for tier, length in ((hourly, HOUR_MS), (daily, 24 * HOUR_MS)):
            newest_of_its_interval = all(time // length != at // length for time in newer.values())
            later_intervals = {time // length for time in times_ms.values() if time // length > at // length}
            if newest_of_its_interval and len(later_intervals) < tier:
                kept.add(number)
    return kept
