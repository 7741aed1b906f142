"""Output, checks and signatures of as-of joins."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from milepost.errors import InvalidRequest
from milepost.jobspec.graph.compatibility import NEW_UID, compare_signatures, state_signatures
from milepost.jobspec.job.spec import JobSpec
from milepost_testkit.specs.graphs import build_graph

READINGS = {"sensor": "int32", "at": "timestamp[us, UTC]", "value": "float64", "tags": "list<string>"}
DEVICES = {"id": "int64", "at": "timestamp[ms, UTC]", "room": "string"}
ASOF = {"uid": "placed", "kind": "asof", "inputs": ["readings", "devices"], "key": [{"sensor": "id"}],
        "columns": {"since": "right.at"}}  # fmt: skip


def spec(changed: dict[str, Any], sinks: tuple[str, ...] = (), **sources: dict[str, Any]) -> JobSpec:
    sources = {
        name: {"format": "json", "path": f"{name}/*", "schema": schema, "event_time": "at"} | sources.get(name, {})
        for name, schema in (("readings", READINGS), ("devices", DEVICES))
    }
    totals = {
        "uid": "totals",
        "kind": "aggregate",
        "inputs": ["devices"],
        "key": ["id"],
        "aggregates": {"n": "count(*)"},
    }
    published = [
        {"name": f"s{at}", "input": name, "format": "parquet", "path": f"out/{at}", "mode": "append"}
        for at, name in enumerate(sinks)
    ]
    value = {"name": "job", "storage": "lake", "sources": sources, "sinks": published}
    return JobSpec.model_validate({**value, "operators": [totals, ASOF | changed]})


def test_the_output_has_the_left_columns_then_those_of_the_version_without_its_key() -> None:
    graph = build_graph(spec({}, ("placed", "placed.late.readings", "placed.late.devices")))
    node = graph.nodes["placed"]
    assert list(node.columns) == ["sensor", "at", "value", "tags", "since", "room"]
    assert (node.event_time, node.output_kind, node.key, node.holdback_us) == ("at", "append", (), 0)
    assert list(graph.sink_inputs["s1"].columns) == list(READINGS) and graph.sink_inputs["s2"].part == ".late.devices"


@pytest.mark.parametrize(
    ("changed", "sources", "message"),
    [
        ({"columns": {}}, {}, "at would be both readings.at and devices.at; rename the right column"),
        ({"key": [{"sensor": "room"}]}, {}, "their values cannot be compared; CAST one of them"),
        ({"key": [{"tags": "id"}]}, {}, "tags is list<string>; a key cannot contain lists or structs"),
        ({"columns": {"since": "right.at", "n": "right.nothing"}}, {}, "devices has no column nothing outside the key"),
        ({"inputs": ["readings", "totals"]}, {}, "asof over updates (the rows of totals)"),
        ({}, {"devices": {"event_time": None}}, "the right input of an as-of join needs an event time"),
    ],
)
def test_what_cannot_be_joined_is_refused(changed: dict[str, Any], sources: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        build_graph(spec(changed, **sources))
    assert message in caught.value.message


@pytest.mark.parametrize("changed", [{"how": "right"}, {"inputs": ["readings"]}, {"within": ["0s", "1s"]}, {"key": []}])
def test_an_as_of_join_with_invalid_options_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        spec(changed)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({"how": "left"}, "compatible"),
        ({"columns": {"from": "right.at"}}, "compatible"),
        ({"inputs": ["devices", "readings"], "key": [{"id": "sensor"}]}, NEW_UID),
    ],
)
def test_state_of_an_as_of_join_depends_on_its_key_and_its_inputs(changed: dict[str, Any], verdict: str) -> None:
    rows = compare_signatures(
        *(state_signatures(job_spec, build_graph(job_spec)) for job_spec in (spec({}), spec(changed)))
    )
    assert next(row["verdict"] for row in rows if row["name"] == "placed") == verdict
