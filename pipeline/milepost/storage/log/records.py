"""Records of what the manifest log answers: its newest entry, how a transition ended, and what landed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milepost.protocol.manifest.transaction.answers import AlreadyDone, Transition
from milepost.protocol.records.manifest_state import ManifestState


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry of the log."""

    version: int
    write_id: str
    state: ManifestState


@dataclass(frozen=True, slots=True)
class Transacted:
    """How a transition ended, other than by an error.

    Attributes:
        landed_version: the version we wrote; None when `decide` answered `AlreadyDone` and nothing was written.
        outcome: what `decide` answered last: for a landed version, the transition that landed.
        head: read after the transition. Act only on this: another session may have moved on since (I1).
    """

    landed_version: int | None
    outcome: Transition | AlreadyDone
    head: Head | None


@dataclass(frozen=True, slots=True)
class Begun:
    """A transition that has landed, and a look for the head after it; or an answer without one.

    Attributes:
        outcome: what `decide` answered last. state: of the version that landed, else of the head of the answer.
        head: reads the head after the transition, and raises what reading it raises. Act only on this: another session
            may have moved on since (I1).
    """

    outcome: Transition | AlreadyDone
    state: ManifestState | None
    head: Callable[[], Head | None]


@dataclass(frozen=True, slots=True)
class Landed:
    """A transition that this process has made, and what the state was before; None: there was no manifest.

    Another session may have moved on since: who is told acts on nothing in the store.
    """

    version: int
    before: ManifestState | None
    transition: Transition
