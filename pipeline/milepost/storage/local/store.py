"""A directory as an object store: the embedded choice.

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

from milepost.protocol.records.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    StoreUnavailable,
)
from milepost.protocol.records.object_store import Names, ObjectStat, StoreConfig
from milepost.storage.bodies import pieces_of, told_size
from milepost.storage.keys import LocalRoot, parse_root, validate_key, validate_prefix
from milepost.storage.local.errors import LocalErrors

STAGING = ".milepost-staging"
"""First part of no key: temp files lie there, never listed."""

_STALE_SECONDS = 24 * 3600.0
_PUBLISH_ATTEMPTS = 8

_Entries = list[bytes]  # inside the class `list` is a method


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
        return _object_stat(key, status)

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
        unnamable: Names | None = None,
    ) -> Iterator[ObjectStat]:
        validate_prefix(prefix)
        remaining = limit
        if remaining is not None and remaining <= 0:
            return
        for stat in self._walk(prefix.encode(), start_after.encode(), unnamable):
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
                wanted = -1 if stop is None else stop - start
                body = file.read(wanted) if etag is None or etag == _etag(before) else b""
                after = os.fstat(file.fileno())
        except OSError as error:
            raise self._errors.of_read(error, key) from error
        # Files that others land here may be written in place: a version that changed under the read is no version.
        if etag is not None and (etag != _etag(before) or etag != _etag(after)):
            raise CommitConflict(
                f"object {key!r} of {self.config.url} was to be read as version {etag}, but is now {_etag(after)}. "
                "Nothing was read.",
                key=key,
                expected=etag,
                got=_etag(after),
            )
        return body

    def _walk(self, prefix: bytes, start_after: bytes, unnamable: Names | None) -> Iterator[ObjectStat]:
        # Byte order of keys is directory order only if a directory sorts as "name/": "a-b" < "a/b" < "a0".
        base = prefix[: prefix.rfind(b"/") + 1]
        root = os.fsencode(self._root) + b"/"
        stack = [self._entries(base, prefix, start_after, unnamable)]
        while stack:
            if not stack[-1]:
                stack.pop()
                continue
            name = stack[-1].pop()
            if name.endswith(b"/"):
                stack.append(self._entries(name, prefix, start_after, unnamable))
                continue
            key = name.decode()
            try:
                status = os.stat(root + name)  # noqa: PTH116 - of ten thousand paths, objects take a third of the time
            except FileNotFoundError:
                continue  # deleted since its directory was read, or a dangling link: not an object
            except OSError as error:
                raise self._errors.of(error, f"object {key!r} cannot be listed", key) from error
            if stat_modes.S_ISREG(status.st_mode):
                yield _object_stat(key, status)

    def _entries(self, base: bytes, prefix: bytes, start_after: bytes, unnamable: Names | None) -> _Entries:
        """Names below one directory that can still lead to a wanted key, descending; directories end in ``/``."""
        directory = os.fsencode(self._root) + b"/" + base
        wanted: _Entries = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    name = base + entry.name
                    if entry.is_symlink():
                        if not self._is_linked_object(directory + entry.name, name):
                            continue
                    elif entry.is_dir(follow_symlinks=False):
                        if not base and entry.name == STAGING.encode():
                            continue
                        name += b"/"
                    if _leads_to(name, prefix, start_after) and self._is_listable(name, unnamable):
                        wanted.append(name)
        except (FileNotFoundError, NotADirectoryError):
            if base or not self._root.exists():
                return []
            raise EnvironmentUnusable(
                f"store {self.config.url} cannot be used: {self._root} is not a directory. Nothing was read.",
                hint="name a directory",
            ) from None
        except OSError as error:
            raise self._errors.of(error, f"directory {os.fsdecode(directory)!r} cannot be listed", None) from error
        wanted.sort(reverse=True)
        return wanted

    def _is_linked_object(self, path: bytes, name: bytes) -> bool:
        """Return whether a symbolic link is an object; one that dangles is not; one that leads elsewhere is refused."""
        target = Path(os.fsdecode(os.path.realpath(path)))
        if not target.exists():
            return False
        if target.is_dir() or not target.is_relative_to(os.path.realpath(self._root)):
            raise EnvironmentUnusable(
                f"store {self.config.url}: {os.fsdecode(name)!r} is a symbolic link to {str(target)!r}. "
                "Links are only followed to files inside the store's directory. Nothing was read.",
                hint="move the files into the directory, or name the link's target as the location",
            )
        return True

    def _is_listable(self, name: bytes, unnamable: Names | None) -> bool:
        """Return whether a name can be a key; one that cannot goes to `unnamable`, or is refused."""
        try:
            validate_key(name.removesuffix(b"/").decode())
        except (UnicodeDecodeError, InvalidRequest) as error:
            if unnamable is None:
                raise EnvironmentUnusable(
                    f"store {self.config.url}: file name {os.fsdecode(name)!r} cannot be an object key. Nothing was "
                    "read.",
                    hint="rename the file or move it out of the directory",
                ) from error
            unnamable.append(os.fsdecode(name))
            return False
        return True

    # -- writing ------------------------------------------------------------------------------------------------

    def _stage(self, key: str, body: bytes | IO[bytes], mtime_ns: int) -> tuple[Path, ObjectStat]:
        """Write a durable temp file; return it and what the object will be once it is published."""
        directory = self._root / STAGING
        path = directory / f"{os.getpid()}-{uuid4().hex}"
        try:
            self._make_directory(directory)
            self._sweep(directory)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                for piece in pieces_of(body):
                    view = memoryview(piece)
                    while view:
                        view = view[os.write(descriptor, view) :]
                # The kernel's own stamps are ticks of some ms: two versions could share one, and so an etag.
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))
                os.fsync(descriptor)
                stat = _object_stat(key, os.fstat(descriptor))
            finally:
                os.close(descriptor)
        except OSError as error:
            _remove(path)
            raise self._errors.of(error, f"object {key!r}{told_size(body)} was not written", key) from error
        except BaseException:
            _remove(path)
            raise
        return path, stat

    def _publish(self, key: str, parent: Path, step: Callable[[], None]) -> None:
        """Run the one atomic step and make it durable; the parent is made again if a concurrent delete pruned it."""
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
            return  # the object was published, then deleted by another, and its directory pruned
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
        """Remove temp files that a killed writer left a day ago or earlier; once per store object."""
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
        """Remove directories that a delete emptied: keys have no directories, so empty ones only slow listings."""
        while directory != self._root:
            try:
                directory.rmdir()
            except OSError:  # not empty, or another process pruned or refilled it: all are fine
                return
            directory = directory.parent

    # -- paths ---------------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        """Return a key's path, whose real location is inside the root."""
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
        """Whether a key, or a directory that it lies in below the root, is a symbolic link."""
        at = os.fspath(self._root)
        for part in key.split("/"):
            at = f"{at}/{part}"
            if os.path.islink(at):  # noqa: PTH114 - at every call of a store, where a Path costs more than the link
                return True
        return False


def _etag(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"


def _object_stat(key: str, status: os.stat_result) -> ObjectStat:
    return ObjectStat(key, status.st_size, _etag(status), status.st_mtime_ns // 1_000_000)


def _next_mtime_ns(path: Path) -> int:
    """Return a modification time for a new version: now, and later than the version it replaces."""
    now = time.time_ns()
    try:
        return max(now, path.stat().st_mtime_ns + 1)
    except OSError:
        return now


def _leads_to(name: bytes, prefix: bytes, start_after: bytes) -> bool:
    """Whether a file's key, or some key below a directory, starts with prefix and is greater than start_after."""
    if name.endswith(b"/"):
        return (name.startswith(prefix) or prefix.startswith(name)) and (
            name > start_after or start_after.startswith(name)
        )
    return name.startswith(prefix) and name > start_after


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with suppress(OSError):  # a temp file that stays is swept later; it must not hide how the write itself ended
        path.unlink()


def _replace(staged: Path, path: Path) -> None:
    staged.replace(path)
