"""Buckets of key groups: how an upsert table is divided, and how a subtask rewrites the changed buckets."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.buckets.table_buckets import BucketPlan as BucketPlan
    from milepost.sinks.buckets.table_buckets import OwnedKeys as OwnedKeys
else:
    __getattr__, __dir__ = lazy_exports(__name__)
