"""What a workload's bids look like; nothing but the standard library, which every system's environment has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

SCATTER = 2_654_435_761
"""A prime above every number of keys: multiplying by it modulo that number permutes the keys."""


class Skew(Enum):
    """How often each key occurs: all alike, or the key of rank r in proportion to 1/r.

    CLUSTERED: all alike among adjoining ones, a fiftieth of all, which each epoch others are: the newest auctions.
    """

    UNIFORM = "uniform"
    ZIPF = "zipf"
    CLUSTERED = "clustered"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the bids look like.

    Attributes:
        keys: number of distinct auctions; (bidder, channel) and url are as many.
        rows: per epoch.
        files: Parquet files per epoch.
        prefill: whether epoch 0 holds every key exactly once, instead of `rows` drawn ones.
        string_bytes: whether `url` is filled; it is most of a file's bytes. Else it is empty text.
        coarse: whether times are whole 10 ms: no system's way of rounding decides what its watermark has passed.
    """

    keys: int
    rows: int = 1_000_000
    files: int = 4
    skew: Skew = Skew.UNIFORM
    seed: int = 1
    prefill: bool = True
    string_bytes: bool = False
    coarse: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.keys < SCATTER:
            raise ValueError(f"keys: expected 1 to {SCATTER - 1}, got {self.keys}")
        if self.rows < 1 or self.files < 1:
            raise ValueError(f"rows and files: expected at least 1, got {self.rows} and {self.files}")

    @property
    def name(self) -> str:
        """A folder's name that no other shape has."""
        parts = (self.keys, self.rows, self.files, self.skew.value, self.seed)
        flags = {"-prefill": self.prefill, "-strings": self.string_bytes, "-coarse": self.coarse}
        return f"bids-{'-'.join(map(str, parts))}{''.join(name for name, there in flags.items() if there)}"

    def rows_of(self, epoch: int) -> int:
        """How many rows an epoch has."""
        return self.keys if epoch == 0 and self.prefill else self.rows
