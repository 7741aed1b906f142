"""Copies of the tree in which one module at a time is mutated and tests run."""

from __future__ import annotations

import queue
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def tracked_files(root: Path) -> tuple[str, ...]:
    """Return every file of the tree that is not ignored, relative to its root. Raises CalledProcessError: no git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
    return tuple(sorted({name for name in listed.split("\0") if name and (root / name).is_file()}))


class TreeCopies:
    """One copy of a tree per concurrent job. A copy serves many mutants, so Python compiles its modules only once."""

    def __init__(self, root: Path, folder: Path, jobs: int, files: Iterable[str]) -> None:
        self._root = root
        self._files = tuple(files)
        self._folders = [folder / f"copy-{number}" for number in range(jobs)]
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for copy in self._folders:
            for name in self._files:
                self._restore(copy, name)
            for environment in root.glob(".venv*"):  # some tests run programs of other environments
                (copy / environment.name).symlink_to(environment)
            self._free.put(copy)

    def close(self) -> None:
        """Delete the copies."""
        for copy in self._folders:
            shutil.rmtree(copy, ignore_errors=True)

    @contextmanager
    def lend(self, file: str | None = None, source: str = "") -> Iterator[Path]:
        """Lend a copy in which one file has this source. Afterwards all its files are again those of the tree."""
        copy = self._free.get()
        try:
            if file is not None:
                (copy / file).write_text(source, encoding="utf-8")
                _forget_bytecode(copy / file)
            yield copy
        finally:
            for name in self._files:
                if not _is_same(self._root / name, copy / name):
                    self._restore(copy, name)
            self._free.put(copy)

    def _restore(self, copy: Path, name: str) -> None:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copy2(self._root / name, target, follow_symlinks=False)
        _forget_bytecode(target)


def _is_same(original: Path, copied: Path) -> bool:
    if not copied.is_symlink() and not copied.exists():
        return False
    one, other = original.lstat(), copied.lstat()
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def _forget_bytecode(source: Path) -> None:
    """Delete what Python compiled of a module: its check by size and whole seconds may take one mutant for another."""
    for cached in source.parent.glob(f"__pycache__/{source.stem}.*.pyc"):
        cached.unlink(missing_ok=True)
