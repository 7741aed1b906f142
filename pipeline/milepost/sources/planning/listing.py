"""The object listing names a source's objects by its pattern, below the pattern's static prefix."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from milepost.errors import InvalidRequest
from milepost.jobspec.values.patterns import hidden_by, matcher, static_prefix
from milepost.protocol.records.object_store import ObjectStore
from milepost.sources.contract import SourceObject

_UNREADABLE = re.compile(r"[\x00-\x1f\x7f]|^/|//|/$|(?:^|/)\.{1,2}(?:/|$)")
"""Names that no store of ours can hold: whoever may land objects may choose them."""


@dataclass(frozen=True, slots=True)
class BadName:
    """An object that has a name by which it cannot be read.

    Attributes:
        name: its key; what is no printable text in it is escaped. reason: one clause.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects that a path names now.

    Attributes:
        objects: in ascending byte order of keys.
        skipped_hidden: objects with a part below the static prefix that begins with ``_`` or ``.``.
        empty: keys of objects of size 0, as they are shown.
        bad_names: objects, and directories, by whose names nothing can be read.
    """

    objects: tuple[SourceObject, ...]
    skipped_hidden: int = 0
    empty: tuple[str, ...] = ()
    bad_names: tuple[BadName, ...] = ()


def split_path(path: str) -> tuple[str, str]:
    """Split a source's path into the root URL of its store and the pattern for `list_objects`.

    The root of ``s3://bucket/a/*.csv`` is the bucket, so keys stay the same when a pattern is widened later; the root
    of ``file:///a/b/*.csv`` is the directory before the first ``*``, so a job directory can be moved as a whole.
    A file URL may be percent-encoded; its pattern is returned decoded, as keys are.

    Raises:
        InvalidRequest: not an absolute ``s3://`` or ``file://`` URL, or nothing follows the bucket or directory.
    """
    scheme, separator, rest = path.partition("://")
    if not separator or scheme not in ("s3", "file") or (scheme == "file" and not rest.startswith("/")):
        raise InvalidRequest(f"a source's path is s3://bucket/pattern or file:///directory/pattern, got {path!r}.")
    if scheme == "s3":
        root, _, pattern = rest.partition("/")
    else:
        directory = rest.split("*", 1)[0].rpartition("/")[0]
        root, pattern = directory or "/", unquote(rest[len(directory) + 1 :])
    if not root or not pattern or pattern.endswith("/"):
        raise InvalidRequest(
            f"a source's path names objects, got {path!r}.", hint="End it with a pattern, e.g. /**/*.csv"
        )
    return f"{scheme}://{root}", pattern


def list_objects(store: ObjectStore, pattern: str) -> Listing:
    """Return every object whose key matches the pattern, in ascending byte order of keys.

    Raises:
        StoreUnavailable, EnvironmentUnusable: as the store says. A missing prefix is an empty listing.
    """
    static, hidden = static_prefix(pattern), hidden_by(pattern)
    matches_pattern = matcher(pattern)
    objects: list[SourceObject] = []
    invalid_names: list[str] = []
    bad_names: list[BadName] = []
    empty: list[str] = []
    skipped_hidden = 0
    for stat in store.list(static, invalid_names=invalid_names):
        key = stat.key
        if not matches_pattern(key):
            continue
        if hidden(key):
            skipped_hidden += 1
        elif stat.size == 0:
            empty.append(escape_name(key))
        elif _UNREADABLE.search(key) is not None:
            bad_names.append(BadName(escape_name(key), "it has an empty part, a part . or .., or a control character"))
        else:
            objects.append(SourceObject(key, stat.etag, stat.size, stat.last_modified_ms))
    deep = "/" in pattern[len(static) :] or "**" in pattern
    for name in invalid_names:  # of a directory nobody knows what lies in it
        wanted = deep if name.endswith("/") else matches_pattern(name)
        if wanted and not hidden(name):
            bad_names.append(BadName(escape_name(name), "it is not UTF-8, or has a control character, or is too long"))
    return Listing(tuple(objects), skipped_hidden, tuple(empty), tuple(bad_names))


def format_object_list(lines: Sequence[str], count: int) -> str:
    """Return the lines of the first of `count` objects for an error, each on its own, and how many more there are."""
    more = [f"and {count - len(lines)} more"] if count > len(lines) else []
    return "".join(f"\n  {line}" for line in (*lines, *more))


def escape_name(name: str) -> str:
    """Return a name as printable text: other characters, and bytes that are no UTF-8, as their escapes."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def matches(pattern: str, key: str) -> bool:
    """Return whether a pattern names an object of that key."""
    return matcher(pattern)(key)
