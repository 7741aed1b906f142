"""The ids of the protocol, each with its own type so that one is never passed for another."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import NewType

_MAX_LISTED_IDS = 5

CheckpointId = NewType("CheckpointId", int)
"""Strictly increasing across timelines, never reused (I5). The first is 1; 0 is the empty state."""

NO_CHECKPOINT = CheckpointId(0)
"""The empty state, from which every job starts."""

MAX_CHECKPOINT_ID = CheckpointId(10**18)
"""Upper bound for ids that are imported from elsewhere; it leaves a job as many ids of its own."""

Epoch = NewType("Epoch", int)
"""One micro-batch on its timeline, counted from 1."""

FencingToken = NewType("FencingToken", int)
"""The manifest version of the transition that granted it (I3). A lower one is refused."""

TimelineId = NewType("TimelineId", str)
"""A line of checkpoints. The first is ``main``."""

SessionId = NewType("SessionId", str)
"""One Airflow DAG run (``airflow:<dag_id>/<run_id>``) or one CLI run (``cli:<uuid>``)."""


def checkpoint_name(checkpoint_id: int) -> str:
    """Return how messages name a checkpoint; 0 is the state before the first one."""
    return f"checkpoint {checkpoint_id}" if checkpoint_id else "the empty state"


def format_checkpoints(ids: Sequence[CheckpointId]) -> str:
    """Return checkpoint ids as text: ``checkpoint 4``, or ``checkpoints 4, 5 and 2 more``."""
    if len(ids) == 1:
        return f"checkpoint {ids[0]}"
    first = ", ".join(map(str, ids[:_MAX_LISTED_IDS]))
    return f"checkpoints {first}" + (f" and {len(ids) - _MAX_LISTED_IDS} more" if len(ids) > _MAX_LISTED_IDS else "")


IMPORT_SESSION_PREFIX = "import:"
"""Prefix of the ids of sessions that restore or bootstrap a checkpoint instead of running an epoch."""

SessionDigest = NewType("SessionDigest", str)
"""Short digest by which the manifest remembers a past session: ten characters, unique within a job."""


def session_digest(session_id: SessionId) -> SessionDigest:
    """Return 60 bits of a digest of the session id: it collides with a remembered one in 1 of 10**16 runs."""
    return SessionDigest(urlsafe_b64encode(sha256(session_id.encode()).digest())[:10].decode())


OperatorUid = NewType("OperatorUid", str)
"""The identity of an operator, and of its state, across versions of a job."""

MAIN_TIMELINE = TimelineId("main")

JOB_NAME_PATTERN = re.compile(r"[a-z](?:[a-z0-9-]|_(?!_)){0,62}")
KEY_HASH_SECRET_PATTERN = re.compile(r"[0-9a-f]{32}")
"""128 bits."""
