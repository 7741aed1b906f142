"""The `lint` report of a valid spec, and the JSON Schema of specs."""

from __future__ import annotations

from typing import Any

from milepost.jobspec.column_lineage.sink_columns import lineage_document
from milepost.jobspec.graph.checks import bad_outputs
from milepost.jobspec.graph.graph import JobGraph
from milepost.jobspec.job.sources.python_source import PythonSourceSpec
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.document import read_document
from milepost.jobspec.load.explain import explained_edges, explained_node, explained_row_rules
from milepost.jobspec.load.explain_sql import explained_statements
from milepost.jobspec.load.load import LoadedJob
from milepost.language import parse_type
from milepost.operators.base import BAD

WATCHED_QUEUES, LIMITED_READERS = ("Airflow", "3.3"), ("PySpark", "4.2")
"""What some keys need, and its first version that has it. Older supported versions refuse these keys."""


def lint_report(job: LoadedJob, graph: JobGraph | None = None) -> dict[str, Any]:
    """Return a JSON-compatible description of a job's graph.

    Args:
        graph: that of the job, if the caller has it.
    Raises:
        InvalidRequest: the problems that only the graph shows: SQL, columns, types, output modes.
    """
    graph = job.graph() if graph is None else graph
    return {
        "job": job.spec.name,
        "spec_hash": job.spec_hash,
        "levels": graph.levels,
        "nodes": [
            {
                "uid": node.uid,
                "kind": node.kind,
                "level": node.level,
                "inputs": list(node.inputs),
                "output": node.output_kind,
                "key": list(node.key),
                "event_time": node.event_time,
                "columns": {name: None if type_ is None else str(type_) for name, type_ in node.columns.items()},
                **explained_node(job.spec, graph, node),
            }
            for node in graph.nodes.values()
        ],
        "statements": explained_statements(job, graph),
        "edges": explained_edges(job.spec, graph),
        "sinks": [
            {"name": sink.name, "input": sink.input, "format": sink.format, "mode": sink.mode, "path": sink.location}
            for sink in job.spec.sinks
        ],
        "row_rules": explained_row_rules(job.spec),
        "lineage": lineage_document(job.spec, graph),
        "other_type_names": _other_type_names(job),
        "needed_versions": _needed_versions(job.spec),
        "columns_unknown": [node.uid for node in graph.nodes.values() if not node.columns_known],
        "unread": _unread(job.spec, graph),
    }


def _other_type_names(job: LoadedJob) -> dict[str, dict[str, list[str]]]:
    """Return source -> column -> its type as the spec writes it and its canonical name, where both differ."""
    sources = read_document(job.spec_text).value["sources"]
    written = {name: source.get("schema") or {} for name, source in sources.items()}
    both = {
        name: {column: [text, str(parse_type(text))] for column, text in columns.items()}
        for name, columns in written.items()
    }
    differ = {
        name: {column: pair for column, pair in columns.items() if not _is_same(*pair)}
        for name, columns in both.items()
    }
    return {name: columns for name, columns in differ.items() if columns}


def _needed_versions(spec: JobSpec) -> dict[str, str]:
    """Return key -> the version that it needs, if an older supported version refuses it: "Airflow 3.3"."""
    needed = {} if spec.schedule is None or spec.schedule.sqs is None else {"schedule.sqs": WATCHED_QUEUES}
    for name, source in spec.sources.items():
        if isinstance(source, PythonSourceSpec):
            limits = {"max_rows": source.land.max_rows, "max_bytes": source.land.max_bytes}
            needed |= {f"sources.{name}.land.{key}": LIMITED_READERS for key, limit in limits.items() if limit}
    return {key: " ".join(version) for key, version in needed.items()}


def _is_same(written: str, canonical: str) -> bool:
    return written.replace(" ", "") == canonical.replace(" ", "")


def _unread(spec: JobSpec, graph: JobGraph) -> list[str]:
    """Return the names of nodes and bad records without a reader."""
    nodes = [node.uid for node in graph.nodes.values() if not (node.consumers or node.sinks or node.late_sinks)]
    return nodes + [name for name in bad_outputs(spec) if not graph.nodes[name.removesuffix(BAD)].bad_sinks]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a spec, with what this version supports."""
    schema = JobSpec.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
