"""Lower the product's limits, so that small jobs reach the code of large or old ones."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from random import Random

_ROOM = "milepost."
_LIMITS: Mapping[str, tuple[int, ...]] = {
    "sinks.staging.compaction.COMPACT_FILES": (2, 4),
    "sinks.staging.small_files.TARGET_BYTES": (4_000, 64 << 20),
    "sinks.buckets.table_buckets.ROWS_PER_BUCKET": (2, 8),
    "jobmaster.landing.object_writer.OBJECT_BYTES": (500, 64 << 20),
    "jobmaster.landing.object_writer._GROUP_ROWS": (2, 100_000),
    "sources.planning.consumed.MAX_RUNS": (2, 8),
    "sources.planning.splits.UNIT_BYTES": (600, 16 << 20),
    "spill.spilled_rows.HELD_BYTES": (500, 32 << 20),
    "epoch.gate_shares.DRIVER_ROWS": (2, 1_000_000),
    "epoch.gate_shares._PARTITION_ROWS": (3, 500_000),
    "protocol.manifest.upkeep.garbage.MAX_STATE_ENTRIES": (1, 8),
    "protocol.manifest.upkeep.garbage.MAX_LISTS": (1, 6),
    "protocol.manifest.upkeep.collection.MAX_LISTED": (5, 1_000),
    "tables.records.contents.MAX_RECORDS": (2, 20),
}
"""Constants below the package, and what they may be; the last is as it is shipped."""
_MARGIN = "milepost.protocol.retention.retention._GRACE_MARGIN_MS"

_AHEAD_MS = 2 * 3_600_000
"""More than a fault moves a clock ahead."""


def small_limits(random: Random) -> dict[str, int]:
    """Return limits for all processes of a job: each is either small or the default."""
    return {name: random.choice(values) for name, values in _LIMITS.items()}


def shrink(limits: Mapping[str, int]) -> None:
    """Set limits in this process, in every module that has one of them by name."""
    for name, value in limits.items():
        module, _, constant = name.rpartition(".")
        home = import_module(_ROOM + module)
        shipped = getattr(home, constant)
        readers = [one for at, one in sys.modules.items() if at.startswith(_ROOM) and one is not None]
        for reader in (home, *readers):
            if constant in vars(reader) and vars(reader)[constant] == shipped:
                setattr(reader, constant, value)


def shorten_grace(timeout_ms: int) -> None:
    """Make all garbage due immediately in this process. No other process of the job may run.

    This includes garbage listed while the server's clock was ahead, because the log's times never decrease.
    """
    module, _, constant = _MARGIN.rpartition(".")
    setattr(import_module(module), constant, -2 * timeout_ms - _AHEAD_MS)
