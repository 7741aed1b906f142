"""Keys made to collide under version 1 of the key hash, by inverting it."""

from __future__ import annotations

import pyarrow as pa

_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15
_COMBINE = 0xC2B2AE3D27D4EB4F


def mix(word: int) -> int:
    """The finalizer of splitmix64, as the hash has it."""
    word = (word + _STEP) & _MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _MASK
    return word ^ word >> 31


def unmixed(word: int) -> int:
    """The inverse of `mix`."""
    word = (word ^ word >> 31 ^ word >> 62) * pow(0x94D049BB133111EB, -1, 2**64) & _MASK
    word = (word ^ word >> 27 ^ word >> 54) * pow(0xBF58476D1CE4E5B9, -1, 2**64) & _MASK
    word = word ^ word >> 30 ^ word >> 60
    return (word - _STEP) & _MASK


def colliding_pairs(count: int, *, seed: int = 0x4D696C65706F7374, target: int = 7) -> pa.Table:
    """Different keys of two int64 columns, `a` and `b`, whose version-1 hashes are all `target`."""
    tag = 0x165667B19E3779F9
    firsts = list(range(count))
    seconds = []
    for first in firsts:
        after_first = mix((seed ^ 2) * _COMBINE & _MASK ^ mix(first ^ tag))
        word = unmixed(unmixed(target) ^ after_first * _COMBINE & _MASK) ^ tag
        seconds.append(word - 2**64 if word >= 2**63 else word)
    return pa.table({"a": pa.array(firsts, pa.int64()), "b": pa.array(seconds, pa.int64())})
