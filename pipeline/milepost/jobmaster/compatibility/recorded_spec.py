"""Read the spec that a checkpoint records."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from milepost.epoch import CheckpointMetadata
from milepost.errors import InvalidRequest
from milepost.jobspec.job import JobSpec
from milepost.jobspec.load import from_text


def recorded_spec(base: CheckpointMetadata) -> JobSpec | None:
    """Return the spec of a checkpoint; None: another version wrote it, and this one cannot read it."""
    return _parsed(base.spec_text)


@lru_cache(maxsize=4)
def _parsed(text: str) -> JobSpec | None:
    try:
        return from_text(text, Path("recorded.yaml")).spec
    except InvalidRequest:
        return None
