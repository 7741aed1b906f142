"""What OpenLineage 2-0-2 asks of an event, in JSON Schema of our own, and stricter: nothing unknown is let through.

The specification's own files are in no package; its facts are here: which fields an object has, of what type, and which
it must have, per version of each facet.

Compared on 2026-11-25 with the specification's own JSON schemas of the core (its text of 2-0-0, with `_deleted`, which
came since) and of the facets, in the versions that are named here or the nearest one that is stored, and, for the exact
versions, with the classes that OpenLineage's client 1.54.0 has generated from them. Events of real runs (epochs, a
veto, a failure, rollbacks) are valid by both; of 9,500 changed ones none that the specification refuses passes here.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from milepost_testkit.processes.processes import REPOSITORY

BASE = "https://openlineage.io/spec/"
OWN = "pipeline/milepost/openlineage/checkpoint_facet.schema.json"

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


BASE_FACET: dict[str, Any] = {"_producer": URI, "_schemaURL": URI}
FORWARDED = mapping({"type": "object", "properties": BASE_FACET, "required": [*BASE_FACET]})
"""Facets of another run or job, forwarded for convenience: whichever they are, they say so."""


def facet(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return record({**BASE_FACET, **required}, optional)


def static_facet(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """Of a job or a dataset, whose facets stay until they are deleted."""
    return facet(required, {"_deleted": TRUE, **(optional or {})})


NAMED = {"namespace": TEXT, "name": TEXT}
TRANSFORMATION = record(
    {"type": {"enum": ["DIRECT", "INDIRECT"]}}, {"subtype": TEXT, "description": TEXT, "masking": TRUE}
)
INPUT_FIELD = record({**NAMED, "field": TEXT}, {"transformations": many(TRANSFORMATION)})
PLAIN_FIELD: dict[str, Any] = {"type": TEXT, "description": TEXT, "ordinal_position": COUNT}
SCHEMA_FIELD = record({"name": TEXT}, {**PLAIN_FIELD, "fields": many({"$ref": "#/$defs/field"})})
PARENT = {
    "run": record({"runId": UUID}, {"facets": FORWARDED}),
    "job": record(NAMED, {"facets": FORWARDED}),
}
NUMBER: dict[str, Any] = {"type": "number"}
COLUMN_METRICS = record(
    {},
    {"nullCount": COUNT, "distinctCount": COUNT, "quantiles": mapping(NUMBER)}
    | dict.fromkeys(("sum", "count", "min", "max"), NUMBER),
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
    {"windowDuration": {"type": "integer", "minimum": 1}},
)
STATISTICS = {"rowCount": COUNT, "size": COUNT, "fileCount": COUNT}

FACETS: dict[tuple[str, str, str], dict[str, Any]] = {
    ("job", "jobType", "facets/2-0-4/JobTypeJobFacet"): static_facet(
        {"processingType": {"enum": ["BATCH", "STREAMING", "SERVICE"]}, "integration": TEXT},
        {"jobType": TEXT, "emissionPattern": EMISSION},
    ),
    ("job", "ownership", "facets/1-0-1/OwnershipJobFacet"): static_facet(
        {}, {"owners": many(record({"name": TEXT}, {"type": TEXT}))}
    ),
    ("job", "documentation", "facets/1-1-0/DocumentationJobFacet"): static_facet(
        {"description": TEXT}, {"contentType": TEXT}
    ),
    ("job", "sql", "facets/1-1-0/SQLJobFacet"): static_facet({"query": TEXT}, {"dialect": TEXT}),
    ("job", "sourceCode", "facets/1-0-1/SourceCodeJobFacet"): static_facet({"language": TEXT, "sourceCode": TEXT}),
    ("run", "nominalTime", "facets/1-0-1/NominalTimeRunFacet"): facet(
        {"nominalStartTime": TIME}, {"nominalEndTime": TIME}
    ),
    ("run", "processing_engine", "facets/1-1-1/ProcessingEngineRunFacet"): facet(
        {"version": TEXT}, {"name": TEXT, "openlineageAdapterVersion": TEXT}
    ),
    ("run", "errorMessage", "facets/1-0-1/ErrorMessageRunFacet"): facet(
        {"message": TEXT, "programmingLanguage": TEXT}, {"stackTrace": TEXT}
    ),
    ("run", "parent", "facets/1-2-0/ParentRunFacet"): facet(PARENT, {"root": record(PARENT)}),
    ("run", "tags", "facets/1-0-0/TagsRunFacet"): facet({}, {"tags": many(TAG)}),
    ("dataset", "schema", "facets/1-2-0/SchemaDatasetFacet"): {
        **static_facet({}, {"fields": many({"$ref": "#/$defs/field"})}),
        "$defs": {"field": SCHEMA_FIELD},
    },
    ("dataset", "version", "facets/1-0-1/DatasetVersionDatasetFacet"): static_facet({"datasetVersion": TEXT}),
    ("dataset", "columnLineage", "facets/1-2-0/ColumnLineageDatasetFacet"): static_facet(
        {
            "fields": mapping(
                record(
                    {"inputFields": many(INPUT_FIELD)}, {"transformationDescription": TEXT, "transformationType": TEXT}
                )
            )
        },
        {"dataset": many(INPUT_FIELD)},
    ),
    ("dataset", "lifecycleStateChange", "facets/1-0-1/LifecycleStateChangeDatasetFacet"): static_facet(
        {"lifecycleStateChange": {"enum": CHANGES}}, {"previousIdentifier": record(NAMED)}
    ),
    ("dataset", "storage", "facets/1-0-1/StorageDatasetFacet"): static_facet(
        {"storageLayer": TEXT}, {"fileFormat": TEXT}
    ),
    ("dataset", "symlinks", "facets/1-0-1/SymlinksDatasetFacet"): static_facet(
        {}, {"identifiers": many(record({**NAMED, "type": TEXT}))}
    ),
    ("dataset", "dataQualityAssertions", "facets/1-1-0/DataQualityAssertionsDatasetFacet"): static_facet(
        {"assertions": many(ASSERTION)}
    ),
    ("input", "inputStatistics", "facets/1-0-0/InputStatisticsInputDatasetFacet"): facet({}, STATISTICS),
    ("input", "dataQualityMetrics", "facets/1-0-3/DataQualityMetricsInputDatasetFacet"): facet(
        {"columnMetrics": mapping(COLUMN_METRICS)},
        {"rowCount": COUNT, "bytes": COUNT, "fileCount": COUNT, "lastUpdated": TIME},
    ),
    ("output", "outputStatistics", "facets/1-0-2/OutputStatisticsOutputDatasetFacet"): facet({}, STATISTICS),
}
"""Where a facet may stand, its name there, and the schema that it says it keeps -> what that asks for."""

FORMATS = FormatChecker(("uuid",))
"""jsonschema itself lets every text pass as a time or a URI, unless libraries are there that it does not demand."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*")
_ZONED = re.compile(r".{10}T.+(Z|[+-]\d\d:\d\d)")


