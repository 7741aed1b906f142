"""The page of the spec's keys, from the JSON Schema that `milepost schema` prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from milepost.jobspec.load.lint import json_schema
from milepost.language import SOURCE_FORMATS
from milepost.language.fields import DURATION_PATTERN, SIZE_EXAMPLE
from milepost.language.types import SPARK_NAMES, TYPE_GRAMMAR, parse_type
from scripts.processes import ROOT
from scripts.reference.markdown import note, table

EXAMPLE = "config/examples/all_keys.yaml"
INTRODUCTION = """\
A job is one YAML file. Unknown keys are refused with file, line and the nearest known name, as are keys that are
planned but not available yet. `milepost lint JOB` checks a spec. `milepost schema` prints the JSON Schema from which
this page is generated, for use in editors.

* **duration**: a whole number and `ms`, `s`, `m`, `h` or `d`: `30s`, `2h`. Never a bare number.
* **size**: bytes as a whole number, or a number and `B`, `KB`, `MB`, `GB`, `TB` (powers of 1000) or `KiB`, `MiB`,
  `GiB`, `TiB` (of 1024).
* **column type**: {types}. Upper and lower case are equal. Spark's names are accepted, too, and
  `milepost lint` shows the names above: {spark}. `DECIMAL` is `decimal(10,0)`. `VARCHAR(n)`, `CHAR(n)` and `MAP` are
  refused.
* **`${{env:NAME}}`**, **`${{env:NAME:-default}}`**: an environment variable, in the fields that allow it. It is read
  when a connection is made; only the unresolved text is stored, hashed or shown.
