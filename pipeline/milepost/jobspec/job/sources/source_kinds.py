"""Registry of the formats of sources. A new kind of source is a module, and a line here."""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from milepost.jobspec.job.sources.delta_source import DeltaSourceSpec
from milepost.jobspec.job.sources.dlt_source import DltSourceSpec
from milepost.jobspec.job.sources.file_source import FileSourceSpec
from milepost.jobspec.job.sources.iceberg_source import IcebergSourceSpec
from milepost.jobspec.job.sources.kafka_source import KafkaSourceSpec
from milepost.jobspec.job.sources.milepost_source import MilepostSourceSpec
from milepost.jobspec.job.sources.nexmark_source import NexmarkSourceSpec
from milepost.jobspec.job.sources.postgres_source import PostgresSourceSpec
from milepost.jobspec.job.sources.python_source import PythonSourceSpec
from milepost.jobspec.job.sources.source_spec import SourceSpec

AnySource = Annotated[
    FileSourceSpec
    | PythonSourceSpec
    | DltSourceSpec
    | NexmarkSourceSpec
    | KafkaSourceSpec
    | DeltaSourceSpec
    | IcebergSourceSpec
    | MilepostSourceSpec
    | PostgresSourceSpec,
    Field(discriminator="format"),
]

SOURCE_KINDS: dict[str, type[SourceSpec]] = {
    format_: spec
    for spec in get_args(get_args(AnySource)[0])
    for format_ in get_args(spec.model_fields["format"].annotation)
}
"""Format -> the spec of its sources."""

UNAVAILABLE_FORMATS = frozenset({"generator", "kinesis", "spark"})
"""Formats that are planned but not available in this version."""
