"""Object keys of a job, relative to `<storage>/<job>/`.

Numbers are zero-padded to 20 digits, so byte order is numeric order.
"""

from __future__ import annotations

import re

from milepost.errors import InvalidRequest
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId, FencingToken

MANIFEST_PREFIX = "manifest/"
INPUTS_PREFIX = "inputs/"
"""Input records, named by their content."""

CHECKPOINTS_PREFIX = "chk-"
METADATA_NAME = "_metadata"
METRICS_NAME = "metrics/"
"""Below a token prefix: measurements of each Spark attempt. Nothing refers to them."""

SAVEPOINTS_PREFIX = "savepoints/"
"""Followed by ``<name>/<creation>/``: self-contained copies of checkpoints, owned by people."""

VETOES_PREFIX = "vetoes/"
"""Followed by ``<id>.json``: failing rows of an epoch that the quality gate vetoed. Only people read them."""

GARBAGE_PREFIX = "garbage/"
"""Followed by ``<sha256>.json``: lists of garbage, named by their content."""

SINKS_PREFIX = "sinks/"
"""Followed by the sink's name and one of

* ``marks/<number>.json``: describes table contents; the table's commit refers to a mark by its number,
* ``tables/<location>.json``: a table from before or after a migration,
* ``files/``: the files that a database table is a projection of, laid out as below a path.
"""

LANDED_PREFIX = "landed/"
"""Followed by the source's name and one of

* ``records/<number>.json``: the records of the source's log, numbered like the manifest, newest first,
* ``objects/<sequence>/<write id>/``: Parquet objects with the rows of a record,
* ``failure.json``: why the last landing failed. Each failure overwrites the one before.
"""

FIGURES_PREFIX = "figures/"
"""Followed by ``<day>/<version>-<write id>.parquet``: rows of figures of past epochs, stored permanently."""

PROBE_PREFIX = "_probe/"
"""Where the start-up probe writes and deletes its objects. Nothing ever refers to them."""

SAVEPOINT_DOCUMENT = "savepoint.json"
"""Written last into a savepoint's root; without it the savepoint does not exist."""

_VERSION_CEILING = 10**19
_DIGITS = 20
_CHECKPOINT_KEY = re.compile(r"chk-(\d{20})/(?:t(\d{20})/)?")
_OWN_DIRECTORY = re.compile(rf"chk-\d{{20}}/(?:t\d{{20}}/(?:{METRICS_NAME})?)?")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\\]")
_MANIFEST_KEY = re.compile(r"manifest/(\d{20})\.json")
_MARK_KEY = re.compile(rf"{SINKS_PREFIX}[^/]+/marks/\d{{20}}\.json")
_REGISTERED_KEY = re.compile(rf"{SINKS_PREFIX}[^/]+/tables/[0-9a-f]{{64}}\.json")
_STAGED_FILE = re.compile(rf"{SINKS_PREFIX}([^/]+)/files/")
_LANDED_RECORD_KEY = re.compile(rf"{LANDED_PREFIX}([^/]+)/records/(\d{{20}})\.json")
_LANDED_OBJECT_KEY = re.compile(rf"{LANDED_PREFIX}([^/]+)/objects/(\d{{20}})/[^/]+/[^/]+\.parquet")
_LANDED_DIRECTORY = re.compile(rf"{LANDED_PREFIX}([^/]+)/objects/(\d{{20}})/")
_LANDING_FAILURE = re.compile(rf"{LANDED_PREFIX}[^/]+/failure\.json")
_VETO_KEY = re.compile(rf"{VETOES_PREFIX}\d{{20}}\.json")
_FIGURES_KEY = re.compile(rf"{FIGURES_PREFIX}(\d{{4}}-\d\d-\d\d)/(\d{{20}})-[0-9a-f]{{32}}\.parquet")
_SAVEPOINT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_SAVEPOINT_ROOT = re.compile(rf"{SAVEPOINTS_PREFIX}[a-z0-9][a-z0-9_-]{{0,62}}/[0-9a-f]{{32}}/")


