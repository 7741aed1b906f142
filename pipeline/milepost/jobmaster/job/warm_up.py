"""Load slow libraries before the first job: Great Expectations and the S3 service model."""

from __future__ import annotations

from milepost.quality import preload


def warm_up() -> None:
    """Load them without connecting or looking up credentials. Raises ImportError: the extra `s3` is missing."""
    preload()
    from milepost.storage.s3 import read_service_model

    read_service_model()
