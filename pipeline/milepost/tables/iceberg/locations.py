"""Convert between Iceberg locations (text with a scheme) and keys below a table's root."""

from __future__ import annotations

import re

from milepost.errors import InvalidRequest
from milepost.protocol.records import StoreConfig
from milepost.storage import LocalRoot, parse_root

_NOT_LITERAL = re.compile(r"[%?#]")
_S3 = re.compile(r"s3[an]?://")
_FILE = re.compile(r"file:/+|/+")


def table_location(config: StoreConfig) -> str:
    """Return the location of the table at the store's root, without a trailing slash.

    Raises:
        InvalidRequest: the URL contains ``%``, ``?`` or ``#``, which only some engines take literally.
    """
    root = parse_root(config.url)
    if isinstance(root, LocalRoot):
        location = f"file://{root.path}"
    else:
        location = f"s3://{root.bucket}/{root.prefix}".rstrip("/")
    ambiguous = _NOT_LITERAL.search(location)
    if ambiguous is not None:
        raise InvalidRequest(
            f"{config.url}: the path of an Iceberg table must not contain {ambiguous.group()!r}: engines "
            "disagree about its meaning. Nothing was read or written.",
            hint="give the sink a path without it",
        )
    return location


def normal_location(location: str) -> str:
    """Return a location in its canonical spelling: ``s3://`` for S3, ``file:///`` for a local file."""
    location = location.rstrip("/")
    if (scheme := _S3.match(location)) is not None:
        return f"s3://{location[scheme.end() :]}"
    if (scheme := _FILE.match(location)) is not None:
        return f"file:///{location[scheme.end() :]}"
    return location


def key_below(root: str, location: str) -> str:
    """Return a file's key below the table's location, or its full location if it is elsewhere."""
    location = normal_location(location)
    return location.removeprefix(f"{root}/")
