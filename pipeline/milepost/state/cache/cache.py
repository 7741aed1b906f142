"""The node-local cache: decoded runs as memory-mapped Arrow files, always disposable.

One entry is one run as one key-group range sees it. Its name is a digest of what it equals: the run's own SHA-256,
the range, `max_parallelism`, the schema with its stored names, the keys and the format versions. So an entry is right
or is never asked for: what an attempt staged and nobody acknowledged is named by a run that no checkpoint lists. Two
attempts of one task produce the same run and the same bytes; each writes under a temporary name of its own and renames
it.

An entry belongs to the checkpoint that wrote its run, which its name says. Notifications (I11) bound the cache: of an
aborted checkpoint nothing stays; a folder is marked with the newest completed checkpoint whose subtasks used it, and
goes once that one is subsumed. What a restored checkpoint has replaced goes when it is restored.

    <directory>/9f2c…-0-64/1f0d….4711.9ab3c2d1.12.arrow    an entry of a run that checkpoint 12 wrote
                           14.completed                    checkpoint 14 was restored from this folder, and is complete

The name also carries size and CRC-32 of the content, checked before a process uses it first, and again when the file
changed: a torn or altered entry is ignored and replaced, so nothing is synced. A fault of the cache is logged and costs
a read of the store, nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from milepost.protocol.records.layout import checkpoint_of_key
from milepost.protocol.records.state_columns import EXPIRES_COLUMN, TIMER_COLUMN
from milepost.protocol.subtask.subtask_commands import Notification
from milepost.state.layers.integer_packing import narrowed, widened
from milepost.state.layers.interpolation_search import drifts_of
from milepost.state.layers.layer import Layer, empty_layer
from milepost.state.runs.evolution import stored_name
from milepost.state.runs.handles import RunHandle
from milepost.state.runs.identity import StateIdentity
from milepost.state.runs.runs import DELETED_COLUMN

CACHE_FORMAT = "milepost.cache/1"
_HASH_COLUMN = "__hash"
_DRIFT_COLUMN = "__drift"
SUFFIX = ".arrow"
TEMPORARY = ".tmp"
_COMPLETED = ".completed"
_STALE_TEMPORARY_S = 3_600

_mapped: dict[Path, tuple[pa.Schema, tuple[int, ...], Layer]] = {}
"""Entries that this process keeps mapped for the epochs that it runs after each other.

