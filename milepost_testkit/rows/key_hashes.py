"""Key hashes of tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from milepost.state.layers.key_groups import Hashes
from milepost.state.layers.key_hash import KeyHash

KEY_HASH_SECRET = "5ec2e7" * 5 + "00"

KEYED = KeyHash(KEY_HASH_SECRET)


@dataclass(frozen=True)
class WeakHash(KeyHash):
    """Only the upper two bits: four different values, so that nearly every key collides with others."""

    def __call__(self, table: pa.Table, key: Sequence[str]) -> Hashes:
        return super().__call__(table, key) & np.uint64(0xC000000000000000)


WEAK = WeakHash(KEY_HASH_SECRET)