def marks_prefix(sink: str) -> str:
    """Return the prefix of the marks of one sink."""
    return f"{SINKS_PREFIX}{sink}/marks/"


def staged_files_prefix(sink: str) -> str:
    """Return the prefix of the files of a sink with a table in a database."""
    return f"{SINKS_PREFIX}{sink}/files/"


def sink_of_staged_file(key: str) -> str | None:
    """Return the sink whose `staged_files_prefix` contains the key; None for any other key."""
    match = _STAGED_FILE.match(key)
    return None if match is None else match[1]


def mark_key(sink: str, number: int) -> str:
    """Return the key of one mark; numbers are manifest versions."""
    return f"{marks_prefix(sink)}{number:0{_DIGITS}d}.json"


def is_mark_key(key: str) -> bool:
    return _MARK_KEY.fullmatch(key) is not None


def registered_tables_prefix(sink: str) -> str:
    """Return the prefix of the tables of one sink that a migration has registered."""
    return f"{SINKS_PREFIX}{sink}/tables/"


def registered_table_key(sink: str, location: str) -> str:
    """Return the key of one registered table; its location is a SHA-256."""
    return f"{registered_tables_prefix(sink)}{location}.json"


def is_registered_table_key(key: str) -> bool:
    return _REGISTERED_KEY.fullmatch(key) is not None


def landed_records_prefix(source: str) -> str:
    """Return the prefix of the records of one source's log."""
    return f"{LANDED_PREFIX}{source}/records/"


def landed_objects_prefix(source: str) -> str:
    """Return the prefix of the landed objects of one source."""
    return f"{LANDED_PREFIX}{source}/objects/"


def landed_record_key(source: str, sequence: int) -> str:
    """Return the key of one record of a source's log. Newer records have smaller keys, as in `manifest_key`."""
    return f"{landed_records_prefix(source)}{_VERSION_CEILING - sequence:0{_DIGITS}d}.json"


def landed_sequence(key: str) -> int | None:
    """Return the sequence of the record with this key; None for any other key."""
    match = _LANDED_RECORD_KEY.fullmatch(key)
    return None if match is None else _VERSION_CEILING - int(match[2])


def landed_object_place(key: str) -> tuple[str, int] | None:
    """Return the source of a landed object, and the sequence of the record that it was written for.

    None for any other key.
    """
    match = _LANDED_OBJECT_KEY.fullmatch(key)
    return None if match is None else (match[1], int(match[2]))


def landing_failure_key(source: str) -> str:
    """Return the key of the last failed landing of one source."""
    return f"{LANDED_PREFIX}{source}/failure.json"


def is_landing_failure_key(key: str) -> bool:
    return _LANDING_FAILURE.fullmatch(key) is not None


def landed_source_of_key(key: str) -> str | None:
    """Return the source to whose log a record or a landed object belongs; None for any other key."""
    match = _LANDED_RECORD_KEY.fullmatch(key) or _LANDED_OBJECT_KEY.fullmatch(key)
    return None if match is None else match[1]


def landed_directory(source: str, sequence: int) -> str:
    """Return the directory of everything that any landing wrote for one record: ``landed/<source>/objects/<number>/``.

    A trimmed log deletes it as a whole.
    """
    return f"{landed_objects_prefix(source)}{sequence:0{_DIGITS}d}/"


def landed_place(entry: str) -> tuple[str, int] | None:
    """Return the source and the sequence of a record's key or of a `landed_directory`; None for any other entry."""
    match = _LANDED_DIRECTORY.fullmatch(entry)
    if match is not None:
        return match[1], int(match[2])
    match = _LANDED_RECORD_KEY.fullmatch(entry)
    return None if match is None else (match[1], _VERSION_CEILING - int(match[2]))