@FORMATS.checks("uri")
def is_uri(value: object) -> bool:
    return not isinstance(value, str) or _URI.fullmatch(value) is not None


@FORMATS.checks("date-time", ValueError)
def is_time(value: object) -> bool:
    """RFC 3339: a date, a time and a zone."""
    if not isinstance(value, str):
        return True
    datetime.fromisoformat(value)
    return _ZONED.fullmatch(value) is not None


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
        url, _, definition = value["_schemaURL"].removeprefix(BASE).partition(".json#/$defs/")
        schema = FACETS.get((place, name, url))
        assert schema is not None and definition == url.rpartition("/")[2], (place, name, value["_schemaURL"])
        _check(schema, value)


def _own(value: dict[str, Any]) -> None:
    document = json.loads((REPOSITORY / OWN).read_text(encoding="utf-8"))
    base = {"type": "object", "properties": BASE_FACET, "required": [*BASE_FACET]}
    run_facet = {"$defs": {"RunFacet": base}}
    known = Registry().with_resources(
        [
            (document["$id"], Resource.from_contents(document)),
            (f"{BASE}2-0-2/OpenLineage.json", Resource.from_contents({**run_facet, "$schema": document["$schema"]})),
        ]
    )
    assert value["_schemaURL"].startswith(document["$id"])
    closed = {"$ref": value["_schemaURL"], "unevaluatedProperties": False}
    Draft202012Validator(closed, registry=known, format_checker=FORMATS).validate(value)


def _check(schema: dict[str, Any], value: Any) -> None:
    Draft202012Validator(schema, format_checker=FORMATS).validate(value)