One whose file was removed would be held on the disk: `retain` lets go of it.
"""

_checked: dict[Path, tuple[int, ...]] = {}
"""Entries whose content this process has checked, by the version of their file."""

logger = logging.getLogger(__name__)


class StateCache:
    """Entries below one directory, `<directory>/<digest of operator>-<range>[-<table>]/`, private to this user.

    Args:
        directory: made when missing. One that another user owns or may write is not used.
        keep_mapped: whether this process keeps entries mapped for its next epochs; each that is counts as memory.
    """

    def __init__(self, directory: str | os.PathLike[str], *, keep_mapped: bool = True) -> None:
        self._directory = Path(directory)
        self._keep_mapped = keep_mapped

    def load(self, identity: StateIdentity, run: RunHandle) -> Layer | None:
        """Return the key groups for which a run counts, memory-mapped; None when there is no intact entry."""
        folder, digest = self._folder(identity, run), _digest(identity, run)
        try:
            if not self._is_private():
                return None
            for path in sorted(folder.glob(f"{digest}.*{SUFFIX}")):
                layer = _read(path, identity.stored, keep=self._keep_mapped)
                if layer is not None:
                    return layer
                logger.warning(
                    "state cache of %s: entry %s is damaged; it is replaced from the store", identity.uid, path.name
                )
                path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("state cache of %s cannot be read (%s); the store is read instead", identity.uid, error)
        return None

    def stage(self, identity: StateIdentity, run: RunHandle, layer: Layer) -> bool:
        """Write an entry complete, under a name of this attempt, then rename it.

        A full, missing or read-only disk, or too little memory, is logged, never raised.

        Returns: whether it is there.
        """
        folder, digest = self._folder(identity, run), _digest(identity, run)
        temporary: Path | None = None
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self._is_private():
                return False
            folder.mkdir(exist_ok=True, mode=0o700)
            descriptor, name = tempfile.mkstemp(prefix=f"{digest}-", suffix=TEMPORARY, dir=folder)
            temporary = Path(name)
            os.close(descriptor)
            _write(temporary, layer)
            size, checksum = temporary.stat().st_size, crc32_of(temporary)
            entry = folder / f"{digest}.{size}.{checksum:08x}.{_writer_of(run)}{SUFFIX}"
            temporary.replace(entry)
            _checked[entry] = version_of(entry)
            return True
        except (OSError, MemoryError, pa.ArrowException) as error:
            logger.warning(
                "state cache of %s cannot be written (%s); the next epoch reads the store", identity.uid, error
            )
            if temporary is not None:
                temporary.unlink(missing_ok=True)
            return False

    def retain(self, identity: StateIdentity, runs: Iterable[RunHandle], restored: int) -> None:
        """Remove what a restored checkpoint has replaced.

        In the table's folders of ranges that overlap the subtask's: entries of it and of older checkpoints, other than
        the given runs'; and abandoned temporary files. What newer ones wrote is theirs: another try or timeline.
        """
        kept: dict[Path, set[str]] = {}
        for run in runs:
            kept.setdefault(self._folder(identity, run), set()).add(_digest(identity, run))
        try:
            if not self._is_private():
                return
            for folder in self._folders(identity.uid, identity.key_groups):
                if _table_of(folder) != _table_digest(identity.table):
                    continue
                _prune(folder, kept.get(folder, set()), restored)
            _let_go()
        except (OSError, ValueError) as error:
            logger.warning("state cache of %s cannot be tidied (%s); it may grow", identity.uid, error)

    def notify(self, uid: str, own: range, checkpoint_id: int, what: Notification) -> None:
        """Take notice of what became of a checkpoint (I11); a fault is logged.

        Args:
            uid, own: the operator, and the key groups of the subtask that is told.
        """
        try:
            if not self._is_private():
                return
            match what:
                case Notification.COMPLETE:
                    for folder in self._folders(uid, own):
                        mark(folder, checkpoint_id)
                case Notification.ABORTED:
                    for folder in self._folders(uid, own):
                        for path in folder.glob(f"*.{checkpoint_id}{SUFFIX}"):
                            path.unlink(missing_ok=True)
                case Notification.SUBSUMED:
                    # Subtasks of one epoch begin one after the other: what the last one used is not marked yet.
                    for folder in self._directory.iterdir():
                        if _newest(folder) < checkpoint_id:
                            shutil.rmtree(folder, ignore_errors=True)
            _let_go()
        except FileNotFoundError:
            return  # another subtask tidies at the same time
        except (OSError, ValueError) as error:
            logger.warning("state cache of %s cannot be tidied (%s); it may grow", uid, error)

    def _folders(self, uid: str, own: range) -> Iterator[Path]:
        """The operator's folders whose ranges overlap the subtask's."""
        for folder in self._directory.glob(f"{_operator_digest(uid)}-*"):
            start, stop = (int(part) for part in folder.name.split("-")[1:3])
            if start < own.stop and own.start < stop:
                yield folder

    def _folder(self, identity: StateIdentity, run: RunHandle) -> Path:
        table = _table_digest(identity.table)
        name = f"{_operator_digest(identity.uid)}-{run.valid.start}-{run.valid.stop}"
        return self._directory / (f"{name}-{table}" if table else name)

    def _is_private(self) -> bool:
        return is_private(self._directory)


def is_private(directory: Path) -> bool:
    """Return whether only this user can have written what is in a folder: others on the machine are not trusted."""
    try:
        status = directory.stat()
    except FileNotFoundError:
        return False
    if status.st_uid == os.getuid() and not status.st_mode & 0o022:
        return True
    logger.warning("state cache %s is ignored: others own it or may write there (chmod 700 it)", directory)
    return False


def _operator_digest(uid: str) -> str:
    return hashlib.sha256(uid.encode()).hexdigest()[:16]


def _table_digest(table: str) -> str:
    """Return what names the folders of one of several tables; "" for the only one of an operator."""
    return hashlib.sha256(table.encode()).hexdigest()[:16] if table else ""


def _table_of(folder: Path) -> str:
    return folder.name.split("-")[3] if folder.name.count("-") > 2 else ""


def _digest(identity: StateIdentity, run: RunHandle) -> str:
    keys = identity.keys
    equals = {
        "format": CACHE_FORMAT,
        "hash": keys.hasher.digest,
        "run": run.sha256,
        "wanted": [run.valid.start, run.valid.stop],
        "max_parallelism": identity.max_parallelism,
        "schema": [[field.name, str(field.type), stored_name(field)] for field in identity.stored],
        "key": list(keys.key),
        "routing_key": list(keys.routing_key),
    }
    return hashlib.sha256(json.dumps(equals, sort_keys=True).encode()).hexdigest()[:40]


def _writer_of(run: RunHandle) -> int:
    """Return the checkpoint that wrote a run; 0 for one that came from elsewhere."""
    return checkpoint_of_key(run.key) or 0


def _checkpoint_of(path: Path) -> int:
    """Return the checkpoint that an entry or a mark names; 0 for a temporary file."""
    return int(path.name.split(".")[-2]) if path.suffix in (SUFFIX, _COMPLETED) else 0


def _newest(folder: Path) -> int:
    """Return the newest checkpoint that is known to have used a folder."""
    return max(map(_checkpoint_of, folder.iterdir()), default=0)


def mark(folder: Path, checkpoint_id: int) -> None:
    """Say that a completed checkpoint's subtasks used a folder: it goes once that one is subsumed."""
    (folder / f"{checkpoint_id}{_COMPLETED}").touch()
    for path in folder.glob(f"*{_COMPLETED}"):
        if _checkpoint_of(path) < checkpoint_id:
            path.unlink(missing_ok=True)