"""
CSV_OPTIONS = """\
Options of pyarrow's CSV reader. Without `strings_can_be_null: true`, an empty field of a string column is the empty
string. With it, every text of `null_values` is null. By default these are the
empty string and texts such as `NA`, `NULL` and `nan`; `null_values: [""]` keeps those texts.
A line without characters is no row, also in a file with one column: there write a missing value as `""`."""
HEADINGS = {
    "JobSpec": "The job",
    "StoreSpec": "store",
    "FileSourceSpec": "sources: files",
    "EpochLimits": "sources: files.limits_per_epoch",
    "PythonSourceSpec": "sources: python",
    "PythonLandLimits": "sources: python.land",
    "DltSourceSpec": "sources: dlt",
    "DltLandRules": "sources: dlt.land",
    "NexmarkSourceSpec": "sources: nexmark",
    "LandLimits": "sources: nexmark.land",
    "KafkaSourceSpec": "sources: kafka",
    "MessageValue": "sources: kafka.value",
    "RegistrySpec": "sources: kafka.value.registry",
    "KafkaLandLimits": "sources: kafka.land",
    "DeltaSourceSpec": "sources: delta",
    "IcebergSourceSpec": "sources: iceberg",
    "MilepostSourceSpec": "sources: milepost",
    "TableLandLimits": "sources: tables.land",
    "CopiedLandLimits": "sources: milepost.land",
    "PostgresSourceSpec": "sources: postgres",
    "PostgresLandLimits": "sources: postgres.land",
    "LandedEpochLimits": "sources: landed.limits_per_epoch",
    "EventTimeSpec": "sources.event_time",
    "DbtSpec": "sql: dbt",
    "TablesSpec": "tables",
    "SqlOperator": "operators: sql",
    "AggregateOperator": "operators: aggregate",
    "WindowOperator": "operators: window",
    "Windows": "operators: window.window",
    "SlidingWindows": "operators: window.window.sliding",
    "SessionWindows": "operators: window.window.session",
    "DeduplicateOperator": "operators: deduplicate",
    "JoinOperator": "operators: join",
    "LookupOperator": "operators: lookup",
    "AsofOperator": "operators: asof",
    "TopOperator": "operators: top",
    "LatestOperator": "operators: latest",
    "HistoryOperator": "operators: history",
    "MaterializeOperator": "operators: materialize",
    "OverOperator": "operators: over",
    "ProcessOperator": "operators: process",
    "SinkSpec": "sinks",
    "CatalogSpec": "sinks.catalog",
    "QualitySpec": "quality",
    "Expectation": "quality.expectations",
    "CheckpointingSpec": "checkpointing",
    "Retained": "checkpointing.retained",
    "NoneRestart": "checkpointing.restart: none",
    "FixedDelayRestart": "checkpointing.restart: fixed_delay",
    "ExponentialDelayRestart": "checkpointing.restart: exponential_delay",
    "FailureRateRestart": "checkpointing.restart: failure_rate",
    "SparkSpec": "spark",
    "ScheduleSpec": "schedule",
    "HealthSpec": "health",
    "PricesSpec": "prices",
    "AirflowSpec": "airflow",
    "NotifierSpec": "airflow.on_failure",
}
"""Part of a spec -> its heading, in the order of the page."""


def spec_page() -> str:
    """Return the page. Raises KeyError: a part of the schema has no heading."""
    schema = json_schema()
    parts = {"JobSpec": schema, **schema["$defs"]}
    if unplaced := parts.keys() - HEADINGS.keys():
        raise KeyError(f"add {', '.join(sorted(unplaced))} to HEADINGS in scripts/reference/spec_page.py")
    sections = [_section(heading, parts[name]) for name, heading in HEADINGS.items()]
    introduction = INTRODUCTION.format(types=f"`{TYPE_GRAMMAR}`", spark=_spark_names())
    head = ["# The spec's keys\n", note("the JSON Schema of a spec"), introduction]
    return "\n".join([*head, *sections, _options(), _example()])


def _spark_names() -> str:
    """Return the names of types in Spark that differ, with their names in a spec."""
    return ", ".join(f"`{name.upper()}` (`{_canonical(name)}`)" for name in SPARK_NAMES)


def _canonical(name: str) -> str:
    text = {"array": "list<T>", "dec": "decimal(p,s)", "numeric": "decimal(p,s)"}
    return text.get(name) or str(parse_type(name))


def _section(heading: str, part: dict[str, Any]) -> str:
    required = part.get("required", ())
    rows = [
        (
            f"`{key}`",
            _type(value),
            "required" if key in required else _default(value),
            _sentence(value.get("description") or f"Always `{value['const']}`."),
        )
        for key, value in part["properties"].items()
    ]
    return f"## {heading}\n\n{part['description']}\n\n{table(('key', 'type', 'default', 'meaning'), rows)}\n"


def _options() -> str:
    rows = [(f"`{name}`", what) for name, what in SOURCE_FORMATS["csv"].options.items()]
    return f"## sources.options of csv\n\n{CSV_OPTIONS}\n\n{table(('option', 'value'), rows)}\n"


def _example() -> str:
    text = (ROOT / EXAMPLE).read_text(encoding="utf-8")
    return f"## A spec with every key\n\n`{EXAMPLE}`, which `lint` passes:\n\n```yaml\n{text.strip()}\n```\n"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _default(value: dict[str, Any]) -> str:
    default = value.get("default")
    if isinstance(default, dict) and default:
        return "see below"
    return f"`{json.dumps(default)}`" if "default" in value else ""


def _type(value: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_types(value)))


def _types(value: dict[str, Any]) -> Iterator[str]:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        yield f"[{re.split(r'[.:] ?', HEADINGS[name])[-1]}](#{_anchor(HEADINGS[name])})"
    elif "oneOf" in value or "anyOf" in value:
        kinds = value.get("oneOf") or value["anyOf"]
        is_text = any(kind.get("type") == "string" and kind.get("description") != SIZE_EXAMPLE for kind in kinds)
        if {kind.get("type") for kind in kinds} >= {"integer", "string"} and not is_text:
            yield "size"
            kinds = [kind for kind in kinds if kind.get("type") == "null"]
        for kind in kinds:
            yield from _types(kind)
    elif "enum" in value or "const" in value:
        yield ", ".join(f"`{one}`" for one in value.get("enum", [value.get("const")]))
    elif value.get("pattern") == DURATION_PATTERN:
        yield "duration"
    elif value.get("type") == "array":
        yield f"list of {_type(value['items'])}"
    elif value.get("type") == "object":
        inner = value.get("additionalProperties")
        yield f"mapping to {_type(inner)}" if isinstance(inner, dict) else "mapping"
    else:
        yield _simple(value)


def _simple(value: dict[str, Any]) -> str:
    if value.get("description") == TYPE_GRAMMAR:
        return "column type"
    if str(value.get("description", "")).startswith("count(*)"):
        return f"`{value['description']}`"
    bounds = [f"{word} {value[key]}" for key, word in _BOUNDS.items() if key in value]
    kind = {"integer": "whole number", "string": "text"}.get(value["type"], value["type"])
    return " ".join([kind, *bounds])


_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}


def _anchor(heading: str) -> str:
    """Return the anchor that the site gives a heading."""
    text = "".join(character for character in heading.lower() if character.isalnum() or character in " _-")
    return "-".join(text.split())
