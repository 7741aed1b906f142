"""Describe the modes, event times, state bounds and late rows of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from milepost.jobspec.graph.checks import late_outputs, late_outputs_of
from milepost.jobspec.graph.event_time import EVENT_TIME_RULES
from milepost.jobspec.graph.graph import JobGraph, Node
from milepost.jobspec.job.spec import JobSpec
from milepost.language.sql import branches
from milepost.language.times import format_duration
from milepost.operators.base import APPEND, REJECTED, RETRACTIONS, UPDATES, InputMode, StateBound, StatefulSpec
from milepost.operators.materialize import MaterializeOperator
from milepost.operators.sql import SelectSpec
from milepost.operators.top import TopOperator


def explained_node(spec: JobSpec, graph: JobGraph, node: Node) -> dict[str, Any]:
    """Return a JSON-compatible description of a node, without its columns.

    Returns:
        ``mode``: append, upsert(key), retract or static. ``event_time_shift_us``: offset of its event time.
        ``holds_back``: how much older than its watermark its rows may be, a duration, or null. ``sources``: the sources
        that determine its watermark. ``state``: per table
        ``{"table", "name", "holds", "until", "grows_with", "bound"}``. ``late``: per output of late rows
        ``{"output", "rule", "sinks"}``. ``whole_because``: the setting that forces one reader per object of a source;
        null: large uncompressed objects have several.
    """
    return {
        "mode": mode_of(node),
        "event_time_shift_us": node.shift_us,
        "holds_back": _holds_back(spec, node),
        "sources": list(node.sources),
        "whole_because": spec.sources[node.uid].indivisible_reason if node.kind == "source" else None,
        "state": [
            {
                "table": bound.table,
                "name": f"{node.uid}.{bound.table}" if bound.table else node.uid,
                "holds": bound.holds,
                "until": bound.until,
                "grows_with": bound.grows_with,
                "bound": bound.text,
            }
            for bound in _state_bounds(spec, graph, node)
        ],
        "late": [
            {"output": output, "rule": _late_rule(node.kind), "sinks": _readers(graph, output)}
            for output in (() if node.uid in spec.sources else late_outputs_of(spec.operator(node.uid)))
        ],
    }


def _state_bounds(spec: JobSpec, graph: JobGraph, node: Node) -> Iterator[StateBound]:
    operator = None if node.uid in spec.sources else spec.operator(node.uid)
    if not isinstance(operator, StatefulSpec):
        return
    inputs = [graph.nodes[name] for name in node.inputs]
    if isinstance(operator, TopOperator):
        operator = operator.model_copy(update={"key": _varying_key(spec, graph, operator)})
    bounds = operator.bounds_by_input(
        [
            InputMode(one.uid, not one.retracts, one.key if one.output_kind == UPDATES else None, one.event_time)
            for one in inputs
        ]
    )
    is_limited = all(_is_limited(spec, graph, one) for one in inputs)
    yield from (replace(bound, grows_with=None) if is_limited else bound for bound in bounds)
    if node.retracts and (emitted := operator.output_bound(node.key)) is not None:
        yield emitted


def _is_limited(spec: JobSpec, graph: JobGraph, node: Node) -> bool:
    """Return whether the number of a node's current rows has a limit, such as that of the first 5 rows of all."""
    operator = None if node.uid in spec.sources else spec.operator(node.uid)
    if isinstance(operator, TopOperator) and not operator.ties and not _varying_key(spec, graph, operator):
        return True
    derives = isinstance(operator, TopOperator | SelectSpec | MaterializeOperator)
    return derives and all(_is_limited(spec, graph, graph.nodes[name]) for name in node.inputs)


def _varying_key(spec: JobSpec, graph: JobGraph, operator: TopOperator) -> list[str]:
    """Return its key columns without those that the SQL upstream sets to a constant, as in `1 AS all_rows`."""
    (name,) = operator.inputs
    upstream = None if name in spec.sources else spec.operator(name)
    key = list(operator.key)
    if not isinstance(upstream, SelectSpec) or not graph.nodes[name].columns_known:
        return key
    selects = branches(upstream.query, upstream.inputs)
    if len(selects) > 1:
        return key
    plan = selects[0].plan([*graph.nodes[selects[0].input].columns])
    constant = {column for column, expression in plan.columns if expression.isdecimal()}
    return [column for column in key if column not in constant]


