"""A landing store for tests of sources: put a body, get the planned object back, read it whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from milepost.jobspec.job import FileSourceSpec
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sources.contract import SourceObject, whole_object
from milepost.sources.formats import build_reader
from milepost.storage.open import open_store


class Landing:
    """A local store with the few verbs that a reader's test needs."""

    def __init__(self, folder: Path) -> None:
        self.store: ObjectStore = open_store(StoreConfig(f"file://{folder}"))

    def put(self, key: str, body: bytes) -> SourceObject:
        stat = self.store.put(key, body)
        return SourceObject(stat.key, stat.etag, stat.size, stat.last_modified_ms)

    def read(self, spec: FileSourceSpec, key: str, body: bytes) -> pa.Table:
        """Land the body and return all its rows, with the reader's schema checked on every batch."""
        reader = build_reader("flights", spec)
        batches = list(reader.read_part(self.store, whole_object(self.put(key, body))))
        assert all(batch.schema.equals(reader.schema) for batch in batches)
        return pa.Table.from_batches(batches, reader.schema)


def source(format_: str, schema: dict[str, str], **keys: Any) -> FileSourceSpec:
    """Return a source's spec as a YAML file would give it."""
    return FileSourceSpec.model_validate({"format": format_, "path": "s3://landing/*", "schema": schema, **keys})
