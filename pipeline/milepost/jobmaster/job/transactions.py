"""Results of manifest transactions: the protocol's answer and the state after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milepost.protocol.manifest.transaction import Answer
from milepost.protocol.records import ManifestState


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
