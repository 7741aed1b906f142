"""Reads a record of the stored checkpoint metadata and trusts nothing in it.

Every reader takes `what`, the record's name for the message, and raises StateCorrupt for a value that is missing, of
another type or out of bounds: such a checkpoint cannot be used, and is not skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from milepost.protocol.records.errors import StateCorrupt

_SHA256 = re.compile(r"[0-9a-f]{64}")


def corrupt(what: str, problem: str) -> StateCorrupt:
    """The error that says what is wrong with a stored record, and what to do."""
    return StateCorrupt(
        f"{what}: {problem}. The stored checkpoint metadata cannot be used; nothing was changed.",
        hint="Run `milepost verify JOB` for all that is broken, and restore those objects from a copy of the store.",
    )


def record(what: str, document: object, names: set[str]) -> Mapping[str, object]:
    """A stored object that has exactly the fields `names`."""
    if not isinstance(document, dict) or set(document) != names:
        got = sorted(map(str, document)) if isinstance(document, dict) else type(document).__name__
        raise corrupt(what, f"expected the fields {sorted(names)}, got {got}")
    return document


def is_int(value: object) -> bool:
    """Whether a JSON value is an integer; `true` is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def text(what: str, fields: Mapping[str, object], name: str) -> str:
    """A field that is text, not empty."""
    value = fields[name]
    if not isinstance(value, str) or not value:
        raise corrupt(what, f"{name} is {value!r}, expected text")
    return value


def count(what: str, fields: Mapping[str, object], name: str) -> int:
    """A field that is an integer of at least 0."""
    return counts(what, [fields[name]], name)[0]


def counts(what: str, values: object, name: str) -> list[int]:
    """A list of integers of at least 0."""
    if not isinstance(values, list) or not all(is_int(value) and value >= 0 for value in values):
        raise corrupt(what, f"{name} is {values!r}, expected integers of at least 0")
    return values


def span(what: str, fields: Mapping[str, object], name: str) -> range:
    """A field that is a half-open range [start, stop), not empty."""
    bounds = counts(what, fields[name], name)
    if len(bounds) != 2 or bounds[0] >= bounds[1]:
        raise corrupt(what, f"{name} is {bounds!r}, expected [start, stop)")
    return range(bounds[0], bounds[1])


def own_key(what: str, fields: Mapping[str, object], name: str) -> str:
    """An object key relative to the job's root, which it does not leave."""
    key = text(what, fields, name)
    if key.startswith("/") or any(part in ("", ".", "..") for part in key.split("/")):
        raise corrupt(what, f"{name} {key!r} leaves the job's prefix")
    return key


def sha256_hex(what: str, fields: Mapping[str, object], name: str) -> str:
    """A SHA-256 in lower-case hexadecimal digits."""
    digest = text(what, fields, name)
    if not _SHA256.fullmatch(digest):
        raise corrupt(what, f"{name} is {digest!r}, expected 64 hexadecimal digits")
    return digest
