"""The tables of source formats: what a spec may declare, and the readers."""

from __future__ import annotations

import io
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.jobspec.job import FileSourceSpec, NexmarkSourceSpec, PythonSourceSpec, SourceSpec
from milepost.language import SOURCE_FORMATS, to_arrow
from milepost.sources.contract import SourceObject, whole_object
from milepost.sources.formats import FORMATS, build_reader
from milepost_testkit.stores.memory_store import MemoryStore


def test_each_format_of_a_spec_is_declared_and_has_a_reader() -> None:
    named = set(get_args(FileSourceSpec.model_fields["format"].annotation))
    assert named == SOURCE_FORMATS.keys() == FORMATS.keys()


@pytest.mark.parametrize(
    "spec",
    [
        PythonSourceSpec.model_validate({"format": "python", "source": "feeds:Clicks", "schema": {"k": "list<int8>"}}),
        NexmarkSourceSpec.model_validate({"format": "nexmark", "events": "auction", "event_time": "event_time"}),
    ],
    ids=["python", "nexmark"],
)
def test_a_landed_object_is_read_as_parquet_with_the_declared_columns(spec: SourceSpec) -> None:
    schema = pa.schema([(name, to_arrow(type_)) for name, type_ in spec.columns.items()])
    values = [pa.array([7 if field.name == "event_time" else None], field.type) for field in schema]
    landed = pa.Table.from_arrays(values, schema=schema)
    body, store, key = io.BytesIO(), MemoryStore("memory://"), "1/a/00000-00000.parquet"
    pq.write_table(landed, body)
    stat = store.put(key, body.getvalue())
    reader = build_reader("s", spec)
    part = whole_object(SourceObject(key, stat.etag, stat.size, 0))
    assert pa.Table.from_batches(reader.read_part(store, part), reader.schema).equals(landed)
