"""Record which objects a source with `start: latest` never reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.sources import SourceObject


@dataclass(frozen=True, slots=True)
class SkippedAtStart:
    """The objects that a source with ``start: latest`` recorded as consumed, and never reads.

    Attributes:
        newest: key of the one that was modified last, at `newest_ms`.
    """

    objects: int
    newest: str
    newest_ms: int

    @classmethod
    def of(cls, baseline: Sequence[SourceObject]) -> SkippedAtStart | None:
        """Return what an epoch records; None: nothing is skipped."""
        if not baseline:
            return None
        newest = max(baseline, key=lambda obj: (obj.last_modified_ms, obj.key))
        return cls(len(baseline), newest.key, newest.last_modified_ms)
