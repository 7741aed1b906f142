"""Cache decoded runs on the node as memory-mapped Arrow files. Every entry is disposable.

An entry holds one run, restricted to one key-group range. Its name is a digest of everything that its content depends
on: the run's SHA-256, the range, `max_parallelism`, the schema with its stored names, the keys and the format versions.
So an entry is never stale. An entry that an attempt staged but never acknowledged is named after a run that no
checkpoint lists, so it is never read. Two attempts of a task produce the same run and the same bytes. Each writes to a
temporary file of its own, then renames it.

An entry's name contains the id of the checkpoint that wrote its run. Notifications (I11) bound the size of the cache.
When a checkpoint is aborted, its entries are deleted. A folder is marked with the newest completed checkpoint whose
subtasks used it, and is deleted once that checkpoint is subsumed. A restore deletes the entries that the restored
checkpoint replaced.

    <directory>/9f2c…-0-64/1f0d….4711.9ab3c2d1.12.arrow    an entry of a run that checkpoint 12 wrote
                           14.completed                    checkpoint 14 was restored from this folder, and is complete

The name also has the size and CRC-32 of the content. A process checks both before it first uses the entry, and again
when the file has changed. A torn or altered entry is deleted and replaced, so no write needs an fsync. An error of
the cache is logged, and the run is read from the store.
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

from milepost.protocol.records import EXPIRES_COLUMN, TIMER_COLUMN, checkpoint_of_key
from milepost.protocol.subtask import Notification
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
"""Entries that stay mapped in this process across epochs.

A mapping keeps a deleted file's disk space in use, so `retain` and `notify` unmap deleted entries.
"""

_verified: dict[Path, tuple[int, ...]] = {}
"""Entries with content that this process has verified, with the version of the file that was verified."""

logger = logging.getLogger(__name__)


class StateCache:
    """Entries below one directory, `<directory>/<digest of operator>-<range>[-<table>]/`, private to this user.

    Args:
        directory: created if missing. It is not used if another user owns it or can write to it.
        keep_mapped: whether entries stay mapped for the next epochs of this process. Mapped entries count as memory.
    """

    def __init__(self, directory: str | os.PathLike[str], *, keep_mapped: bool = True) -> None:
        self._directory = Path(directory)
        self._keep_mapped = keep_mapped

    def load(self, identity: StateIdentity, run: RunHandle) -> Layer | None:
        """Return the rows of a run's valid key groups, memory-mapped; None without an intact entry."""
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
        """Write a complete entry to a temporary file of this attempt, then rename it.

        A full, missing or read-only disk, or a lack of memory, is logged and never raised.

        Returns:
            Whether the entry was stored.
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
            _verified[entry] = version_of(entry)
            return True
        except (OSError, MemoryError, pa.ArrowException) as error:
            logger.warning(
                "state cache of %s cannot be written (%s); the next epoch reads the store", identity.uid, error
            )
            if temporary is not None:
                temporary.unlink(missing_ok=True)
            return False

    def retain(self, identity: StateIdentity, runs: Iterable[RunHandle], restored: int) -> None:
        """Remove the entries that a restored checkpoint has replaced, and abandoned temporary files.

        Only the table's folders whose range overlaps the subtask's are searched. Entries of the given runs stay.
        Entries of newer checkpoints stay too: they belong to another attempt or timeline.
        """
        retained: dict[Path, set[str]] = {}
        for run in runs:
            retained.setdefault(self._folder(identity, run), set()).add(_digest(identity, run))
        try:
            if not self._is_private():
                return
            for folder in self._folders(identity.uid, identity.key_groups):
                if _table_of(folder) != _table_digest(identity.table):
                    continue
                _prune(folder, retained.get(folder, set()), restored)
            _unmap_deleted()
        except (OSError, ValueError) as error:
            logger.warning("state cache of %s cannot be cleaned up (%s); it may grow", identity.uid, error)

    def notify(self, uid: str, own: range, checkpoint_id: int, what: Notification) -> None:
        """Apply the notification of a checkpoint's outcome (I11). Faults are logged.

        Args:
            uid: the operator. own: key groups of the notified subtask.
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
                    # Subtasks of one epoch do not start together: the folder of the last one may not be marked yet.
                    for folder in self._directory.iterdir():
                        if _newest(folder) < checkpoint_id:
                            shutil.rmtree(folder, ignore_errors=True)
            _unmap_deleted()
        except FileNotFoundError:
            return  # another subtask is cleaning up concurrently
        except (OSError, ValueError) as error:
            logger.warning("state cache of %s cannot be cleaned up (%s); it may grow", uid, error)

    def _folders(self, uid: str, own: range) -> Iterator[Path]:
        """Yield the operator's folders whose ranges overlap the subtask's."""
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
    """Return whether only this user can write to a folder. Other users of the machine are not trusted."""
    try:
        status = directory.stat()
    except FileNotFoundError:
        return False
    if status.st_uid == os.getuid() and not status.st_mode & 0o022:
        return True
    logger.warning("state cache %s is ignored: another user owns it or can write to it (chmod 700 it)", directory)
    return False