def landed_objects_folder(sequence: int, write_id: str) -> str:
    """Return where a landing writes the objects of a record, below `landed_objects_prefix`.

    No two landings share a folder, because write ids are unique (L2).
    """
    return f"{sequence:0{_DIGITS}d}/{write_id}/"


def landed_object_sequence(key: str) -> int:
    """Return the sequence of the record that has an object, by its key below `landed_objects_prefix`."""
    return int(key.partition("/")[0])


def manifest_key(version: int) -> str:
    """Return the key of one manifest version.

    Newer versions have smaller keys, so a LIST of one key finds the head::

        version 1 -> manifest/09999999999999999999.json
        version 2 -> manifest/09999999999999999998.json

    Raises:
        InvalidRequest: version is not in 1..10**19 - 1.
    """
    if not 1 <= version < _VERSION_CEILING:
        raise InvalidRequest(f"manifest version {version} refused: expected 1..{_VERSION_CEILING - 1}.")
    return f"{MANIFEST_PREFIX}{_VERSION_CEILING - version:0{_DIGITS}d}.json"


def manifest_version(key: str) -> int:
    """Return the version that a manifest key names. Raises InvalidRequest for any other key."""
    match = _MANIFEST_KEY.fullmatch(key)
    version = 0 if match is None else _VERSION_CEILING - int(match[1])
    if version < 1:
        raise InvalidRequest(f"{key!r} is not the key of a manifest version: expected manifest/<20 digits>.json.")
    return version


def input_key(sha256: str) -> str:
    """Return the key of the input record with this digest."""
    return f"{INPUTS_PREFIX}{sha256}.json"


def garbage_list_key(sha256: str) -> str:
    """Return the key of the garbage list with this digest."""
    return f"{GARBAGE_PREFIX}{sha256}.json"


def checkpoint_prefix(checkpoint_id: CheckpointId) -> str:
    """Return ``chk-<id>/``: everything that any attempt writes for one checkpoint."""
    return f"{CHECKPOINTS_PREFIX}{checkpoint_id:0{_DIGITS}d}/"


