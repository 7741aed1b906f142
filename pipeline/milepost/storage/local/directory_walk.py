"""List the files of a directory as objects, in the byte order of their keys."""

from __future__ import annotations

import os
import stat as stat_modes
from collections.abc import Iterator
from pathlib import Path

from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.protocol.records import Names, ObjectStat, StoreConfig
from milepost.storage.keys import validate_key
from milepost.storage.local.errors import LocalErrors

STAGING = ".milepost-staging"
"""Folder of temporary files. It is never listed, and no key begins with it."""


class DirectoryWalk:
    """Lists the objects below one root directory."""

    def __init__(self, config: StoreConfig, root: Path, errors: LocalErrors) -> None:
        self._url, self._root, self._errors = config.url, root, errors

    def objects(self, prefix: bytes, start_after: bytes, invalid_names: Names | None) -> Iterator[ObjectStat]:
        """Yield the objects whose keys start with `prefix` and are greater than `start_after`, in byte order."""
        # That is directory order only if a directory sorts as "name/": "a-b" < "a/b" < "a0".
        base = prefix[: prefix.rfind(b"/") + 1]
        root = os.fsencode(self._root) + b"/"
        stack = [self._entries(base, prefix, start_after, invalid_names)]
        while stack:
            if not stack[-1]:
                stack.pop()
                continue
            name = stack[-1].pop()
            if name.endswith(b"/"):
                stack.append(self._entries(name, prefix, start_after, invalid_names))
                continue
            key = name.decode()
            try:
                status = os.stat(root + name)  # noqa: PTH116 - of ten thousand paths, objects take a third of the time
            except FileNotFoundError:
                continue  # deleted since its directory was read, or a dangling link: not an object
            except OSError as error:
                raise self._errors.of(error, f"object {key!r} cannot be listed", key) from error
            if stat_modes.S_ISREG(status.st_mode):
                yield object_stat(key, status)

    def _entries(self, base: bytes, prefix: bytes, start_after: bytes, invalid_names: Names | None) -> list[bytes]:
        """Return the names in a directory that can lead to a matching key, descending. Directories end in ``/``."""
        directory = os.fsencode(self._root) + b"/" + base
        wanted: list[bytes] = []
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
                    if _leads_to(name, prefix, start_after) and self._is_listable(name, invalid_names):
                        wanted.append(name)
        except (FileNotFoundError, NotADirectoryError):
            if base or not self._root.exists():
                return []
            raise EnvironmentUnusable(
                f"store {self._url} cannot be used: {self._root} is not a directory. Nothing was read.",
                hint="name a directory",
            ) from None
        except OSError as error:
            raise self._errors.of(error, f"directory {os.fsdecode(directory)!r} cannot be listed", None) from error
        wanted.sort(reverse=True)
        return wanted

    def _is_linked_object(self, path: bytes, name: bytes) -> bool:
        """Return whether a symbolic link is an object. A dangling one is not. One that leads outside is refused."""
        target = Path(os.fsdecode(os.path.realpath(path)))
        if not target.exists():
            return False
        if target.is_dir() or not target.is_relative_to(os.path.realpath(self._root)):
            raise EnvironmentUnusable(
                f"store {self._url}: {os.fsdecode(name)!r} is a symbolic link to {str(target)!r}. "
                "Links are only followed to files inside the store's directory. Nothing was read.",
                hint="move the files into the directory, or name the link's target as the location",
            )
        return True

    def _is_listable(self, name: bytes, invalid_names: Names | None) -> bool:
        """Return whether a name can be a key. An invalid one is added to `invalid_names`, or else refused."""
        try:
            validate_key(name.removesuffix(b"/").decode())
        except (UnicodeDecodeError, InvalidRequest) as error:
            if invalid_names is None:
                raise EnvironmentUnusable(
                    f"store {self._url}: file name {os.fsdecode(name)!r} cannot be an object key. Nothing was read.",
                    hint="rename the file or move it out of the directory",
                ) from error
            invalid_names.append(os.fsdecode(name))
            return False
        return True


def etag_of(status: os.stat_result) -> str:
    """Return the version of a file. Every write changes its size or time."""
    return f"{status.st_size}-{status.st_mtime_ns}"


def object_stat(key: str, status: os.stat_result) -> ObjectStat:
    """Return the object stat of a file."""
    return ObjectStat(key, status.st_size, etag_of(status), status.st_mtime_ns // 1_000_000)


def _leads_to(name: bytes, prefix: bytes, start_after: bytes) -> bool:
    """Return whether a file's key, or a key below a directory, starts with prefix and is > start_after."""
    if name.endswith(b"/"):
        return (name.startswith(prefix) or prefix.startswith(name)) and (
            name > start_after or start_after.startswith(name)
        )
    return name.startswith(prefix) and name > start_after
