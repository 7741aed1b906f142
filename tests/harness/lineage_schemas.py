"""What OpenLineage 2-0-2 asks of an event, in JSON Schema of our own, and stricter: nothing unknown is let through.

The specification's own files are in no package; its facts are here: which fields an object has, of what type, and which
it must have, per version of each facet.
"""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from tests.harness.servers.processes import REPOSITORY

BASE = "https://openlineage.io/spec/"
OWN = "pipeline/milepost/lineage/checkpoint_facet.schema.json"

TEXT: dict[str, Any] = {"type": "string"}
COUNT: dict[str, Any] = {"type": "integer"}
TRUE: dict[str, Any] = {"type": "boolean"}
URI: dict[str, Any] = {"type": "string", "format": "uri"}
TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
UUID: dict[str, Any] = {"type": "string", "format": "uuid"}


def many(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def record(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def facet(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return record({"_producer": URI, "_schemaURL": URI, **required}, {"_deleted": TRUE, **(optional or {})})


NAMED = {"namespace": TEXT, "name": TEXT}
TRANSFORMATION = record(
    {"type": {"enum": ["DIRECT", "INDIRECT"]}}, {"subtype": TEXT, "description": TEXT, "masking": TRUE}
)
INPUT_FIELD = record({**NAMED, "field": TEXT}, {"transformations": many(TRANSFORMATION)})
SCHEMA_FIELD = record(
    {"name": TEXT}, {"type": TEXT, "description": TEXT, "ordinal_position": COUNT, "fields": {"type": "array"}}
)
ASSERTION = record(
    {"assertion": TEXT, "success": TRUE},
    dict.fromkeys(("column", "severity", "name", "description", "expected", "actual", "content", "contentType"), TEXT)
    | {"params": {"type": "object"}},
)
TAG = record({"key": TEXT, "value": TEXT}, {"source": TEXT})
CHANGES = ["ALTER", "CREATE", "DROP", "OVERWRITE", "RENAME", "TRUNCATE"]
EMISSION = record(
    {
        "eventTrigger": {"enum": ["EVENT_BASED", "PERIODIC"]},
        "eventContentMode": {"enum": ["ACCUMULATIVE", "COMPLETE_SNAPSHOT"]},
    },
    {"windowDuration": COUNT},
)
STATISTICS = {"rowCount": COUNT, "size": COUNT, "fileCount": COUNT}

FACETS: dict[tuple[str, str, str], dict[str, Any]] = {
    ("job", "jobType", "facets/2-0-4/JobTypeJobFacet"): facet(
        {"processingType": {"enum": ["BATCH", "STREAMING", "SERVICE"]}, "integration": TEXT},
        {"jobType": TEXT, "emissionPattern": EMISSION},
    ),
    ("job", "ownership", "facets/1-0-1/OwnershipJobFacet"): facet(
        {}, {"owners": many(record({"name": TEXT}, {"type": TEXT}))}
    ),
    ("job", "documentation", "facets/1-1-0/DocumentationJobFacet"): facet({"description": TEXT}, {"contentType": TEXT}),
    ("job", "sql", "facets/1-1-0/SQLJobFacet"): facet({"query": TEXT}, {"dialect": TEXT}),
    ("job", "sourceCode", "facets/1-0-1/SourceCodeJobFacet"): facet({"language": TEXT, "sourceCode": TEXT}),
    ("run", "nominalTime", "facets/1-0-1/NominalTimeRunFacet"): facet(
        {"nominalStartTime": TIME}, {"nominalEndTime": TIME}
    ),
    ("run", "processing_engine", "facets/1-1-1/ProcessingEngineRunFacet"): facet(
        {"version": TEXT}, {"name": TEXT, "openlineageAdapterVersion": TEXT}
    ),
    ("run", "errorMessage", "facets/1-0-1/ErrorMessageRunFacet"): facet(
        {"message": TEXT, "programmingLanguage": TEXT}, {"stackTrace": TEXT}
    ),
    ("run", "parent", "facets/1-2-0/ParentRunFacet"): facet(
        {
            "run": record({"runId": UUID}, {"facets": {"type": "object"}}),
            "job": record(NAMED, {"facets": {"type": "object"}}),
        },
        {"root": {"type": "object"}},
    ),
    ("run", "tags", "facets/1-0-0/TagsRunFacet"): facet({}, {"tags": many(TAG)}),
    ("dataset", "schema", "facets/1-2-0/SchemaDatasetFacet"): facet({}, {"fields": many(SCHEMA_FIELD)}),
    ("dataset", "version", "facets/1-0-1/DatasetVersionDatasetFacet"): facet({"datasetVersion": TEXT}),
    ("dataset", "columnLineage", "facets/1-2-0/ColumnLineageDatasetFacet"): facet(
        {
            "fields": mapping(
                record(
                    {"inputFields": many(INPUT_FIELD)}, {"transformationDescription": TEXT, "transformationType": TEXT}
                )
            )
        },
        {"dataset": many(INPUT_FIELD)},
    ),
    ("dataset", "lifecycleStateChange", "facets/1-0-1/LifecycleStateChangeDatasetFacet"): facet(
        {"lifecycleStateChange": {"enum": CHANGES}}, {"previousIdentifier": record(NAMED)}
    ),
    ("dataset", "storage", "facets/1-0-1/StorageDatasetFacet"): facet({"storageLayer": TEXT}, {"fileFormat": TEXT}),
    ("dataset", "symlinks", "facets/1-0-1/SymlinksDatasetFacet"): facet(
        {}, {"identifiers": many(record({**NAMED, "type": TEXT}))}
    ),
    ("dataset", "dataQualityAssertions", "facets/1-1-0/DataQualityAssertionsDatasetFacet"): facet(
        {"assertions": many(ASSERTION)}
    ),
    ("input", "inputStatistics", "facets/1-0-0/InputStatisticsInputDatasetFacet"): facet({}, STATISTICS),
    ("input", "dataQualityMetrics", "facets/1-0-3/DataQualityMetricsInputDatasetFacet"): facet(
        {"columnMetrics": mapping({"type": "object"})},
        {"rowCount": COUNT, "bytes": COUNT, "fileCount": COUNT, "lastUpdated": TIME},
    ),
    ("output", "outputStatistics", "facets/1-0-2/OutputStatisticsOutputDatasetFacet"): facet({}, STATISTICS),
}
"""Where a facet may stand, its name there, and the schema that it says it keeps -> what that asks for."""

FACET_MAP = {"type": "object"}
EVENT = record(
    {
        "eventTime": TIME,
        "producer": URI,
        "schemaURL": {"const": f"{BASE}2-0-2/OpenLineage.json#/$defs/RunEvent"},
        "run": record({"runId": UUID}, {"facets": FACET_MAP}),
        "job": record(NAMED, {"facets": FACET_MAP}),
    },
    {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "inputs": many(record(NAMED, {"facets": FACET_MAP, "inputFacets": FACET_MAP})),
        "outputs": many(record(NAMED, {"facets": FACET_MAP, "outputFacets": FACET_MAP})),
    },
)


def assert_valid(event: dict[str, Any]) -> None:
    """Raise AssertionError, or jsonschema's own, for an event that OpenLineage would not have."""
    _check(EVENT, event)
    _facets("run", event["run"].get("facets", {}))
    _facets("job", event["job"].get("facets", {}))
    for side in ("input", "output"):
        for dataset in event.get(f"{side}s", []):
            _facets("dataset", dataset.get("facets", {}))
            _facets(side, dataset.get(f"{side}Facets", {}))


def _facets(place: str, facets: dict[str, Any]) -> None:
    for name, value in facets.items():
        if name == "milepost_checkpoint":
            _own(value)
            continue
        url = value["_schemaURL"].removeprefix(BASE).partition(".json#/$defs/")[0]
        schema = FACETS.get((place, name, url))
        assert schema is not None, (place, name, value["_schemaURL"])
        _check(schema, value)


def _own(value: dict[str, Any]) -> None:
    document = json.loads((REPOSITORY / OWN).read_text(encoding="utf-8"))
    run_facet = {"$defs": {"RunFacet": {"type": "object", "required": ["_producer", "_schemaURL"]}}}
    known = Registry().with_resources(
        [
            (document["$id"], Resource.from_contents(document)),
            (f"{BASE}2-0-2/OpenLineage.json", Resource.from_contents({**run_facet, "$schema": document["$schema"]})),
        ]
    )
    assert value["_schemaURL"].startswith(document["$id"])
    Draft202012Validator({"$ref": value["_schemaURL"]}, registry=known).validate(value)


def _check(schema: dict[str, Any], value: Any) -> None:
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(value)
