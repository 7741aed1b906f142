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


ORDERS = 1_500_000
"""Of TPC-H at scale factor 1."""


class Family(Enum):
    """The benchmark that rows are of: bids alone, the three streams of Nexmark, or changes of TPC-H's tables."""

    BIDS = "bids"
    NEXMARK = "nexmark"
    TPCH = "tpch"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the rows of a workload look like.

    Attributes:
        keys: number of distinct auctions; (bidder, channel) and url are as many. Of TPC-H: of orders. Not of Nexmark,
            which has new ones.
        rows: per epoch; of Nexmark, of all three streams. Of TPC-H: orders that an epoch inserts, and deletes.
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
    family: Family = Family.BIDS

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
        flag = "".join(name for name, there in flags.items() if there)
        return f"{self.family.value}-{'-'.join(map(str, parts))}{flag}"

    @property
    def says(self) -> str:
        """For people: what an epoch has."""
        if self.family is Family.NEXMARK:
            return f"{self.rows:,} events per epoch, of which 2 % are persons and 6 % auctions, seed {self.seed}"
        if self.family is Family.TPCH:
            return (
                f"scale factor {self.keys / ORDERS:g}: {self.keys:,} orders; each later epoch inserts {self.rows:,} "
                f"orders with their lines, deletes as many and updates 1 % of the customers, seed {self.seed}"
            )
        return (
            f"{self.rows:,} rows per epoch in {self.files} Parquet files, {self.keys:,} keys ({self.skew.value}), "
            f"seed {self.seed}"
        )

    def rows_of(self, epoch: int) -> int:
        """How many rows an epoch has."""
        return self.keys if epoch == 0 and self.prefill else self.rows
