"""Input and output datasets of events, with their statistics, schema and lineage facets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from openlineage.client import facet_v2 as facets
from openlineage.client.event_v2 import InputDataset, OutputDataset

from milepost.epoch import SINK, CheckpointMetadata, InputRecord, SourceSnapshot, shares_of
from milepost.jobspec.column_lineage import sink_lineage
from milepost.jobspec.graph import JobGraph
from milepost.jobspec.load import LoadedJob
from milepost.language import SINK_FORMATS
from milepost.openlineage.dataset_names import DatasetName, catalog_table, sink_name, source_name
from milepost.openlineage.table_versions import TableVersions
from milepost.operators.base import Origins, RowsLineage
from milepost.protocol.records import cached_property
from milepost.quality import ExpectationResult, Verdict
from milepost.sources import SourceObject
from milepost.tables.records import TableContents, decode_schema

_column = facets.column_lineage_dataset
_change = facets.lifecycle_state_change_dataset
Change = _change.LifecycleStateChange

Facets = dict[str, Any]
"""Facets by their OpenLineage names."""

_CREATED = 0
"""Checkpoint id of a table before its first publication."""


class JobDatasets:
    """The datasets of one job. Parts that do not depend on the epoch are computed once."""

    def __init__(self, job: LoadedJob, graph: JobGraph) -> None:
        self._job, self._graph = job, graph

    @cached_property
    def _sources(self) -> dict[str, DatasetName]:
        return {name: source_name(self._job, name) for name in self._job.spec.sources}

    @cached_property
    def _lineage(self) -> dict[str, RowsLineage]:
        return sink_lineage(self._job.spec, self._graph)

    def inputs(self, record: InputRecord, metadata: CheckpointMetadata | None = None) -> list[InputDataset]:
        """Return the inputs of an epoch: one dataset per source with planned objects, and per lookup dimension.

        Args:
            metadata: metadata of the epoch after it has run. With it, statistics cover the objects that were read.
        """
        snapshots = {} if metadata is None else metadata.sources
        read = [self._input(src.name, src.objects, snapshots.get(src.name)) for src in record.sources if src.objects]
        return read + [self._input(name, dim.objects, None) for name, dim in sorted(record.dimensions.items())]

    def _input(self, name: str, objects: Iterable[SourceObject], read: SourceSnapshot | None) -> InputDataset:
        spec, planned, named = self._job.spec.sources[name], tuple(objects), self._sources[name]
        missing = set() if read is None else set(read.missing)
        counted = [obj for obj in planned if obj.key not in missing]
        size = sum(obj.size for obj in counted)
        rows = None if read is None else read.rows
        of_input: Facets = {
            "inputStatistics": facets.input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
                rowCount=rows, size=size, fileCount=len(counted)
            )
        }
        if rows is not None:
            of_input["dataQualityMetrics"] = (
                facets.data_quality_metrics_input_dataset.DataQualityMetricsInputDatasetFacet(
                    columnMetrics={}, rowCount=rows, bytes=size, fileCount=len(counted)
                )
            )
        about: dict[str, Any] = {
            "schema": _schema({column: str(type_) for column, type_ in spec.declared_types.items()}),
            "version": _version(_digest(counted)),
        }
        return InputDataset(named.namespace, named.name, facets=about, inputFacets=of_input)

    def planned_output(self, sink: str) -> OutputDataset:
        """Return a sink's table before the epoch has run: only its columns are known."""
        columns = self._graph.sink_inputs[sink].columns
        about = self._about(sink, {name: None if type_ is None else str(type_) for name, type_ in columns.items()})
        return self._output(sink, about)

    def published(self, sink: str, metadata: CheckpointMetadata, versions: TableVersions) -> OutputDataset:
        """Return a sink's table after an epoch has published to it."""
        contents, snapshot = metadata.tables[sink], metadata.sinks[sink]
        about = self._about(sink, _columns_of(contents))
        about["version"] = _version(versions.of(sink, metadata.checkpoint_id))
        if snapshot.predecessor == _CREATED:
            about["lifecycleStateChange"] = _changed(Change.CREATE)
        written = shares_of(metadata.shares, sink, SINK)
        statistics = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=snapshot.rows,
            size=sum(share.bytes or 0 for share in written),
            fileCount=sum(share.files or 0 for share in written),
        )
        judged = [one for one in metadata.verdict.verdicts if one.sink == sink]
        return self._output(sink, about | _assertions(judged), {"outputStatistics": statistics})

    def refused(self, sink: str, assertions: facets.BaseFacet | None) -> OutputDataset:
        """Return a sink's table that an aborted epoch did not change, with the failed assertions of the gate."""
        dataset = self.planned_output(sink)
        if assertions is not None:
            about: Facets = {**(dataset.facets or {}), "dataQualityAssertions": assertions}
            dataset.facets = about
        return dataset

    def followed(self, sink: str, target: CheckpointMetadata | None, versions: TableVersions) -> OutputDataset:
        """Return a sink's table after it has followed a decision. target: None if the table is now empty."""
        contents = None if target is None else target.tables.get(sink)
        about = self._about(sink, {} if contents is None else _columns_of(contents))
        shown = 0 if contents is None else contents.checkpoint_id
        about["version"] = _version(versions.of(sink, shown))
        about["lifecycleStateChange"] = _changed(Change.OVERWRITE if shown else Change.TRUNCATE)
        return self._output(sink, about)

    def _about(self, sink: str, columns: Mapping[str, str | None]) -> Facets:
        about: Facets = {}
        if columns:
            about["schema"] = _schema(columns)
            about["columnLineage"] = self._column_lineage(sink, columns)
        spec = self._job.spec.sink(sink)
        about["storage"] = facets.storage_dataset.StorageDatasetFacet(
            storageLayer=spec.format, fileFormat=None if SINK_FORMATS[spec.format].is_database else "parquet"
        )
        in_catalog = catalog_table(self._job, sink)
        if in_catalog is not None:
            identifier = facets.symlinks_dataset.Identifier(in_catalog.namespace, in_catalog.name, "TABLE")
            about["symlinks"] = facets.symlinks_dataset.SymlinksDatasetFacet([identifier])
        return about

    def _output(
        self,
        sink: str,
        about: Facets,
        of_output: Facets | None = None,
    ) -> OutputDataset:
        named = sink_name(self._job, sink)
        return OutputDataset(named.namespace, named.name, facets=about, outputFacets=of_output or {})

    def _column_lineage(self, sink: str, columns: Iterable[str]) -> facets.BaseFacet:
        rows = self._lineage[sink]
        fields = {name: _column.Fields(self._fields(rows.of(name))) for name in columns if rows.of(name)}
        return _column.ColumnLineageDatasetFacet(fields=fields, dataset=self._fields(rows.rows))

    def _fields(self, origins: Origins) -> list[_column.InputField]:
        return [
            _column.InputField(
                self._sources[origin.source].namespace,
                self._sources[origin.source].name,
                origin.column,
                [_column.Transformation(way.type, way.subtype, masking=way.masking) for way in sorted(ways)],
            )
            for origin, ways in sorted(origins.items())
        ]