def _operator_digest(uid: str) -> str:
    return hashlib.sha256(uid.encode()).hexdigest()[:16]


def _table_digest(table: str) -> str:
    """Return the part of a folder name that identifies the table; "" for an operator's only table."""
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
    """Return the checkpoint that wrote a run; 0 for an imported run."""
    return checkpoint_of_key(run.key) or 0


def _checkpoint_of(path: Path) -> int:
    """Return the checkpoint that an entry or a mark names; 0 for a temporary file."""
    return int(path.name.split(".")[-2]) if path.suffix in (SUFFIX, _COMPLETED) else 0


def _newest(folder: Path) -> int:
    """Return the newest checkpoint that is known to have used a folder."""
    return max(map(_checkpoint_of, folder.iterdir()), default=0)


def mark(folder: Path, checkpoint_id: int) -> None:
    """Record that a completed checkpoint used a folder, which is deleted once that checkpoint is subsumed."""
    (folder / f"{checkpoint_id}{_COMPLETED}").touch()
    for path in folder.glob(f"*{_COMPLETED}"):
        if _checkpoint_of(path) < checkpoint_id:
            path.unlink(missing_ok=True)


def _unmap_deleted() -> None:
    """Unmap deleted entries: a mapping keeps their disk space in use."""
    for path in {*tuple(_mapped), *tuple(_verified)}:
        if not path.exists():
            _mapped.pop(path, None)
            _verified.pop(path, None)


def _prune(folder: Path, retained: set[str], restored: int) -> None:
    """Remove replaced entries and abandoned temporary files. Other subtasks may prune the same folder concurrently."""
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            is_older = path.suffix == SUFFIX and _checkpoint_of(path) <= restored
            replaced = is_older and path.name.split(".")[0] not in retained
            abandoned = path.suffix == TEMPORARY and _age_s(path, folder) > _STALE_TEMPORARY_S
            if replaced or abandoned:
                path.unlink(missing_ok=True)
        if not retained and not any(path.suffix != _COMPLETED for path in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)


def _age_s(path: Path, folder: Path) -> float:
    """Return the age relative to the newest change in the folder, so that no clock is read."""
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
    mapped = _mapped.get(path)
    if mapped is not None and mapped[1] == version and mapped[0].equals(schema):
        return mapped[2]
    layer = _map(path, schema, version)
    if layer is not None and keep:
        _mapped[path] = (schema, version, layer)
    return layer


def version_of(path: Path) -> tuple[int, ...]:
    """Return an identifier that changes when a file is replaced or written to."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _map(path: Path, schema: pa.Schema, version: tuple[int, ...]) -> Layer | None:
    """Map an entry; return None if its content does not match its name.

    Args:
        version: version of the file. The content is verified unless this version was verified before.
    """
    _, size, checksum, _, _ = path.name.split(".")
    if _verified.get(path) != version:
        if version[1] != int(size) or f"{crc32_of(path):08x}" != checksum:
            return None
        _verified[path] = version
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
