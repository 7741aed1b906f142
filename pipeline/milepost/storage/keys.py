"""Validate store keys and root URLs: one rule for every store."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from milepost.errors import InvalidRequest
from milepost.protocol.records import BUCKET, CONTROL, SCHEME

MAX_KEY_BYTES = 1024
"""S3's limit for a whole key, including the root prefix."""


@dataclass(frozen=True, slots=True)
class LocalRoot:
    """An absolute directory. Symbolic links in it are not resolved."""

    path: Path


@dataclass(frozen=True, slots=True)
class S3Root:
    """A bucket and a prefix in it, without a slash at either end. "" means the whole bucket."""

    bucket: str
    prefix: str


def s3_root(url: str) -> S3Root:
    """Return the root of a store in S3. Raises InvalidRequest for any other URL."""
    root = parse_root(url)
    if not isinstance(root, S3Root):
        raise InvalidRequest(f"an S3 store needs an s3:// URL, got {url!r}.")
    return root


def validate_key(key: str) -> str:
    """Return the key unchanged if every store can hold it.

    Raises:
        InvalidRequest: empty, a leading or trailing ``/``, an empty part, ``.`` or ``..``, a control character,
            text that is not UTF-8, or more than 1,024 bytes.
    """
    reason = storage_fault(key)
    if reason is not None:
        raise InvalidRequest(f"object key {key!r} is refused: {reason}. Nothing was read or written.", key=key)
    return key


def validate_prefix(prefix: str) -> str:
    """Return a listing prefix unchanged: a key, the beginning of one, or "" for everything.

    Raises:
        InvalidRequest: no key could ever start with it.
    """
    reason = None if prefix == "" else storage_fault(prefix.removesuffix("/") if prefix != "/" else prefix)
    # The last part of a prefix may be the beginning of a longer name, so "a/." can still lead to "a/.hidden".
    if reason is not None and not (prefix.rsplit("/", 1)[-1] in (".", "..") and storage_fault(prefix + "x") is None):
        raise InvalidRequest(f"listing prefix {prefix!r} is refused: {reason}. Nothing was read.", prefix=prefix)
    return prefix


def storage_fault(key: str) -> str | None:
    """Return a clause with the reason why a store cannot hold a key, or None if every store can."""
    if CONTROL.search(key):
        return "it contains a control character"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode text"
    if size > MAX_KEY_BYTES:
        return f"it has {size} bytes, at most {MAX_KEY_BYTES} are allowed"
    parts = key.split("/")
    if "" in parts:
        return "it has an empty part (a leading, trailing or double '/')"
    if "." in parts or ".." in parts:
        return "it has a part '.' or '..'"
    return None


def parse_root(url: str) -> LocalRoot | S3Root:
    """Parse the root URL of a store.

    Args:
        url: ``file:///abs/dir`` (percent escapes are decoded, other characters are literal) or
            ``s3://bucket/prefix``.
    Raises:
        InvalidRequest: another scheme (named), a relative ``file:`` path, or a bad bucket name.
    """
    match = SCHEME.fullmatch(url)
    if match is None:
        raise InvalidRequest(f"store URL {url!r} has no scheme; expected file:///abs/dir or s3://bucket/prefix.")
    scheme, rest = match.group(1).lower(), match.group(2)
    if scheme == "file":
        return LocalRoot(_absolute_path(url, rest))
    if scheme == "s3":
        bucket, _, prefix = rest.partition("/")
        prefix = prefix.strip("/")
        if not BUCKET.fullmatch(bucket):
            raise InvalidRequest(f"{url!r}: {bucket!r} is not a bucket name; expected s3://bucket/prefix.")
        if prefix:
            validate_key(prefix)
        return S3Root(bucket, prefix)
    raise InvalidRequest(
        f"{url!r}: scheme `{scheme}` is not available in this version.",
        hint="use file:///abs/dir, s3://bucket/prefix, or a path relative to the spec",
    )


def _absolute_path(url: str, rest: str) -> Path:
    path = unquote(rest)
    if not path.startswith("/"):
        raise InvalidRequest(f"{url!r}: expected an absolute path, file:///abs/dir (three slashes).")
    if CONTROL.search(path):
        raise InvalidRequest(f"{url!r}: the path contains a control character.")
    return Path(os.path.normpath(path))


def is_loopback(endpoint_url: str) -> bool:
    """Return whether an endpoint is this machine, which a proxy cannot reach."""
    host = urlsplit(endpoint_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
