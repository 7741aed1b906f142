"""Manifest transactions of an existing job: how one is decided, and its results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.errors import ProtocolViolation
from milepost.protocol.manifest.transaction import Answer
from milepost.protocol.records import ManifestState

if TYPE_CHECKING:
    from milepost.protocol.manifest import Request
    from milepost.storage.log import Decide


@dataclass(frozen=True, slots=True)
class TransactResult:
    """The protocol's answer, and the re-read head's state. Act outside the manifest only on the latter."""

    outcome: Answer
    state: ManifestState


@dataclass(frozen=True, slots=True)
class BegunTransaction:
    """The protocol's answer, and the state that it produced.

    Attributes:
        head: re-reads the head. Act outside the manifest, and the token's own prefix, only on that.
    """

    outcome: Answer
    state: ManifestState
    head: Callable[[], ManifestState]


def decision(request: Request, check: Callable[[ManifestState], None] | None, at_least_ms: int) -> Decide:
    """Return the decision of a request. Arguments: as of `JobContext.transact`."""
    from milepost.protocol.manifest import decide

    def decided(state: ManifestState | None, now_ms: int) -> Answer:
        head = require_state(state)
        if check is not None:
            check(head)
        return decide(head, request, max(now_ms, at_least_ms))

    return decided


def require_state(state: ManifestState | None) -> ManifestState:
    """Return the state of an existing job. Its manifest cannot disappear."""
    if state is None:
        raise ProtocolViolation("the job's manifest existed and is now missing. Nothing was written.")
    return state
