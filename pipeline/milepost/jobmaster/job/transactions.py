"""Transactions of a job's manifest answer what became of them, and the state that they led to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milepost.protocol.manifest.transaction.answers import Answer
from milepost.protocol.records.manifest_state import ManifestState


@dataclass(frozen=True, slots=True)
class TransactResult:
    """What the protocol answered, and the head's state afterwards: act outside the manifest only on the latter."""

    outcome: Answer
    state: ManifestState


@dataclass(frozen=True, slots=True)
class BegunTransaction:
    """What the protocol answered, and the state that it led to.

    Attributes:
        head: reads the head after it; outside the manifest, and the token's own prefix, act only on that.
    """

    outcome: Answer
    state: ManifestState
    head: Callable[[], ManifestState]
