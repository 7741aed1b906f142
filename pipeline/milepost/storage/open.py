"""Open a store from its configuration."""

from __future__ import annotations

from milepost.extras import require
from milepost.protocol.records import ObjectStore, StoreConfig
from milepost.storage.keys import LocalRoot, parse_root
from milepost.storage.local.store import LocalStore


def open_store(config: StoreConfig) -> ObjectStore:
    """Return the store of a root URL. Nothing is contacted or created before its first call.

    The store can be pickled, and used by several threads and processes.

    Raises:
        InvalidRequest: the scheme of the URL is neither ``file`` nor ``s3``.
        EnvironmentUnusable: the scheme is ``s3``, and boto3 is not installed.
    """
    root = parse_root(config.url)
    if isinstance(root, LocalRoot):
        return LocalStore(config)
    require("s3", f"the store {config.url}")
    from milepost.storage.s3.store import S3Store  # boto3 is only loaded by jobs that use it

    return S3Store(config)
