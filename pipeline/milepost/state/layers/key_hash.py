"""Hash the keys of keyed state with a secret of the job.

The author of the input chooses the keys. With a public hash, they could be chosen so that all of them share a hash or
a key group. So this hash is keyed with 128 random bits. A key is a row of 32-bit numbers: for each column a null flag,
the length of a text, and the 8-byte words of the value, split in two. With coefficients of 64 bits drawn from the
secret for every column, position and number of key columns,

    upper = (c0 + sum of c[i] * number[i]) modulo 2^64, lower = the same with other coefficients d,

and the hash is the upper 32 bits of each, mixed by a public bijection. This family is strongly universal (Lemire and
Kaser, "Strongly universal string hashing is fast", 2014: theorem on MULTILINEAR). For any two keys chosen without
knowledge of the secret, the hashes are independent and uniform. They are equal with probability 2^-64, and their upper
halves, which decide the key group, with 2^-32. The bijection preserves this, and removes the order in which a linear
function puts evenly spaced keys.

A text of more than 512 bytes is replaced by its length and its keyed BLAKE2b digest of 128 bits.
Golden vectors pin the hash. Changing it needs a new format of the metadata, which records the secret.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa

from milepost.protocol.exchange import NullSpreadingKey
from milepost.protocol.records import cached_property
from milepost.state.layers.key_groups import (
    KEPT_BYTES,
    PER_MICROSECOND,
    ROWS_AT_ONCE,
    Hashes,
    Ints,
    decimal_halves,
    fixed_width,
    float_bits,
    integer_bits,
    is_bytes,
    key_column,
    key_group,
    may_be_key,
    mix,
    words_of_bytes,
)

_MAX_WORDS = 64
_PER_NUMBER = 4
"""Number of coefficients per word: for the word and for its upper half, in the upper and in the lower sum.

