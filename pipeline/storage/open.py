"""From a store's configuration to the store."""

from __future__ import annotations

from dataclasses import replace

from pipeline.protocol.object_store import ObjectStore, StoreConfig
from pipeline.storage.keys import LocalRoot, file_url, join_url, parse_root, resolve_url
from pipeline.storage.local import LocalStore

__all__ = ["below", "file_url", "join_url", "open_store", "resolve_url"]


def open_store(config: StoreConfig) -> ObjectStore:
    """Return the store of a root URL; nothing is contacted or created until its first call.

    The store may be pickled and used by several threads and processes.

    Raises:
        InvalidRequest: the URL's scheme is neither ``file`` nor ``s3``.
    """
    root = parse_root(config.url)
    if isinstance(root, LocalRoot):
        return LocalStore(config)
    from pipeline.storage.s3 import S3Store  # boto3 is only loaded by jobs that use it

    return S3Store(config)


def below(config: StoreConfig, name: str) -> StoreConfig:
    """Return the configuration of the same store rooted at `name` below it, e.g. a job's root."""
    return replace(config, url=join_url(config.url, name))
