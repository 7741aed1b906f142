"""Object keys of a job below ``<storage>/<job>/``.

The functions for the keys of control objects are in `protocol/records/layout.py`.

    manifest/<20 digits of 10^19 - version>.json        the log; inverted, so that LIST returns the head first
    inputs/<sha256>.json                                the input plan of an epoch
    chk-<id>/t<token>/state/<uid>/<sha256>.parquet      state runs
    chk-<id>/t<token>/channel/<sha256>.arrow            buffers that an unaligned checkpoint overtook
    chk-<id>/t<token>/consumed/<source>-<sha256>.parquet    object versions that a source consumed
    chk-<id>/t<token>/dimensions/<source>-<sha256>.arrow    rows of a static source
    chk-<id>/t<token>/contents/<sink>-<sha256>.json     files that the checkpoint adds to and removes from a table
    chk-<id>/t<token>/metrics/<level>-<subtask>-a<attempt>*.json    task metrics of earlier levels, perhaps incomplete
    chk-<id>/t<token>/metrics/after-<step>.json         driver metrics from the commit on
    chk-<id>/t<token>/_heartbeat, _metadata             heartbeat of the lease; acks, verdict and all references
    chk-<id>/t<token>/_aborted                          abort notice for subtasks that still run
    chk-<id>/t<token>/_veto                             failing rows of an epoch that the quality gate vetoed
    vetoes/<id>.json                                    the same after the abort, which has its digest in its event
    sinks/<sink>/marks/<number>.json                    the contents that a table has
    sinks/<sink>/tables/<location>.json                 a table from before or after a migration
    sinks/<sink>/files/                                 data files behind a table in a database; as below a path
    figures/<day>/<version>-<write id>.parquet          figures of the epochs that completed on that day
    garbage/<sha256>.json                               a list of garbage that a manifest entry names
    savepoints/<name>/<creation>/                       root of a savepoint; keys in it repeat these

Ids are padded to 20 digits, so that LIST order is numeric. Manifest version 1 is
``manifest/09999999999999999999.json``, and version 2 sorts before it: ``manifest/09999999999999999998.json``. A writer
writes only below its own token (I3).
"""

from __future__ import annotations

import re

from milepost.errors import InvalidRequest, StateCorrupt
from milepost.protocol.records import (
    METRICS_NAME,
    CheckpointId,
    FencingToken,
    OperatorUid,
    is_job_directory,
    key_fault,
    landed_place,
    manifest_version,
    token_prefix,
)

_OWN_KEY = re.compile(r"(?:inputs/|chk-[0-9]{20}/t[0-9]{20}/).+", re.DOTALL)
_UID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def listed_version(key: str) -> int:
    """Return the version of a listed manifest key.

    Raises:
        StateCorrupt: the key is a foreign object in ``manifest/``.
    """
    try:
        return manifest_version(key)
    except InvalidRequest as error:
        raise StateCorrupt(
            f"object {key!r} in the manifest log is not a manifest entry. Nothing was changed.",
            hint="something else wrote there: move the object away, then run again",
            key=key,
        ) from error


def state_prefix(checkpoint_id: CheckpointId, token: FencingToken, uid: OperatorUid) -> str:
    """Return the prefix of an operator's state runs of this checkpoint."""
    return f"{token_prefix(checkpoint_id, token)}state/{_uid(uid)}/"


def channel_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return the prefix of the channel state of this checkpoint."""
    return f"{token_prefix(checkpoint_id, token)}channel/"


def consumed_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return the prefix of the runs of consumed object versions of this checkpoint."""
    return f"{token_prefix(checkpoint_id, token)}consumed/"


def dimensions_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return the prefix of the copies of static sources that this checkpoint made."""
    return f"{token_prefix(checkpoint_id, token)}dimensions/"


def contents_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return the prefix of the table contents of this checkpoint."""
    return f"{token_prefix(checkpoint_id, token)}contents/"


def metrics_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return the prefix of the metrics of the Spark attempts of one try."""
    return f"{token_prefix(checkpoint_id, token)}{METRICS_NAME}"


def after_commit_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return the prefix of the driver's metrics from the commit on."""
    return f"{metrics_prefix(checkpoint_id, token)}after-"


def after_commit_key(checkpoint_id: CheckpointId, token: FencingToken, step: str) -> str:
    """Return the key of the metrics that one process measured of these steps."""
    return f"{after_commit_prefix(checkpoint_id, token)}{step}.json"


def require_own_key(key: str, *, within: str = "") -> str:
    """Return a key from stored metadata if it is a key of this job.

    Args:
        within: a prefix that it must have, e.g. `token_prefix` of the metadata that names it. "" allows any key below
            ``inputs/`` or ``chk-<id>/t<token>/``.
    Raises:
        StateCorrupt: the key leads outside the job, into the manifest, or outside `within`. It may neither be read
            nor deleted.
    """
    if key_fault(key) is not None or not _OWN_KEY.fullmatch(key) or not key.startswith(within) or key.endswith("/"):
        raise StateCorrupt(
            f"stored metadata names object {key!r}, which is not below {within or 'inputs/ or chk-<id>/t<token>/'!r} "
            "of this job. It was neither read nor deleted.",
            key=key,
        )
    return key


def require_own_prefix(prefix: str) -> str:
    """Return a garbage entry from the manifest if it is one object or one of the job's directories.

    Raises:
        StateCorrupt: any other prefix. Deleting by it could delete live objects (I8).
    """
    if landed_place(prefix) is not None and key_fault(prefix) is None:
        return prefix
    if not prefix.endswith("/"):
        return require_own_key(prefix)
    if not is_job_directory(prefix):
        raise StateCorrupt(
            f"the manifest's garbage list names prefix {prefix!r}; expected chk-<id>/, chk-<id>/t<token>/, "
            "chk-<id>/t<token>/metrics/ or landed/<source>/objects/<sequence>/. Nothing was deleted.",
            prefix=prefix,
        )
    return prefix


def _uid(uid: OperatorUid) -> str:
    if not _UID.fullmatch(uid):
        raise InvalidRequest(f"operator uid {uid!r} cannot be part of a key; expected letters, digits, '_', '-', '.'.")
    return uid
