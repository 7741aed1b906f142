"""Whether a job's recorded state can be continued by a changed spec.

A signature says what an operator's state, or a sink's chain, depends on; it is kept with each checkpoint and compared
before anything is planned. What is not in it (sql, limits, schedule) may change freely; a ttl or an allowed lateness
may only shrink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pipeline.config.durations import format_duration, parse_duration
from pipeline.config.graph import JobGraph, Node
from pipeline.config.spec import AggregateOperator, DeduplicateOperator, JobSpec, WindowOperator

COMPATIBLE = "compatible"
NON_RESTORED = "needs --allow-non-restored-state"
NEW_UID = "needs a new uid or a backfill"

_REMEMBERS = "remembers"
"""How much longer than its watermark an operator keeps keys: allowed lateness, or ttl."""
_FOR_EVER = "for ever"
_SECTIONS = ("operators", "sources", "sinks", "job")


def state_signatures(spec: JobSpec, graph: JobGraph) -> dict[str, dict[str, Any]]:
    """Return what restoring depends on, JSON-compatible.

    Returns:
        ``{"operators": {uid: …}, "sources": {name: …}, "sinks": {name: …}, "job": {"job": …}}``.
    """
    return {
        "operators": {node.uid: _operator(spec, graph, node) for node in graph.stateful},
        "sources": {name: {"root": _root(source.path)} for name, source in spec.sources.items()},
        "sinks": {
            sink.name: {
                "format": sink.format,
                "path": sink.path,
                "mode": sink.mode,
                "key": list(graph.sink_inputs[sink.name].key),
            }
            for sink in spec.sinks
        },
        "job": {"job": {"max_parallelism": spec.checkpointing.max_parallelism}},
    }


def _operator(spec: JobSpec, graph: JobGraph, node: Node) -> dict[str, Any]:
    operator = spec.operator(node.uid)
    rows = graph.nodes[node.inputs[0]].columns
    signature: dict[str, Any] = {
        "kind": node.kind,
        "key": [[column, _type(rows.get(column))] for column in getattr(operator, "key", ())],
    }
    if isinstance(operator, WindowOperator | DeduplicateOperator):
        # What is late, and what has fired, was judged by these sources' watermarks.
        signature["sources"] = sorted(node.sources)
    if isinstance(operator, AggregateOperator | WindowOperator):
        signature["aggregates"] = {
            output: [str(call), _type(rows.get(call.column)) if call.column else None]
            for output, call in sorted(operator.aggregates.items())
        }
    if isinstance(operator, WindowOperator):
        signature["window"] = operator.window.model_dump(mode="json")
        signature[_REMEMBERS] = format_duration(operator.allowed_lateness)
    if isinstance(operator, DeduplicateOperator):
        signature[_REMEMBERS] = _FOR_EVER if operator.ttl is None else format_duration(operator.ttl)
    return signature


def _root(path: str) -> str:
    """Return what a source's object keys are relative to: its bucket, or its folder up to the first pattern."""
    scheme, _, rest = path.partition("://")
    if scheme == "s3":
        return f"{scheme}://{rest.split('/')[0]}"
    fixed = re.split(r"[*?\[]", path, maxsplit=1)[0]
    return fixed[: fixed.rfind("/") + 1]


def _type(type_: object) -> str | None:
    """Return a column's type, or None where only Spark knows it (the state's own schema is checked at restore)."""
    return None if type_ is None else str(type_)


def compare_signatures(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one verdict per operator, source and sink, in the order of the new spec, then what is gone.

    Returns:
        ``{"uid", "verdict", "detail"}``; verdict is COMPATIBLE, NON_RESTORED or NEW_UID; detail says what changed.
    """
    verdicts = []
    for section in _SECTIONS:
        before, after = old.get(section, {}), new.get(section, {})
        for name, signature in after.items():
            verdict, detail = _judge(section, before.get(name), signature)
            verdicts.append({"uid": _label(section, name), "verdict": verdict, "detail": detail})
        for name in before:
            if name not in after:
                verdict = NON_RESTORED if section in ("operators", "sources") else COMPATIBLE
                detail = f"{section.removesuffix('s')} is gone from the spec"
                verdicts.append({"uid": _label(section, name), "verdict": verdict, "detail": detail})
    return verdicts


def _label(section: str, name: str) -> str:
    """Return an operator's uid as it is, and what else has a name with its kind before it."""
    return name if section in ("operators", "job") else f"{section.removesuffix('s')} {name}"


def _judge(section: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, str]:
    if before is None:
        return COMPATIBLE, "new: begins empty"
    changed = [
        key
        for key in sorted({*before, *after})
        if (_grows if key == _REMEMBERS else _differs)(before.get(key), after.get(key))
    ]
    if not changed:
        return COMPATIBLE, "unchanged"
    pairs = [(key, before.get(key), after.get(key)) for key in changed]
    detail = "; ".join(f"{key} was {_text(_unlike(x, y))}, is {_text(_unlike(y, x))}" for key, x, y in pairs)
    # A source remembers object keys below its root: below another root they would mean other objects.
    return NEW_UID, detail


def _grows(before: str | None, after: str | None) -> bool:
    """Whether an operator would have to remember more than it did: what it has forgotten cannot come back."""
    if before is None or after is None or before == _FOR_EVER:
        return False
    return after == _FOR_EVER or parse_duration(after) > parse_duration(before)


def _differs(before: Any, after: Any) -> bool:
    """Whether two values differ; None (a type that only Spark knows) differs from nothing."""
    if before is None or after is None:
        return (before is None) != (after is None) and not (isinstance(before or after, str))
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() != after.keys() or any(_differs(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) != len(after) or any(map(_differs, before, after))
    return bool(before != after)


def _unlike(value: Any, other: Any) -> Any:
    """Return what of a mapping the other one does not have alike; any other value as it is."""
    if not isinstance(value, Mapping) or not isinstance(other, Mapping):
        return value
    return {key: item for key, item in value.items() if key not in other or _differs(item, other[key])}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return "?" if value is None else str(value)
