"""The identities of the protocol, each its own type so that no border takes a bare int for another."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import NewType

_NAMED = 5

CheckpointId = NewType("CheckpointId", int)
"""Rises strictly, across timelines, and is never reused (I5). The first is 1; 0 is the empty state."""

NO_CHECKPOINT = CheckpointId(0)
"""The empty state, which every timeline starts from."""

MAX_CHECKPOINT_ID = CheckpointId(10**18)
"""No id that comes from elsewhere is taken for one above it: a job has room for as many of its own."""

Epoch = NewType("Epoch", int)
"""One micro-batch on its timeline, counted from 1."""

FencingToken = NewType("FencingToken", int)
"""The manifest version of the transition that granted it (I3). A lower one is refused."""

TimelineId = NewType("TimelineId", str)
"""A lineage of checkpoints. The first is ``main``."""

SessionId = NewType("SessionId", str)
"""One Airflow DAG run (``airflow:<dag_id>/<run_id>``) or one CLI run (``cli:<uuid>``)."""


def checkpoint_name(checkpoint_id: int) -> str:
    """Return what a checkpoint is called in sentences; 0 is the state before the first one."""
    return f"checkpoint {checkpoint_id}" if checkpoint_id else "the empty state"


def format_checkpoints(ids: Sequence[CheckpointId]) -> str:
    """Return the checkpoints that need one object, or name one table, in words."""
    if len(ids) == 1:
        return f"checkpoint {ids[0]}"
    first = ", ".join(map(str, ids[:_NAMED]))
    return f"checkpoints {first}" + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")


IMPORT_SESSION_PREFIX = "import:"
"""How the ids of sessions begin that restore or bootstrap a checkpoint instead of running an epoch."""

SessionDigest = NewType("SessionDigest", str)
"""What the manifest remembers of a session that is over: ten characters, which no two sessions of a job share."""


def session_digest(session_id: SessionId) -> SessionDigest:
    """Return 60 bits of a session's id: a remembered one is mistaken for another once in 10**16 runs."""
    return SessionDigest(urlsafe_b64encode(sha256(session_id.encode()).digest())[:10].decode())


OperatorUid = NewType("OperatorUid", str)
"""The identity of an operator, and of its state, across versions of a job."""

MAIN_TIMELINE = TimelineId("main")

JOB_NAME_PATTERN = re.compile(r"[a-z](?:[a-z0-9-]|_(?!_)){0,62}")
KEY_HASH_SECRET_PATTERN = re.compile(r"[0-9a-f]{32}")
"""128 bits."""
