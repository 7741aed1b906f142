"""Encode and decode stored garbage lists. A list holds the keys of one transition; the manifest refers to it (I8)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

from milepost.codec import decode, encode
from milepost.errors import StateCorrupt
from milepost.protocol.manifest.upkeep.garbage import newest_checkpoint_of
from milepost.protocol.records.manifest_state import GarbageList

_HINT = "milepost gc lists its keys again"


@dataclass(frozen=True, slots=True)
class _Keys:
    """The distinct keys of one list. `version`: of the head that the list was made from."""

    stored_format: ClassVar[str] = "milepost.garbage/1"

    keys: tuple[str, ...]
    version: int


def encode_list(keys: Collection[str], version: int) -> tuple[str, bytes]:
    """Return the digest and the body of a garbage list.

    Args:
        keys: distinct keys. version: of the head that the list is made from.
    """
    body = encode(_Keys(tuple(keys), version))
    return sha256(body).hexdigest(), body


def decode_list(body: bytes, expected: GarbageList) -> tuple[str, ...]:
    """Return the keys of a list. Raises StateCorrupt: it is not the list that the manifest refers to."""
    what = f"garbage list {expected.sha256}"
    keys = decode(_Keys, body, what, hint=_HINT).keys if sha256(body).hexdigest() == expected.sha256 else ()
    if len(keys) != expected.count or newest_checkpoint_of(keys) != expected.newest:
        raise StateCorrupt(
            f"{what}: expected {expected.count} keys below checkpoints up to {expected.newest} with this digest, got"
            f" {len(body)} other bytes. Nothing was deleted.",
            hint=_HINT,
        )
    return keys
