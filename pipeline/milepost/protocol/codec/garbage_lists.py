"""A stored list of garbage names the keys of one transition; the manifest names the list by its digest (I8)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

from milepost.protocol.codec.records import decode, encode
from milepost.protocol.manifest.upkeep.garbage import newest_of
from milepost.protocol.records.errors import StateCorrupt
from milepost.protocol.records.manifest_state import GarbageList

_HINT = "milepost gc finds again what it named"


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of one list, each once; `version`: of the head that it was made from."""

    stored_format: ClassVar[str] = "milepost.garbage/1"

    keys: tuple[str, ...]
    version: int


def encode_list(keys: Collection[str], version: int) -> tuple[str, bytes]:
    """Return the digest and the body of a list of garbage.

    Args:
        keys: each once. version: of the head that it is made from.
    """
    body = encode(_Keys(tuple(keys), version))
    return sha256(body).hexdigest(), body


def decode_list(body: bytes, named: GarbageList) -> tuple[str, ...]:
    """Return the keys of a list. Raises StateCorrupt: it is not what the manifest names."""
    what = f"list of garbage {named.sha256}"
    keys = decode(_Keys, body, what, hint=_HINT).keys if sha256(body).hexdigest() == named.sha256 else ()
    if len(keys) != named.count or newest_of(keys) != named.newest:
        raise StateCorrupt(
            f"{what}: expected {named.count} keys below checkpoints up to {named.newest} with this digest, got"
            f" {len(body)} other bytes. Nothing was deleted.",
            hint=_HINT,
        )
    return keys
