"""Results of the manifest log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milepost.protocol.manifest.transaction import AlreadyDone, Transition
from milepost.protocol.records import ManifestState


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry of the log."""

    version: int
    write_id: str
    state: ManifestState


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """Result of a transition that did not raise.

    Attributes:
        landed_version: the version we wrote. None when `decide` returned `AlreadyDone` and nothing was written.
        outcome: last result of `decide`. For a landed version, the transition that landed.
        head: read after the transition. Act only on this, because another session may have written since (I1).
    """

    landed_version: int | None
    outcome: Transition | AlreadyDone
    head: Head | None


@dataclass(frozen=True, slots=True)
class DeferredResult:
    """Result of a transition that reads the following head on request.

    Attributes:
        outcome: last result of `decide`.
        state: of the version that landed, else of the head that `decide` used.
        head: reads the head after the transition. Act only on this: another session may have written since (I1).
    """

    outcome: Transition | AlreadyDone
    state: ManifestState | None
    head: Callable[[], Head | None]


@dataclass(frozen=True, slots=True)
class LandedTransition:
    """A transition that this process has landed, for observers.

    Another session may have written since, so an observer must not change anything in the store because of it.

    Attributes:
        before: state before the transition. None: there was no manifest.
    """

    version: int
    before: ManifestState | None
    transition: Transition
