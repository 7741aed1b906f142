"""Locations in Iceberg are plain text with a scheme; a table's own files are keys below its root."""

from __future__ import annotations

import re

from milepost.errors import InvalidRequest
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.keys import LocalRoot, parse_root

_NOT_LITERAL = re.compile(r"[%?#]")
_S3 = re.compile(r"s3[an]?://")
_FILE = re.compile(r"file:/+|/+")


def table_location(config: StoreConfig) -> str:
    """Return the location of the table at a store's root, without a slash at its end.

    Raises:
        InvalidRequest: it has a ``%``, ``?`` or ``#``, which some engines take literally and others do not.
    """
    root = parse_root(config.url)
    if isinstance(root, LocalRoot):
        location = f"file://{root.path}"
    else:
        location = f"s3://{root.bucket}/{root.prefix}".rstrip("/")
    unclear = _NOT_LITERAL.search(location)
    if unclear is not None:
        raise InvalidRequest(
            f"{config.url}: a path of an Iceberg table has no {unclear.group()!r}: engines disagree about its meaning. "
            "Nothing was read or written.",
            hint="give the sink a path without it",
        )
    return location


def normal_location(location: str) -> str:
    """Return a location in the one spelling that is compared: ``s3://`` for S3, ``file:///`` for a local file."""
    location = location.rstrip("/")
    if (scheme := _S3.match(location)) is not None:
        return f"s3://{location[scheme.end() :]}"
    if (scheme := _FILE.match(location)) is not None:
        return f"file:///{location[scheme.end() :]}"
    return location


def key_below(root: str, location: str) -> str:
    """Return a file's key below the table's location; of a file that lies elsewhere, its whole location."""
    location = normal_location(location)
    return location.removeprefix(f"{root}/")