def assertions_of(verdicts: Iterable[Verdict]) -> Facets:
    """Return the assertions facet of the quality gate, by sink. It contains no value of a row."""
    return {verdict.sink: of["dataQualityAssertions"] for verdict in verdicts if (of := _assertions([verdict]))}


def _assertions(verdicts: Iterable[Verdict]) -> Facets:
    results = [result for verdict in verdicts for result in verdict.expectations]
    if not results:
        return {}
    facet = facets.data_quality_assertions_dataset
    assertions = [
        facet.Assertion(
            assertion=result.type,
            success=result.success and result.exception is None,
            column=result.column,
            severity=_severity(result),
        )
        for result in results
    ]
    return {"dataQualityAssertions": facet.DataQualityAssertionsDatasetFacet(assertions)}


def _severity(result: ExpectationResult) -> str | None:
    if result.severity == "critical" or result.exception is not None:
        return "error"
    return None if result.severity is None else "warn"


def _columns_of(contents: TableContents) -> dict[str, str | None]:
    schema: pa.Schema = decode_schema(contents.schema)
    return {field.name: str(field.type) for field in schema}


def _schema(columns: Mapping[str, str | None]) -> facets.BaseFacet:
    facet = facets.schema_dataset
    return facet.SchemaDatasetFacet(
        [
            facet.SchemaDatasetFacetFields(name, type_, ordinal_position=at)
            for at, (name, type_) in enumerate(columns.items(), 1)
        ]
    )


def _version(text: str) -> facets.BaseFacet:
    return facets.dataset_version_dataset.DatasetVersionDatasetFacet(text)


def _changed(change: Change) -> facets.BaseFacet:
    return _change.LifecycleStateChangeDatasetFacet(change)


def _digest(objects: Iterable[SourceObject]) -> str:
    """Return a digest of object versions that does not depend on their order."""
    versions = sorted(f"{obj.key}\n{obj.etag}\n{obj.size}\n" for obj in objects)
    return hashlib.sha256("".join(versions).encode(errors="surrogatepass")).hexdigest()
