"""Pseudo-random 64-bit words. Each depends only on its number, so any part of a sequence can be generated."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]


def splitmix64(value: Words) -> Words:
    """Return the splitmix64 hash of each word."""
    with np.errstate(over="ignore"):
        value = value + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def below(random: Words, bound: int) -> Words:
    """Scale 64 random bits to [0, bound); bound is below 2^32."""
    return (random >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32)
