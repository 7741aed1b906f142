"""Warm-up does ahead of the first job what takes long once per process: the gate's library, S3's description."""

from __future__ import annotations

from milepost.quality.gx import preload


def warm_up() -> None:
    """Do it, without a connection or a look for credentials. Raises ImportError: the extra `s3` is missing."""
    preload()
    from milepost.storage.s3.store import read_service_model

    read_service_model()
