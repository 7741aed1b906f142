"""Every key of a job below ``<storage>/<job>/``: control objects' (`protocol/records/layout.py`) and the data's.

    manifest/<20 digits of 10^19 - version>.json        the log; inverted, so that a LIST of one key finds the head
    inputs/<sha256>.json                                what an epoch planned to read
    chk-<id>/t<token>/state/<uid>/<sha256>.parquet      state runs
    chk-<id>/t<token>/channel/<sha256>.arrow            buffers that an unaligned checkpoint overtook
    chk-<id>/t<token>/consumed/<source>-<sha256>.parquet    object versions that a source consumed
    chk-<id>/t<token>/dimensions/<source>-<sha256>.arrow    what a static source held
    chk-<id>/t<token>/contents/<sink>-<sha256>.json     what the checkpoint did to the files of a table
    chk-<id>/t<token>/metrics/<level>-<subtask>-a<attempt>*.json    what tasks measured of earlier levels, or incomplete
    chk-<id>/t<token>/metrics/after-<step>.json         what the driver measured from the commit on
    chk-<id>/t<token>/_heartbeat, _metadata             the lease's sign of life; acks, verdict and all references
    chk-<id>/t<token>/_aborted                          to subtasks that still run: the checkpoint was aborted
    chk-<id>/t<token>/_veto                             failing rows of an epoch that the quality gate vetoed
    vetoes/<id>.json                                    the same, once it is aborted; the abort's event has its digest
    sinks/<sink>/marks/<number>.json                    which contents a table carries
    sinks/<sink>/tables/<location>.json                 a table from before or after a migration
    sinks/<sink>/files/                                 what a table in a database is a projection of; as below a path
    garbage/<sha256>.json                               a list of garbage that a manifest entry names
    savepoints/<name>/<creation>/                       root of a savepoint; keys in it repeat these

Ids are padded to 20 digits, so that LIST order is numeric. A writer writes only below its own token (I3).
"""

from __future__ import annotations

import re

from milepost.protocol.records.errors import InvalidRequest, StateCorrupt
from milepost.protocol.records.ids import CheckpointId, FencingToken, OperatorUid
from milepost.protocol.records.layout import METRICS_NAME, is_job_directory, key_fault, manifest_version, token_prefix

_OWN_KEY = re.compile(r"(?:inputs/|chk-[0-9]{20}/t[0-9]{20}/).+", re.DOTALL)
_UID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def listed_version(key: str) -> int:
    """Return the version that a listed manifest key stands for.

    Raises:
        StateCorrupt: something foreign lies in ``manifest/``.
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
    """Return where an operator's state runs of this checkpoint lie."""
    return f"{token_prefix(checkpoint_id, token)}state/{_uid(uid)}/"


def channel_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return where the channel state of this checkpoint lies."""
    return f"{token_prefix(checkpoint_id, token)}channel/"


def consumed_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return where the runs of the sets of consumed objects of this checkpoint lie."""
    return f"{token_prefix(checkpoint_id, token)}consumed/"


def dimensions_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return where the copies of what this checkpoint was the first to look up in lie."""
    return f"{token_prefix(checkpoint_id, token)}dimensions/"


def contents_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return where the records of what this checkpoint did to its tables lie."""
    return f"{token_prefix(checkpoint_id, token)}contents/"


def metrics_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return where the Spark attempts of one try leave their measurements."""
    return f"{token_prefix(checkpoint_id, token)}{METRICS_NAME}"


def after_commit_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return where the driver leaves what it measured from the commit on."""
    return f"{metrics_prefix(checkpoint_id, token)}after-"


def after_commit_key(checkpoint_id: CheckpointId, token: FencingToken, step: str) -> str:
    """Key of what one process measured of these steps."""
    return f"{after_commit_prefix(checkpoint_id, token)}{step}.json"


def require_own_key(key: str, *, within: str = "") -> str:
    """Return a key read back from stored metadata, if it can be one of this job's.

    Args:
        within: a prefix it must lie in, e.g. `token_prefix` of the metadata it was read from; "" = anywhere in
            ``inputs/`` or ``chk-<id>/t<token>/``.
    Raises:
        StateCorrupt: it leads out of the job, into the manifest, or out of `within`. It may neither be read
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
    """Return a garbage entry read back from the manifest, if it is one object or an own directory.

    Raises:
        StateCorrupt: any other prefix: deleting by it could take what is still live (I8).
    """
    if not prefix.endswith("/"):
        return require_own_key(prefix)
    if not is_job_directory(prefix):
        raise StateCorrupt(
            f"the manifest's garbage list names prefix {prefix!r}; expected chk-<id>/, chk-<id>/t<token>/ or "
            "chk-<id>/t<token>/metrics/. Nothing was deleted.",
            prefix=prefix,
        )
    return prefix


def _uid(uid: OperatorUid) -> str:
    if not _UID.fullmatch(uid):
        raise InvalidRequest(f"operator uid {uid!r} cannot be part of a key; expected letters, digits, '_', '-', '.'.")
    return uid