def _let_go() -> None:
    """Hold no entry whose file was removed: it would stay on the disk."""
    for path in {*tuple(_mapped), *tuple(_checked)}:
        if not path.exists():
            _mapped.pop(path, None)
            _checked.pop(path, None)


def _prune(folder: Path, kept: set[str], restored: int) -> None:
    """Remove what was replaced or abandoned; another subtask may tidy the same folder at the same time."""
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            known = path.suffix == SUFFIX and _checkpoint_of(path) <= restored
            replaced = known and path.name.split(".")[0] not in kept
            abandoned = path.suffix == TEMPORARY and _age_s(path, folder) > _STALE_TEMPORARY_S
            if replaced or abandoned:
                path.unlink(missing_ok=True)
        if not kept and not any(path.suffix != _COMPLETED for path in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)


def _age_s(path: Path, folder: Path) -> float:
    """Age relative to the newest change in the folder, so that no clock is read."""
    try:
        return folder.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _write(path: Path, layer: Layer) -> None:
    rows = narrowed(layer.rows, kept=(TIMER_COLUMN, EXPIRES_COLUMN))
    drifts = drifts_of(layer.hashes)
    table = (
        rows.append_column(_HASH_COLUMN, pa.array(layer.hashes))
        .append_column(_DRIFT_COLUMN, pa.nulls(layer.num_rows) if drifts is None else pa.array(drifts))
        .append_column(DELETED_COLUMN, pa.array(layer.deleted))
    )
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def _read(path: Path, schema: pa.Schema, *, keep: bool) -> Layer | None:
    version = version_of(path)
    if not keep:
        _mapped.clear()
    known = _mapped.get(path)
    if known is not None and known[1] == version and known[0].equals(schema):
        return known[2]
    layer = _map(path, schema, version)
    if layer is not None and keep:
        _mapped[path] = (schema, version, layer)
    return layer


def version_of(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is replaced or written to."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _map(path: Path, schema: pa.Schema, version: tuple[int, ...]) -> Layer | None:
    """Map an entry whose content is what its name says; None for any other.

    Args:
        version: of the file: another one is checked again.
    """
    _, size, checksum, _, _ = path.name.split(".")
    if _checked.get(path) != version:
        if version[1] != int(size) or f"{crc32_of(path):08x}" != checksum:
            return None
        _checked[path] = version
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except pa.ArrowException:
        return None
    if table.column_names != [*schema.names, _HASH_COLUMN, _DRIFT_COLUMN, DELETED_COLUMN]:
        return None
    rows = table.select(schema.names)
    if not widened(rows.slice(0, 0)).schema.equals(schema):
        return None
    if not table.num_rows:
        return empty_layer(schema)
    hashes = table.column(_HASH_COLUMN).combine_chunks().to_numpy()
    drift = table.column(_DRIFT_COLUMN).combine_chunks()
    drifts = None if pa.types.is_null(drift.type) else drift.to_numpy()
    deleted = table.column(DELETED_COLUMN).combine_chunks().to_numpy(zero_copy_only=False).astype(np.bool_)
    return Layer(hashes, rows, deleted, drifts)


def crc32_of(path: Path) -> int:
    """Return the CRC-32 of a file."""
    checksum = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(1 << 20):
            checksum = zlib.crc32(block, checksum)
    return checksum
