"""Location of a Delta table for commits with the `deltalake` library."""

from __future__ import annotations

import os

from milepost.errors import EnvironmentUnusable
from milepost.protocol.records import StoreConfig
from milepost.tables.delta import DeltaLocation, readable_location

_UNSAFE = ("AWS_S3_ALLOW_UNSAFE_RENAME", "MOUNT_ALLOW_UNSAFE_RENAME", "AWS_S3_LOCKING_PROVIDER")
"""Variables that make writers of Delta tables commit without a conditional write, or with another lock than ours."""


def delta_location(sink: str, config: StoreConfig) -> DeltaLocation:
    """Return the location of a store's root for the library, with current credentials.

    Raises:
        InvalidRequest: the library would misread the path.
        EnvironmentUnusable: a variable enables unsafe commits, or there are no credentials.
    """
    for name in (*_UNSAFE, *(unsafe.lower() for unsafe in _UNSAFE)):
        if name in os.environ:
            raise EnvironmentUnusable(
                f"sink {sink}: {name} is set, so a commit to a Delta table could overwrite that of another writer. "
                "Nothing was published.",
                hint=f"unset {name}; a store that needs it cannot have Delta tables",
                sink=sink,
            )
    return readable_location("sink", sink, config, "Nothing was published.")
