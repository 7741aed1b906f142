"""Plain model of a job with timelines: every completed checkpoint, and tables that follow switches.

The model never calls the coordinator. It forgets no checkpoint, so a lineage is the walk from parent to parent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from milepost_testkit.models.protocol.retention_tiers import kept_on_timelines
from milepost_testkit.models.protocol.stored_job import lineage

SINKS = ("lake", "late")


@dataclass(frozen=True)
class Done:
    """A completed checkpoint. at_ms: its trigger time. version: the version that completed it."""

    number: int
    timeline: str
    parent: int
    at_ms: int
    version: int


@dataclass
class Table:
    """One sink's table, with the compare-and-set rules of the sink contract (I14).

    Attributes:
        number: number of the newest move. numbers: numbers of all moves.
        shows: the checkpoint it shows; None after an external writer moved the table.
    """

    number: int = 0
    numbers: set[int] = field(default_factory=set)
    shows: int | None = 0

    def move(self, number: int, to: int, *, follows: int | None = None, realigns: bool = False) -> bool:
        """Apply a move. Returns whether the table carries it, now or from an earlier call.

        Args:
            follows: the checkpoint that it must show; None allows any. realigns: move it even after a foreign move.
        """
        if self.shows is None and not realigns:
            return False
        if number <= self.number:
            return number in self.numbers
        if follows is not None and self.shows != follows:
            return False
        self.number, self.shows = number, to
        self.numbers.add(number)
        return True


@dataclass(frozen=True)
class Switch:
    """A decision that tables follow, as a session remembers it, possibly long after.

    Attributes:
        realigned: the sinks whose table is overwritten, whatever it shows.
    """

    decision: int
    timeline: str
    to: int
    realigned: frozenset[str] = frozenset()


@dataclass
class Job:
    """All completed checkpoints, the retained ones, and the head of each timeline.

    Attributes:
        left: heads of the timelines that a switch abandoned. lived: checkpoints completed on a live timeline.
    """

    done: dict[int, Done] = field(default_factory=dict)
    retained: set[int] = field(default_factory=set)
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
        """Return a checkpoint and its ancestors, ascending, including those no longer retained."""
        return lineage(number, lambda checkpoint: self.done[checkpoint].parent)

    def completed(self, done: Done) -> None:
        self.done[done.number] = done
        self.retained.add(done.number)
        self.heads[done.timeline] = done.number
        if done.timeline == self.live:
            self.lived.add(done.number)
            self.owed[done.number] = set(SINKS)

    def switched(self, switch: Switch, left: Iterable[str]) -> None:
        """Switch the live timeline. Its unpublished checkpoints are void, and all sinks must follow."""
        self.forks -= {*left, switch.timeline}
        self.left |= {name: self.heads[name] for name in (self.live, *left)}
        self.live = switch.timeline
        self.heads[switch.timeline] = switch.to
        self.owed.clear()
        self.following, self.must_follow = switch, set(SINKS)

    def realigned(self, switch: Switch, sink: str) -> None:
        """Realign one table to the head, whatever it shows. The duties of other sinks stay."""
        self.owed = {number: due - {sink} for number, due in self.owed.items() if due - {sink}}
        self.following = switch
        self.must_follow.add(sink)

    def kept(self, policy: tuple[int, int, int], roots: Iterable[int], lowest_pending: int | None) -> set[int]:
        """Return the retained checkpoints that retention must keep, by the rules of the design."""
        if self.must_follow:
            return set(self.retained)
        kept = {*roots, *self.owed, *(self.heads[name] for name in (self.live, *self.forks))}
        kept |= {self.forked_at[name] for name in self.forks}
        listed = {self.done[one].timeline for one in self.retained}
        left = [head for name, head in self.left.items() if name in listed]
        times_ms = {one: self.done[one].at_ms for one in self.retained}
        head = self.heads[self.live]
        kept |= kept_on_timelines(self.retained, self.lineage, head, left, self.lived, times_ms, policy)
        kept |= {one for one in self.retained if self.done[one].timeline in self.forks}
        kept |= {one for one in self.retained if lowest_pending is not None and one >= lowest_pending}
        for number in self.owed:
            kept |= {max((one for one in self.lineage(number) if one not in self.owed), default=0)}
        return kept & self.retained
