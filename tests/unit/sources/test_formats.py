"""The tables of source formats: what a spec may declare, and the readers."""

from __future__ import annotations

import io
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.jobspec.job import FileSourceSpec, NexmarkSourceSpec, PythonSourceSpec, SourceSpec
from milepost.language import SOURCE_FORMATS, arrow_schema
from milepost.sources.contract import LineReader, SourceObject, whole_object
from milepost.sources.formats import FORMATS, build_reader
from milepost.sources.inference.files import FORMATS_BY_ENDING
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.testing.local_job import ENCODERS
from milepost_testkit.chaos.object_formats import FORMATS as CHAOS
from milepost_testkit.stores.memory_store import MemoryStore
from milepost_testkit.tasks.faults.reader_fuzz import FORMATS as FUZZED

FILES = "pipeline/milepost/jobspec/job/sources/file_source.py"
PLACES = {
    f"`format` of FileSourceSpec in {FILES}": set(get_args(FileSourceSpec.model_fields["format"].annotation)),
    "SOURCE_FORMATS in pipeline/milepost/language/source_formats.py": set(SOURCE_FORMATS),
    "FORMATS in pipeline/milepost/sources/formats.py": set(FORMATS),
    "FORMATS_BY_ENDING in pipeline/milepost/sources/inference/files.py": set(FORMATS_BY_ENDING.values()),
    "ENCODERS in pipeline/milepost/testing/local_job.py": set(ENCODERS),
    "FORMATS in milepost_testkit/tasks/faults/reader_fuzz.py": set(FUZZED),
    "FORMATS in milepost_testkit/chaos/object_formats.py": set(CHAOS),
}
"""Where a source format is named, in the order of the recipe in `docs/explanation/extending.md`."""


@pytest.mark.parametrize("name", sorted(set().union(*PLACES.values())))
def test_no_step_of_the_recipe_is_missing_for_a_source_format(name: str) -> None:
    if missing := [place for place, formats in PLACES.items() if name not in formats]:
        pytest.fail("\n".join((f"format {name} is missing here (docs/explanation/extending.md):", *missing)))


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_has_lines_if_its_reader_finds_them(name: str) -> None:
    """Otherwise `milepost why` would name a row of an object by the wrong number."""
    reader = FORMATS[name](DeclaredColumns("rows", {}), {})
    assert SOURCE_FORMATS[name].has_lines is isinstance(reader, LineReader)


@pytest.mark.parametrize(
    "spec",
    [
        PythonSourceSpec.model_validate({"format": "python", "source": "feeds:Clicks", "schema": {"k": "list<int8>"}}),
        NexmarkSourceSpec.model_validate({"format": "nexmark", "events": "auction", "event_time": "event_time"}),
    ],
    ids=["python", "nexmark"],
)
def test_a_landed_object_is_read_as_parquet_with_the_declared_columns(spec: SourceSpec) -> None:
    schema = arrow_schema(spec.columns)
    values = [pa.array([7 if field.name == "event_time" else None], field.type) for field in schema]
    landed = pa.Table.from_arrays(values, schema=schema)
    body, store, key = io.BytesIO(), MemoryStore("memory://"), "1/a/00000-00000.parquet"
    pq.write_table(landed, body)
    stat = store.put(key, body.getvalue())
    reader = build_reader("s", spec)
    part = whole_object(SourceObject(key, stat.etag, stat.size, 0))
    assert pa.Table.from_batches(reader.read_part(store, part), reader.schema).equals(landed)