def token_prefix(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return ``chk-<id>/t<token>/``: the only prefix below which the holder of that token writes (I3)."""
    return f"{checkpoint_prefix(checkpoint_id)}t{token:0{_DIGITS}d}/"


def metadata_key(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return the key under which the holder of that token writes the checkpoint's metadata."""
    return token_prefix(checkpoint_id, token) + METADATA_NAME


def heartbeat_key(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return the key of the object that the driver of `run_epoch` rewrites while it works (I10)."""
    return token_prefix(checkpoint_id, token) + "_heartbeat"


def abort_notice_key(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return the key of the object that notifies subtasks of a fenced Spark job that their checkpoint was aborted."""
    return token_prefix(checkpoint_id, token) + "_aborted"


def staged_veto_key(checkpoint_id: CheckpointId, token: FencingToken) -> str:
    """Return the key under which the holder of that token stores the failing rows of a vetoed epoch."""
    return token_prefix(checkpoint_id, token) + "_veto"


def veto_key(checkpoint_id: CheckpointId) -> str:
    """Return the key of the failing rows of an epoch that was aborted because of them."""
    return f"{VETOES_PREFIX}{checkpoint_id:0{_DIGITS}d}.json"


def is_veto_key(key: str) -> bool:
    """Return whether `veto_key` makes this key."""
    return _VETO_KEY.fullmatch(key) is not None


def figures_prefix(day: str) -> str:
    """Return the prefix of the figures of one day. day: of the completion in UTC, ``2026-11-30``."""
    return f"{FIGURES_PREFIX}{day}/"


def figures_key(day: str, version: int, write_id: str) -> str:
    """Return the key of an object of figures.

    Args:
        version: every checkpoint that completed up to this manifest version has its row in this or another object.
        write_id: 32 hexadecimal digits, new for each write, so that no writer overwrites the rows of another.
    """
    return f"{figures_prefix(day)}{version:0{_DIGITS}d}-{write_id}.parquet"


def figures_place(key: str) -> tuple[str, int] | None:
    """Return the day and the version of a `figures_key`; None for any other key."""
    match = _FIGURES_KEY.fullmatch(key)
    return None if match is None else (match[1], int(match[2]))


def savepoint_name_fault(name: str) -> str | None:
    """Return why a text cannot name a savepoint, or None. Digits alone are refused: they mean a checkpoint id."""
    if not _SAVEPOINT_NAME.fullmatch(name):
        return "expected 1 to 63 of a-z, 0-9, '_' and '-', the first a letter or a digit"
    return "digits alone are the id of a checkpoint" if name.isdigit() else None


def savepoint_root(name: str, creation: str) -> str:
    """Return ``savepoints/<name>/<creation>/``, where only one creation of one savepoint ever writes.

    Args:
        creation: 32 lower-case hexadecimal digits, new for each try, so no key of a disposed savepoint is reused.
    Raises:
        InvalidRequest: the name or the creation is invalid.
    """
    prefix = f"{SAVEPOINTS_PREFIX}{name}/{creation}/"
    fault = savepoint_name_fault(name) or (None if _SAVEPOINT_ROOT.fullmatch(prefix) else "it has no valid creation")
    if fault is not None:
        raise InvalidRequest(f"savepoint name {name!r} refused: {fault}. Nothing was written.")
    return prefix


def savepoint_root_of_key(key: str) -> str | None:
    """Return the ``savepoints/<name>/<creation>/`` that contains the key; None for any other key."""
    match = _SAVEPOINT_ROOT.match(key)
    return None if match is None else match[0]


def copy_pin_name(root: str) -> str:
    """Return the name of the pin that protects this root while a savepoint is copied below it."""
    return f"copy to {root}"


def checkpoint_of_key(key: str) -> CheckpointId | None:
    """Return the checkpoint whose prefix contains the key; None for any other key."""
    match = _CHECKPOINT_KEY.match(key)
    return None if match is None else CheckpointId(int(match[1]))


def garbage_checkpoint(entry: str) -> CheckpointId | None:
    """Return the checkpoint below which a garbage entry is. Records of a trimmed log are of checkpoint 0.

    None for a savepoint's root, and for anything that cannot be garbage.
    """
    return NO_CHECKPOINT if landed_place(entry) is not None else checkpoint_of_key(entry)


def token_prefix_of_key(key: str) -> str | None:
    """Return the ``chk-<id>/t<token>/`` that contains the key; None for any other key."""
    match = _CHECKPOINT_KEY.match(key)
    return None if match is None or match[2] is None else match[0]


def token_of_prefix(prefix: str) -> tuple[CheckpointId, FencingToken] | None:
    """Return the checkpoint and the token of a ``chk-<id>/t<token>/``; None for anything else."""
    match = _CHECKPOINT_KEY.fullmatch(prefix)
    return None if match is None or match[2] is None else (CheckpointId(int(match[1])), FencingToken(int(match[2])))


def is_job_directory(prefix: str) -> bool:
    """Return whether a prefix is a directory of a checkpoint, token, token's metrics, savepoint or landed record."""
    is_own = _OWN_DIRECTORY.fullmatch(prefix) is not None or _LANDED_DIRECTORY.fullmatch(prefix) is not None
    return is_own or savepoint_root_of_key(prefix) == prefix


def key_fault(key: str) -> str | None:
    """Return why a stored reference must not be followed, or None. It must stay below the job's own prefix.

    Stored keys are untrusted (DESIGN 9): the object they come from may have been written by another session.
    """
    if not key:
        return "it is empty"
    if key.startswith("/"):
        return "it is absolute"
    if _UNPRINTABLE.search(key):
        return "it has a control character or a backslash"
    parts = key.removesuffix("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "it has an empty, `.` or `..` part"
    return None
