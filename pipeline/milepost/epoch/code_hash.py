"""The identity of the code that runs an epoch (I13)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import milepost


def sources_of(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield all modules below the folder of a package, each by its path from there, in the order of their hash."""
    for path in sorted(root.rglob("*.py")):
        yield path.relative_to(root).as_posix(), path.read_bytes()


def hash_sources(sources: Iterable[tuple[str, bytes]]) -> str:
    """Return the hash of the modules that `sources_of` yields."""
    digest = hashlib.sha256()
    for name, body in sources:
        digest.update(f"{name}\0{len(body)}\0".encode())
        digest.update(body)
    return digest.hexdigest()


def hash_package(root: Path) -> str:
    """Return the hash of all modules below the folder of a package. Raises RuntimeError: there is none."""
    sources = [*sources_of(root)]
    if not sources:
        raise RuntimeError(f"{root}: no source of Milepost lies there, so nobody could tell which code ran an epoch")
    return hash_sources(sources)


PACKAGE = Path(next(iter(milepost.__path__)))
"""Where this process imported the package from."""

CODE_HASH = hash_package(PACKAGE)
"""Hash of this package's sources as this process imported them.

A long-lived Python worker keeps the modules it once imported, so its value is what it *runs*, not what lies on the
disk by now: a subtask whose value differs from the driver's declines with CODE_MISMATCH.
"""


def code_hash_of(functions: Mapping[str, str]) -> str:
    """Hash of the code of a job: this package's, and with process functions theirs too.

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
    """Return what the hash of a job's code is made of, as a checkpoint records it for people.

    Args:
        modules: uid of each process operator -> module -> hash of its text.
    Returns:
        ``milepost``, this package, and ``<uid>: <module>``, each with its hash.
    """
    own = {f"{uid}: {name}": digest for uid, found in sorted(modules.items()) for name, digest in sorted(found.items())}
    return {"milepost": CODE_HASH, **own}
