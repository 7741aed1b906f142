"""What a job with timelines must be, in plain words: every checkpoint ever completed, and tables that follow.

Nothing here asks the coordinator. A lineage is the walk from parent to parent, for the model forgets nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from milepost_testkit.models.protocol.retention_tiers import kept_on_timelines
from milepost_testkit.models.protocol.stored_job import lineage

SINKS = ("lake", "late")


@dataclass(frozen=True)
class Done:
    """A checkpoint that was completed: its timeline and parent, when it was triggered, by which version completed."""

    number: int
    timeline: str
    parent: int
    at_ms: int
    version: int


@dataclass
class Table:
    """One sink: what its table shows, under which number, and the compare-and-set rules of its contract (I14).

    Attributes:
        number: of the newest move; numbers: of all. shows: the checkpoint; None: somebody else has moved the table.
    """

    number: int = 0
    numbers: set[int] = field(default_factory=set)
    shows: int | None = 0

    def move(self, number: int, to: int, *, follows: int | None = None, realigns: bool = False) -> bool:
        """Say whether the table carries this move, now or before.

        Args:
            follows: the checkpoint that it must show; None: any. realigns: also when nobody knows what it shows.
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
    """A decision that tables follow, as whoever lets them follow remembers it, also long after.

    Attributes:
        realigned: the sinks whose table it overrules.
    """

    decision: int
    timeline: str
    to: int
    realigned: frozenset[str] = frozenset()


@dataclass
class Job:
    """Everything that was ever completed, what is retained of it, and what each timeline has reached.

    Attributes:
        left: by timeline that a switch has left: its head. lived: what was completed on the live one.
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
        """The checkpoints that one continues, itself included, ascending; those no longer retained, too."""
        return lineage(number, lambda one: self.done[one].parent)

    def completed(self, done: Done) -> None:
        self.done[done.number] = done
        self.retained.add(done.number)
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

    def realigned(self, switch: Switch, sink: str) -> None:
        """One table is to show the head whatever it shows; what others have yet to do stays."""
        self.owed = {number: due - {sink} for number, due in self.owed.items() if due - {sink}}
        self.following = switch
        self.must_follow.add(sink)

    def kept(self, policy: tuple[int, int, int], roots: Iterable[int], lowest_pending: int | None) -> set[int]:
        """What retention has to keep of what is retained, by the words of the design."""
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