With w = low + 2^32 high, a w + b high = a low + (2^32 a + b) high. This is as uniform and independent as one
coefficient per half.
"""
_32 = np.uint64(32)
_UPPER = np.uint64(0xFFFFFFFF00000000)
_OF_NO_COLUMNS = np.zeros(2, dtype=np.uint64)


def new_secret() -> str:
    """Return 128 random bits as hexadecimal digits, the form in which the manifest stores them."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class KeyHash:
    """The hash function of one job's keys. Equal objects assign every key to the same key group.

    Attributes:
        secret: 32 hexadecimal digits, excluded from repr.
    """

    secret: str = field(repr=False)

    @cached_property
    def digest(self) -> str:
        """Return a name that differs from that of every other key hash and does not reveal the secret."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def __call__(self, table: pa.Table, key: Sequence[str]) -> Hashes:
        """Return one stable 64-bit hash per row over the key columns, in their order.

        Nulls are equal, all NaNs are equal, and -0.0 equals 0.0. Integers of different widths with the same value are
        equal, and so are floats and timestamps of the same instant, so widening a column moves no key.

        Args:
            table: has every column of `key`.
            key: column names. If empty, all rows have the same hash, which does not depend on the secret.
        Raises:
            InvalidRequest: a key column's type cannot be a key.

        >>> hasher = KeyHash("00" * 16)
        >>> narrow, wide = (pa.table({"k": pa.array([5, 6], kind)}) for kind in (pa.int32(), pa.int64()))
        >>> (hasher(narrow, ["k"]) == hasher(wide, ["k"])).tolist()
        [True, True]
        """
        return _keyed_hash(table, key, self.secret)

    def key_groups(self, rows: pa.Table, key: Sequence[str], max_parallelism: int) -> Ints:
        """Return the key group of each row, by the key columns that route it. Raises as the hash.

        With a `NullSpreadingKey`, rows with a null in the key are assigned by all columns that can be hashed, sorted by
        name.
        """
        groups = key_group(self(rows, key), max_parallelism)
        if isinstance(key, NullSpreadingKey) and any(rows.column(name).null_count for name in key):
            null = np.logical_or.reduce([np.asarray(rows.column(name).is_null()) for name in key])
            columns = sorted(field.name for field in rows.schema if may_be_key(field.type))
            groups[null] = key_group(self(rows.filter(pa.array(null)), columns), max_parallelism)
        return groups


class _Sums:
    """The upper and lower sums of a block of rows. Each starts at a constant."""

    def __init__(self, rows: int, begin: Hashes) -> None:
        self.upper, self.lower = np.full(rows, begin[0]), np.full(rows, begin[1])

    def add(self, rows: slice | Ints, words: Hashes, factors: Hashes) -> None:
        """Add one word of each of the given rows, multiplied by its coefficients."""
        high = words >> _32
        self.upper[rows] += words * factors[0] + high * factors[1]
        self.lower[rows] += words * factors[2] + high * factors[3]

    def hashes(self) -> Hashes:
        return mix((self.upper & _UPPER) | (self.lower >> _32))


@dataclass(frozen=True, slots=True)
class _Coefficients:
    """Coefficients of one key column.

    Attributes:
        begin, null: one for each sum. length: for the length of a text. words: by position of the word.
        long_texts: key of the digest of long texts.
    """

    begin: Hashes
    null: Hashes
    length: Hashes
    words: Hashes
    long_texts: bytes


@lru_cache(maxsize=64)
def _coefficients(secret: str, columns: int, index: int) -> _Coefficients:
    """Return the coefficients of the key column at `index`, in a key of `columns` columns."""
    own = hashlib.shake_256(f"milepost key hash 2: {secret} {columns} {index}".encode())
    drawn = np.frombuffer(own.digest(8 * (8 + _PER_NUMBER * _MAX_WORDS) + 32), dtype="<u8").astype(np.uint64)
    words = drawn[8:-4].reshape(_MAX_WORDS, _PER_NUMBER)
    return _Coefficients(drawn[0:2], drawn[2:4], drawn[4:8], words, drawn[-4:].tobytes())


def _keyed_hash(table: pa.Table, key: Sequence[str], secret: str) -> Hashes:
    columns = [(key_column(table, name), _coefficients(secret, len(key), at)) for at, name in enumerate(key)]
    begin: Hashes = np.sum([own.begin for _, own in columns], axis=0, dtype=np.uint64) if key else _OF_NO_COLUMNS
    hashes = np.empty(table.num_rows, dtype=np.uint64)
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        block = hashes[start : start + ROWS_AT_ONCE]
        sums = _Sums(len(block), begin)
        for column, own in columns:
            at = 0
            for array in column.slice(start, ROWS_AT_ONCE).chunks:
                if len(array):
                    _add_values(sums, slice(at, at + len(array)), array, own)
                at += len(array)
        block[:] = sums.hashes()
    return hashes


def _add_values(sums: _Sums, rows: slice, array: pa.Array, own: _Coefficients) -> None:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    nulls = np.asarray(array.is_null()) if array.null_count else None
    if nulls is not None:
        sums.upper[rows][nulls] += own.null[0]
        sums.lower[rows][nulls] += own.null[1]
    if pa.types.is_null(array.type):
        return
    if is_bytes(array.type):
        _add_bytes(sums, rows.start, array.cast(pa.large_binary()), own)
        return
    for words, factors in zip(_words(array), own.words, strict=False):
        sums.add(rows, words if nulls is None else np.where(nulls, 0, words).astype(np.uint64), factors)


def _words(array: pa.Array) -> tuple[Hashes, ...]:
    """Return the words of fixed-width values. The words of nulls are arbitrary."""
    data_type = array.type
    if pa.types.is_floating(data_type):
        return (float_bits(array),)
    if pa.types.is_date(data_type):
        return (fixed_width(array.cast(pa.date32()), pa.int32()).astype(np.int64).view(np.uint64),)
    if pa.types.is_timestamp(data_type):
        return _instants(fixed_width(array, pa.int64()), data_type.unit)
    if pa.types.is_decimal(data_type):
        return decimal_halves(array)
    return (integer_bits(array),)


def _instants(values: Ints, unit: str) -> tuple[Hashes, ...]:
    """Return microseconds modulo 2^64, and a second word: the remaining nanoseconds, or 1000 per overflow."""
    if unit == "us":
        return (values.view(np.uint64),)
    if unit == "ns":
        micros, rest = np.divmod(values, 1_000)
        return micros.view(np.uint64), rest.view(np.uint64)
    scale = np.int64(PER_MICROSECOND[unit])
    low, high = values & np.int64(0xFFFFFFFF), values >> np.int64(32)
    overflows = (high * scale + (low * scale >> np.int64(32)) + np.int64(1 << 31)) >> np.int64(32)
    with np.errstate(over="ignore"):
        return (values * scale).view(np.uint64), (overflows * np.int64(1_000)).view(np.uint64)


def _add_bytes(sums: _Sums, first: int, array: pa.Array, own: _Coefficients) -> None:
    """Add texts word by word. Rows with texts that have ended are dropped at each step."""
    every_word, starts, lengths = words_of_bytes(array)
    every = slice(first, first + len(array))
    sums.add(every, lengths.view(np.uint64), own.length)
    rows = np.flatnonzero(lengths > 8 * _MAX_WORDS)
    if rows.size:
        for at, words in enumerate(_digests(array.take(pa.array(rows)), own.long_texts).T):
            sums.add(rows + first, words, own.words[at])
        lengths[rows] = 0
    rows = np.arange(len(array))
    for at, factors in enumerate(own.words):
        if not rows.size:
            break
        words = every_word[starts + 8 * at] & KEPT_BYTES[np.minimum(lengths, 8)]
        sums.add(every if len(rows) == len(array) else rows + first, words, factors)
        lengths = lengths - 8
        left = lengths > 0
        if not left.all():
            rows, starts, lengths = rows[left], starts[left], lengths[left]


def _digests(texts: pa.Array, key: bytes) -> Hashes:
    """Return two words per text."""
    joined = b"".join(hashlib.blake2b(text.as_buffer(), digest_size=16, key=key).digest() for text in texts)
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64).reshape(-1, 2)
