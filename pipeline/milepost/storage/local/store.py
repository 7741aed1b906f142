"""A local directory as an object store.

Order of one write: bytes into a temp file in a hidden staging directory of the same filesystem, fsync of the file,
then one atomic step to the final name (`link` for create, `rename` for put), then fsync of the directory. A crash
leaves the key absent (or as it was) or whole, never torn. `O_EXCL` on the final name would tear it (I1).
"""

from __future__ import annotations

import os
import stat as stat_modes
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from milepost.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    InvalidRequest,
    StoreUnavailable,
)
from milepost.protocol.records import Names, ObjectStat, StoreConfig
from milepost.storage.bodies import body_pieces, size_text
from milepost.storage.keys import LocalRoot, parse_root, validate_key, validate_prefix
from milepost.storage.local.directory_walk import STAGING, DirectoryWalk, etag_of, object_stat
from milepost.storage.local.errors import LocalErrors

_STALE_SECONDS = 24 * 3600.0
_PUBLISH_ATTEMPTS = 8


class LocalStore:
    """Objects as files below one root directory, which is created by the first write.

    A file and a directory cannot share a name, so ``a`` and ``a/b`` cannot both be keys here. Symbolic links are
    followed only to files inside the root.
    """

    def __init__(self, config: StoreConfig) -> None:
        root = parse_root(config.url)
        if not isinstance(root, LocalRoot):
            raise InvalidRequest(f"a local store needs a file:// URL, got {config.url!r}.")
        self.config = config
        self._root = root.path
        self._errors = LocalErrors(config, root.path)
        self._walk = DirectoryWalk(config, root.path, self._errors)
        self._swept = False

    def __repr__(self) -> str:
        return f"LocalStore({self.config.url!r})"

    def get(self, key: str) -> bytes:
        return self._read(key, None)

    def get_if_match(self, key: str, etag: str) -> bytes:
        return self._read(key, etag)

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        return self._read(key, etag, start, stop)

    def stat(self, key: str) -> ObjectStat:
        path = self._path(key)
        try:
            status = path.stat()
        except OSError as error:
            raise self._errors.of_read(error, key) from error
        if not stat_modes.S_ISREG(status.st_mode):
            raise self._errors.absent(key)
        return object_stat(key, status)

    def put(self, key: str, body: bytes) -> ObjectStat:
        path = self._path(key)
        staged, stat = self._stage(key, body, _next_mtime_ns(path))
        try:
            self._publish(key, path.parent, lambda: _replace(staged, path))
        finally:
            _remove(staged)
        return stat

    def create(self, key: str, body: bytes | IO[bytes]) -> ObjectStat:
        path = self._path(key)
        staged, stat = self._stage(key, body, time.time_ns())
        try:
            self._publish(key, path.parent, lambda: os.link(staged, path))
        finally:
            _remove(staged)
        return stat

    def list(
        self,
        prefix: str,
        *,
        start_after: str = "",
        limit: int | None = None,
        invalid_names: Names | None = None,
    ) -> Iterator[ObjectStat]:
        validate_prefix(prefix)
        remaining = limit
        if remaining is not None and remaining <= 0:
            return
        for stat in self._walk.objects(prefix.encode(), start_after.encode(), invalid_names):
            yield stat
            if remaining is not None:
                remaining -= 1
                if remaining == 0:
                    return

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
            except OSError as error:
                if path.is_dir():
                    continue
                raise self._errors.of(error, f"object {key!r} cannot be deleted", key) from error
            self._prune(path.parent)

    def clock_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # -- reading ------------------------------------------------------------------------------------------------

    def _read(self, key: str, etag: str | None, start: int = 0, stop: int | None = None) -> bytes:
        path = self._path(key)
        try:
            with path.open("rb") as file:
                before = os.fstat(file.fileno())
                file.seek(start)
                length = -1 if stop is None else stop - start
                body = file.read(length) if etag is None or etag == etag_of(before) else b""
                after = os.fstat(file.fileno())
        except OSError as error:
            raise self._errors.of_read(error, key) from error
        # External writers may write in place: bytes read while a file changed belong to no version.
        if etag is not None and (etag != etag_of(before) or etag != etag_of(after)):
            raise CommitConflict(
                f"object {key!r} of {self.config.url} was to be read as version {etag}, but is now {etag_of(after)}. "
                "Nothing was read.",
                key=key,
                expected=etag,
                got=etag_of(after),
            )
        return body

    # -- writing ------------------------------------------------------------------------------------------------

    def _stage(self, key: str, body: bytes | IO[bytes], mtime_ns: int) -> tuple[Path, ObjectStat]:
        """Write a durable temp file. Return its path and the stat of the object to be published."""
        directory = self._root / STAGING
        path = directory / f"{os.getpid()}-{uuid4().hex}"
        try:
            self._make_directory(directory)
            self._sweep(directory)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                for piece in body_pieces(body):
                    view = memoryview(piece)
                    while view:
                        view = view[os.write(descriptor, view) :]
                # The kernel's timestamps have ticks of some ms: two versions could share one, and so an etag.
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))
                os.fsync(descriptor)
                stat = object_stat(key, os.fstat(descriptor))
            finally:
                os.close(descriptor)
        except OSError as error:
            _remove(path)
            raise self._errors.of(error, f"object {key!r}{size_text(body)} was not written", key) from error
        except BaseException:
            _remove(path)
            raise
        return path, stat

    def _publish(self, key: str, parent: Path, step: Callable[[], None]) -> None:
        """Run the atomic step and make it durable. Recreate the parent if a concurrent delete pruned it."""
        for attempt in range(_PUBLISH_ATTEMPTS):
            try:
                self._make_directory(parent)
                step()
                break
            except FileNotFoundError as error:
                if attempt == _PUBLISH_ATTEMPTS - 1:
                    raise StoreUnavailable(
                        f"object {key!r} was not written to {self.config.url}: its directory or its temp file was "
                        f"removed {_PUBLISH_ATTEMPTS} times while it was being written. Nothing was changed.",
                        hint="find out what deletes there, then try again",
                        key=key,
                    ) from error
            except FileExistsError as error:
                raise CommitConflict(
                    f"object {key!r} of {self.config.url} exists already; nothing was written.", key=key
                ) from error
            except OSError as error:
                raise self._errors.of(error, f"object {key!r} was not written", key) from error
        try:
            _fsync_directory(parent)
        except FileNotFoundError:
            return  # the object was published, then another process deleted it and pruned the directory
        except OSError as error:
            raise CommitOutcomeUnknown(
                f"object {key!r} of {self.config.url} was written, but its directory could not be synced "
                f"({error.strerror}): it may not survive a power failure.",
                hint="read it back before writing it again",
                key=key,
            ) from error

    def _make_directory(self, directory: Path) -> None:
        """Create a directory and its parents durably."""
        missing = []
        while not directory.exists():
            missing.append(directory)
            directory = directory.parent
        for child in reversed(missing):
            with suppress(FileExistsError):
                child.mkdir()
            _fsync_directory(child.parent)

    def _sweep(self, directory: Path) -> None:
        """Remove temp files that killed writers left at least a day ago. Runs once per store object."""
        if self._swept:
            return
        self._swept = True
        horizon = time.time() - _STALE_SECONDS
        with os.scandir(directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_ctime < horizon:
                        Path(entry.path).unlink()

    def _prune(self, directory: Path) -> None:
        """Remove directories that a delete emptied. They belong to no key and only slow listings."""
        while directory != self._root:
            try:
                directory.rmdir()
            except OSError:  # not empty, or another process pruned or refilled it: all are fine
                return
            directory = directory.parent

    # -- paths ---------------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        """Return a key's path. Raises InvalidRequest: a symbolic link leads outside the root."""
        validate_key(key)
        if key.split("/", 1)[0] == STAGING:
            raise InvalidRequest(
                f"object key {key!r} is refused: {STAGING!r} is reserved. Nothing was changed.", key=key
            )
        path = self._root / key
        if not self._passes_link(key):
            return path
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(os.path.realpath(self._root)):
            raise InvalidRequest(
                f"object {key!r} of {self.config.url} leads to {str(real)!r}, outside the store's directory, by "
                "a symbolic link. Nothing was read or written.",
                key=key,
            )
        return path

    def _passes_link(self, key: str) -> bool:
        """Return whether a key, or one of its directories below the root, is a symbolic link."""
        path = os.fspath(self._root)
        for part in key.split("/"):
            path = f"{path}/{part}"
            if os.path.islink(path):  # noqa: PTH114 - at every call of a store, where a Path costs more than the link
                return True
        return False


def _next_mtime_ns(path: Path) -> int:
    """Return a modification time for a new version: now, but later than the version it replaces."""
    now = time.time_ns()
    try:
        return max(now, path.stat().st_mtime_ns + 1)
    except OSError:
        return now


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with suppress(OSError):  # a remaining temp file is swept later; this error must not hide the outcome of the write
        path.unlink()


def _replace(staged: Path, path: Path) -> None:
    staged.replace(path)
