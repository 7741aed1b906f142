"""List the objects that match a source's path pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from milepost.errors import InvalidRequest
from milepost.language import hidden_by, matcher, static_prefix
from milepost.protocol.records import ObjectStore
from milepost.sources.contract import SourceObject

_UNREADABLE = re.compile(r"[\x00-\x1f\x7f]|^/|//|/$|(?:^|/)\.{1,2}(?:/|$)")
"""Names that the object stores cannot read. Any writer with access to the bucket can create them."""


@dataclass(frozen=True, slots=True)
class BadName:
    """An object that cannot be read because of its name.

    Attributes:
        name: its key, with unprintable characters escaped.
        reason: one clause.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects that match a path now.

    Attributes:
        objects: in ascending byte order of keys.
        skipped_hidden: objects with a part below the static prefix that begins with ``_`` or ``.``.
        empty: escaped keys of objects of size 0.
        bad_names: objects, and directories, that cannot be read because of their names.
    """

    objects: tuple[SourceObject, ...]
    skipped_hidden: int = 0
    empty: tuple[str, ...] = ()
    bad_names: tuple[BadName, ...] = ()


def split_path(path: str) -> tuple[str, str]:
    """Split a source's path into the root URL of its store and the pattern for `list_objects`.

    For ``s3://bucket/a/*.csv`` the root is the bucket, so keys do not change when the pattern is widened later. For
    ``file:///a/b/*.csv`` the root is the directory before the first ``*``, so a job directory can be moved as a whole.
    A file URL may be percent-encoded. Its pattern is returned decoded, like keys.

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
        StoreUnavailable, EnvironmentUnusable: from the store. A missing prefix gives an empty listing.
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
    for name in invalid_names:  # the store did not list what an unreadable directory contains
        is_match = deep if name.endswith("/") else matches_pattern(name)
        if is_match and not hidden(name):
            bad_names.append(BadName(escape_name(name), "it is not UTF-8, or has a control character, or is too long"))
    return Listing(tuple(objects), skipped_hidden, tuple(empty), tuple(bad_names))


def format_object_list(lines: Sequence[str], count: int) -> str:
    """Format the object lines of an error message, ending with "and N more" if `count` exceeds them."""
    more = [f"and {count - len(lines)} more"] if count > len(lines) else []
    return "".join(f"\n  {line}" for line in (*lines, *more))


def escape_name(name: str) -> str:
    """Return a name as printable text. Other characters, and bytes that are not UTF-8, are escaped."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def matches(pattern: str, key: str) -> bool:
    """Return whether a pattern names an object of that key."""
    return matcher(pattern)(key)
