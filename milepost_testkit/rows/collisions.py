"""Keys made to collide under a known secret, by reducing a lattice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15


def mix(word: int) -> int:
    """The finalizer of splitmix64, as the hash has it."""
    word = (word + _STEP) & _MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _MASK
    return word ^ word >> 31


def short_vectors(basis: list[list[int]]) -> list[list[int]]:
    """Reduce a lattice's basis (Lenstra, Lenstra, Lovász), for the few dimensions that a key has."""
    basis, k = [list(vector) for vector in basis], 1
    while k < len(basis):
        ortho, factors = _orthogonal(basis)
        for j in range(k - 1, -1, -1):
            times = round(factors[k][j])
            if times:
                basis[k] = [a - times * b for a, b in zip(basis[k], basis[j], strict=True)]
                ortho, factors = _orthogonal(basis)
        if _dot(ortho[k], ortho[k]) >= (Fraction(3, 4) - factors[k][k - 1] ** 2) * _dot(ortho[k - 1], ortho[k - 1]):
            k += 1
        else:
            basis[k - 1], basis[k] = basis[k], basis[k - 1]
            k = max(k - 1, 1)
    return basis


def _orthogonal(basis: list[list[int]]) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
    ortho: list[list[Fraction]] = []
    factors = [[Fraction(0)] * len(basis) for _ in basis]
    for i, vector in enumerate(basis):
        rest = [Fraction(part) for part in vector]
        for j, other in enumerate(ortho):
            factors[i][j] = _dot([Fraction(part) for part in vector], other) / _dot(other, other)
            rest = [a - factors[i][j] * b for a, b in zip(rest, other, strict=True)]
        ortho.append(rest)
    return ortho, factors


def _dot(left: list[Fraction], right: list[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


def harmless_differences(upper: list[int], lower: list[int]) -> Iterator[list[int]]:
    """Differences of a key's 32-bit numbers that hardly move either sum of version 2, for who knows the coefficients.

    Args:
        upper, lower: the coefficient of each number in either sum, modulo 2^64.
    """
    count = len(upper)
    basis = [[int(i == j) for j in range(count)] + [upper[i], lower[i]] for i in range(count)]
    basis += [[0] * count + [2**64, 0], [0] * count + [0, 2**64]]
    reduced = short_vectors(basis)
    for times in itertools.product((0, 1, -1), repeat=len(reduced)):
        parts = zip(times, reduced, strict=True)
        vector = [sum(column) for column in zip(*([n * part for part in one] for n, one in parts), strict=True)]
        if any(vector[:count]) and max(map(abs, vector)) < 2**32:
            yield vector[:count]