def explained_edges(spec: JobSpec, graph: JobGraph) -> list[dict[str, Any]]:
    """Return the edges of a graph, in the order of its nodes: to operators, then to sinks.

    Returns:
        ``{"from", "part", "to", "sink", "mode", "key", "event_time", "exchanged"}``. part: "" for rows, ``.late…``,
        ``.bad`` or ``.rejected`` for late rows, bad records or quarantined rows. sink: whether `to` is a sink.
        exchanged: whether rows are exchanged between tasks by the key of `to`.
    """
    return [*_edges(spec, graph)]


def explained_row_rules(spec: JobSpec) -> list[dict[str, Any]]:
    """Return what happens to the rows that row rules refuse, in the order of the suites.

    Returns:
        ``{"sink", "rule", "on_fail", "mostly", "sinks"}``. mostly: the share of rows below which the epoch is judged as
        by `severity`, or null. sinks: those that publish a refused row; [] for a dropped one.
    """
    return [
        {
            "sink": suite.sink,
            "rule": f"{rule.type}({rule.arguments['column']})",
            "on_fail": rule.on_fail,
            "mostly": rule.arguments.get("mostly"),
            "sinks": [
                sink.name for sink in spec.sinks if rule.on_fail == "quarantine" and sink.input == suite.sink + REJECTED
            ],
        }
        for suite in spec.quality
        for rule in suite.row_rules.values()
    ]


def mode_of(node: Node) -> str:
    """Return the mode of a node's rows: append, retract, static, upsert(key) or upsert(key) with deletes."""
    if node.kind == "static":
        return node.kind
    if node.output_kind != UPDATES:
        return node.output_kind
    return f"upsert({', '.join(node.key) or 'one row'}){' with deletes' if node.deletes else ''}"


def _edges(spec: JobSpec, graph: JobGraph) -> Iterator[dict[str, Any]]:
    late = late_outputs(spec)
    for node in graph.nodes.values():
        rows = {"mode": mode_of(node), "key": list(node.key), "event_time": node.event_time}
        for consumer in dict.fromkeys(node.consumers):
            reader = graph.nodes[consumer]
            exchanged = reader.is_stateful
            read = rows | {"mode": RETRACTIONS} if node.retracts and (exchanged or reader.retracts) else rows
            if node.retracts and reader.retracts and reader.shown and not exchanged:
                read = rows | {"mode": f"{rows['mode']} and {RETRACTIONS}"}
            yield {"from": node.uid, "part": "", "to": consumer, "sink": False, **read, "exchanged": exchanged}
        for sink in graph.sink_inputs.values():
            if sink.uid == node.uid:
                output = _side_output(graph, node, late.get(sink.output)) if sink.part else rows
                ends = {"from": node.uid, "part": sink.part, "to": sink.sink, "sink": True}
                yield {**ends, **output, "exchanged": False}


def _side_output(graph: JobGraph, node: Node, late: tuple[str, int] | None) -> dict[str, Any]:
    """Return mode, key and event time of late rows or bad records. Late rows keep the event time of the input."""
    event_time = None if late is None else graph.nodes[node.inputs[late[1]]].event_time
    return {"mode": APPEND, "key": [], "event_time": event_time}


def _late_rule(kind: str) -> str:
    """Return the rule by which rows of a kind are late, without the name of their output."""
    return EVENT_TIME_RULES[kind].late.partition(": `<uid>")[0]


def _readers(graph: JobGraph, output: str) -> list[str]:
    return [sink.sink for sink in graph.sink_inputs.values() if sink.output == output]


def _holds_back(spec: JobSpec, node: Node) -> str | None:
    if node.kind == "source":
        source = spec.sources[node.uid]
        return format_duration(source.watermark_delay) if source.event_time is not None else None
    return format_duration(timedelta(microseconds=node.holdback_us)) if node.event_time is not None else None
