"""Parse and validate locations: the URLs and paths of storage, sources and sinks."""

from __future__ import annotations

import posixpath
import re

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_CHARACTERS = 4_096
_SQLITE_FILE = re.compile(r"(sqlite(?:\+\w+)?:///)(?![/:]|file:)(.+)")


def location_problem(text: str) -> str | None:
    """Return why `text` is not a valid location, or None: ``s3://bucket/…``, ``file:///abs/…`` or a path."""
    if not text.strip() or CONTROL.search(text):
        return "expected s3://bucket/…, file:///abs/… or a path relative to the spec"
    if len(text) > _MAX_CHARACTERS:
        return f"it has {len(text)} characters, and no store has a key or path of more than {_MAX_CHARACTERS}"
    match = SCHEME.fullmatch(text)
    if match is None:
        if text.startswith(("s3:", "file:")):
            return "expected two slashes after the scheme, s3://bucket/… or file:///abs/…"
        return "'~' is not expanded; write the absolute path" if text.startswith("~") else None
    scheme, rest = match[1], match[2]
    if scheme == "file":
        return None if rest.startswith("/") else "expected an absolute path: file:///abs/… (three slashes)"
    if scheme != "s3":
        return f"the scheme `{scheme}` is not available in this version; use s3, file or a path relative to the spec"
    return None if BUCKET.fullmatch(rest.split("/")[0]) else "expected s3://bucket/…, got no valid bucket name"


def endpoint_problem(text: str) -> str | None:
    """Return why `text` is not an S3 endpoint, or None. The reason never repeats `text`, which may contain a secret."""
    if not text:
        return None
    match = SCHEME.fullmatch(text)
    if match is None or match[1].lower() not in ("http", "https") or not match[2]:
        return "expected http://host:port or https://host"
    if "@" in match[2]:
        return (
            "expected http://host:port without user name and password, which are not shown here; give them as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
        )
    return None


def file_url(path: object) -> str:
    """Return the URL of an absolute path. Only ``%`` is escaped; spaces and Unicode are kept."""
    return "file://" + posixpath.normpath(str(path)).replace("%", "%25")


def absolute_url(text: str, folder: object) -> str:
    """Return the absolute URL of a location; a relative one is resolved against `folder`, which is absolute.

    In a ``file`` URL only ``%`` is escaped; spaces and other characters are kept.
    """
    match = SCHEME.fullmatch(text)
    if match is None:
        return file_url(posixpath.join(str(folder), text))
    if match[1] == "file":
        return "file://" + posixpath.normpath(match[2])
    return text.rstrip("/")


def database_uri(text: str, folder: object) -> str:
    """Return the URI of a database; a relative SQLite file is resolved against `folder`, which is absolute."""
    match = _SQLITE_FILE.fullmatch(text)
    if match is None:
        return text
    path, mark, options = match[2].partition("?")
    return f"{match[1]}{posixpath.normpath(posixpath.join(str(folder), path))}{mark}{options}"


def child_url(url: str, name: str) -> str:
    """Return the URL of `name`, one or more plain parts of a key, below a root URL."""
    return f"{url.rstrip('/')}/{name.replace('%', '%25') if url.startswith('file://') else name}"


def split_uri(uri: str) -> tuple[str, str]:
    """Return the root URL of a store that has an object, and its key there. The opposite of `child_url`.

    The root is the bucket, or the folder of a local file::

        s3://lake/orders/a.parquet         s3://lake, orders/a.parquet
        file:///lake/o%25rders/a.parquet   file:///lake/o%25rders, a.parquet
    """
    if uri.startswith("file://"):
        folder, _, name = uri.rpartition("/")
        return folder, name.replace("%25", "%")
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key
