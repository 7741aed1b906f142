"""The identity of the code that runs an epoch (I13)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import milepost


def sources_of(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (relative POSIX path, text) of every module below a package folder, in the order in which it is hashed."""
    for path in sorted(root.rglob("*.py")):
        yield path.relative_to(root).as_posix(), path.read_bytes()


def hash_sources(sources: Iterable[tuple[str, bytes]]) -> str:
    """Return the hash of the modules that `sources_of` yields.

    Names and lengths are hashed too, so that text cannot move between modules unnoticed. With · for a NUL byte:

        [("a.py", b"x = 1")]   ->   sha256("a.py·5·x = 1") = 2b37e607…
    """
    digest = hashlib.sha256()
    for name, body in sources:
        digest.update(f"{name}\0{len(body)}\0".encode())
        digest.update(body)
    return digest.hexdigest()


def hash_package(root: Path) -> str:
    """Return the hash of all modules below a package folder. Raises RuntimeError: it contains no module."""
    sources = [*sources_of(root)]
    if not sources:
        raise RuntimeError(f"{root}: it contains no Milepost sources, so the code of an epoch cannot be identified")
    return hash_sources(sources)


PACKAGE = Path(next(iter(milepost.__path__)))
"""Folder from which this process imported the package."""

CODE_HASH = hash_package(PACKAGE)
"""Hash of this package's sources as this process imported them.

A long-lived Python worker keeps its imported modules. Its hash therefore describes the code that it *runs*, not the
files that are on disk now. A subtask whose hash differs from the driver's declines with CODE_MISMATCH.
"""


def code_hash_of(functions: Mapping[str, str]) -> str:
    """Return the hash of a job's code: of this package and of the job's process functions.

    Args:
        functions: uid of each process operator -> hash of its function's code.
    """
    if not functions:
        return CODE_HASH
    digest = hashlib.sha256(CODE_HASH.encode())
    for uid, function in sorted(functions.items()):
        digest.update(f"\0{uid}\0{function}".encode())
    return digest.hexdigest()


def code_by_name(modules: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the parts of a job's code hash, as a checkpoint records them for people.

    Args:
        modules: uid of each process operator -> module -> hash of its text.
    Returns:
        ``milepost`` (this package) and ``<uid>: <module>``, each with its hash.
    """
    own = {f"{uid}: {name}": digest for uid, texts in sorted(modules.items()) for name, digest in sorted(texts.items())}
    return {"milepost": CODE_HASH, **own}
