"""State signatures tell whether recorded state means the same to a changed spec.

A signature says what an operator's state, or a sink's chain, depends on; it is kept with each checkpoint and compared
before anything is planned. What is not in it (sql, limits, schedule) may change freely; a ttl or an allowed lateness
may only shrink. The columns and types of an operator's state are recorded with its runs, and compared there
(`jobmaster/compatibility/preflight.py`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from operator import ne
from typing import Any

from milepost.spec.graph.checks import late_outputs
from milepost.spec.graph.graph import JobGraph, Node
from milepost.spec.job.operators.join import JoinOperator, PairedOperator
from milepost.spec.job.operators.latest import LatestOperator
from milepost.spec.job.operators.top import TopOperator
from milepost.spec.job.spec import (
    AggregateOperator,
    DeduplicateOperator,
    JobSpec,
    ProcessOperator,
    SinkSpec,
    SourceSpec,
    SqlOperator,
    WindowOperator,
    key_texts,
)
from milepost.spec.values.aggregates import BY_EVENT_TIME
from milepost.spec.values.times.datetime_pattern import accepts_all_of
from milepost.spec.values.times.durations import format_duration, format_signed_duration, parse_duration
from milepost.spec.values.times.time_zones import zone_digest

COMPATIBLE = "compatible"
NON_RESTORED = "needs --allow-non-restored-state"
NEW_UID = "needs a new uid or a backfill"
NEW_TABLE = "needs a new sink name and path"
NEW_TABLE_OR_BACKFILL = "needs a new sink name and path, or a backfill"

UNCHANGED = "unchanged"
BEGINS_EMPTY = "begins empty"

RENAMED_FROM = "renamed_from"
"""In a signature as it is read, never as it is recorded: the uid under which the checkpoint has the operator."""

_REMEMBERS = "remembers"
"""How much longer than its watermark an operator keeps keys: allowed lateness, or a ttl."""
_LIFETIMES = {"window": "allowed_lateness", "deduplicate": "ttl", "latest": "tombstone_ttl"}
"""What says so in a spec, by the kind of operator."""
_FOR_EVER = "for ever"
_MODES = "modes of its inputs"
"""Of each input append, updates or retract: state made of rows that stay cannot tell which one an update replaces."""
_OUTPUT_KEY = "output_key"
_EVENT_TIME = "event_time"
"""Of a source: how its rows are timed. A change is no verdict: operators whose state depends on it have their own."""
_EVENT_TIME_OF = "event_time of source "
"""How a source's rows are timed, where state was made by their times: other times would not be comparable with them."""
_ROWS_OF = "rows_of"
"""The operator whose latest rows a table shows. Rows of another one beside them would be a table of neither."""
_UPDATES_OF = "updates of "
"""Of an input of mode retract: its operator, and of SQL those behind it, and what its rows are made of."""
_ANSWERS = ": answers of Spark"
"""Behind that and the uid of SQL: `SparkAnswers`, which an epoch adds, and compares before it makes any row."""
_DIGITS = 16
"""Of the digest of a text in a signature; the checkpoint has the text."""
_SECTIONS = ("operators", "sources", "sinks", "job")


def state_signatures(spec: JobSpec, graph: JobGraph) -> dict[str, dict[str, Any]]:
    """Return what restoring depends on, JSON-compatible.

    Returns:
        ``{"operators": {uid: …}, "sources": {name: …}, "sinks": {name: …}, "job": {"job": …}}``.
    """
    return {
        "operators": {node.uid: _operator(spec, graph, node) for node in graph.stateful},
        "sources": {name: _source(source) for name, source in spec.streams.items()},
        "sinks": {sink.name: _sink(sink, graph) for sink in spec.sinks},
        "job": {"job": {"max_parallelism": spec.checkpointing.max_parallelism}},
    }


def _operator(spec: JobSpec, graph: JobGraph, node: Node) -> dict[str, Any]:
    operator = spec.operator(node.uid)
    signature: dict[str, Any] = {
        "kind": node.kind,
        "key": key_texts(operator),
        _MODES: _modes(graph, node),
    }
    if _is_timed(spec, graph, node):
        times = {name: spec.sources[name].event_time for name in sorted(node.sources)}
        signature |= {_EVENT_TIME_OF + name: time.reading for name, time in times.items() if time is not None}
    if isinstance(operator, WindowOperator | DeduplicateOperator | PairedOperator):
        # What is late, and what has fired, was judged by these sources' watermarks.
        of_inputs = [sorted(graph.nodes[name].sources) for name in node.inputs]
        signature["sources"] = of_inputs if len(of_inputs) > 1 else of_inputs[0]
    if isinstance(operator, JoinOperator):
        # Rows are kept for as long as others may come within these bounds.
        signature["within"] = list(map(format_signed_duration, operator.bounds))
        if operator.how != "inner":  # as which it is recorded where there is none
            signature["how"] = operator.how
    if isinstance(operator, WindowOperator):
        signature["window"] = operator.window.model_dump(mode="json", exclude_none=True)
        if operator.window.timezone is not None:
            # Other rules would begin other windows.
            signature["time zone data"] = zone_digest(operator.window.timezone)
        signature[_REMEMBERS] = format_duration(operator.allowed_lateness)
    if isinstance(operator, TopOperator):
        # Rows that others went before were not kept.
        signature |= {"order_by": operator.order_texts, "n": operator.n}
    if isinstance(operator, ProcessOperator) and node.retracts:
        # By which the rows that it put out are kept.
        signature[_OUTPUT_KEY] = list(node.key)
    for name in node.inputs:
        if graph.nodes[name].retracts:
            signature |= _updates_of(spec, graph, graph.nodes[name])
    if isinstance(operator, LatestOperator):
        # Rows that others are newer than were not kept.
        signature["sequence_by"] = list(operator.sequence_by)
        if operator.delete_when is not None:
            ttl = operator.tombstone_ttl
            signature[_REMEMBERS] = _FOR_EVER if ttl is None else format_duration(ttl)
        if operator.tombstone_ttl is not None:
            signature["sources"] = sorted(graph.nodes[node.inputs[0]].sources)
    if isinstance(operator, DeduplicateOperator):
        signature[_REMEMBERS] = _FOR_EVER if operator.ttl is None else format_duration(operator.ttl)
    return signature


def _is_timed(spec: JobSpec, graph: JobGraph, node: Node) -> bool:
    """Return whether state holds event times, or was made by them. The state of a class may."""
    operator = spec.operator(node.uid)
    if isinstance(operator, AggregateOperator):
        return any(call.function in BY_EVENT_TIME for call in operator.aggregates.values())
    column = graph.nodes[node.inputs[0]].event_time
    if isinstance(operator, LatestOperator) and column in operator.sequence_by:
        return True
    if isinstance(operator, TopOperator):
        return any(name == column for name, _ in operator.order_by)
    has_late_rows = any(uid == node.uid for uid, _ in late_outputs(spec).values())
    return has_late_rows or isinstance(operator, ProcessOperator)


def _modes(graph: JobGraph, node: Node) -> list[str]:
    """Return the mode of each input; of a process function which there are: its class may get a further one."""
    modes = [graph.nodes[name].output_kind for name in node.inputs]
    return sorted({*modes}) if node.kind == "process" else modes


def _updates_of(spec: JobSpec, graph: JobGraph, producer: Node) -> dict[str, Any]:
    """Return what the rows of updates are made of: one that is taken back must be the row that was added.

    What is behind a producer with state is not here: it takes back what its state gave out, and its state is restored
    under the same name, or it is another producer. Nor are rows beside them that stay: those are taken back by nobody.
    """
    operator = spec.operator(producer.uid)
    parts: dict[str, Any] = {
        "columns": {name: "?" if type_ is None else str(type_) for name, type_ in producer.columns.items()}
    }
    behind: dict[str, Any] = {}
    if isinstance(operator, SqlOperator):
        parts["SQL"] = hashlib.sha256(operator.sql.encode()).hexdigest()[:_DIGITS]
        for name in producer.inputs:
            if graph.nodes[name].retracts:
                behind |= _updates_of(spec, graph, graph.nodes[name])
    else:
        parts["key"] = list(producer.key)
        parts["aggregates"] = {name: str(call) for name, call in getattr(operator, "aggregates", {}).items()}
    return behind | {f"{_UPDATES_OF}{producer.uid}: {part}": value for part, value in parts.items()}


def with_answers(signatures: Mapping[str, Any], answers: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return signatures with what Spark answers to the SQL between updates and each operator, and to its conditions.

    Args:
        answers: by the uid of the operator that has the SQL.
    """
    operators = {
        uid: one | {_UPDATES_OF + sql + _ANSWERS: [*said] for sql, said in answers.items() if _depends(uid, one, sql)}
        for uid, one in signatures["operators"].items()
    }
    return {**signatures, "operators": operators}


def recorded_answers(operator: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return what Spark had answered to the SQL before an operator, by the uid of that, as `with_answers` took it."""
    return {
        key.removeprefix(_UPDATES_OF).removesuffix(_ANSWERS): tuple(said)
        for key, said in operator.items()
        if key.startswith(_UPDATES_OF) and key.endswith(_ANSWERS)
    }


def _depends(uid: str, operator: Mapping[str, Any], sql: str) -> bool:
    return uid == sql or f"{_UPDATES_OF}{sql}: SQL" in operator


def with_updates_of(operator: Mapping[str, Any], former: str, uid: str) -> dict[str, Any]:
    """Return an operator's signature as it is when one that it reads has got another uid."""
    before = f"{_UPDATES_OF}{former}: "
    return {
        f"{_UPDATES_OF}{uid}: {key.removeprefix(before)}" if key.startswith(before) else key: value
        for key, value in operator.items()
    }


def _sink(sink: SinkSpec, graph: JobGraph) -> dict[str, Any]:
    rows = graph.sink_inputs[sink.name]
    signature: dict[str, Any] = {
        "format": sink.format,
        "path": sink.location,
        "mode": sink.mode,
        "key": list(rows.key),
    }
    if rows.mode == "upsert":
        signature[_ROWS_OF] = graph.keyed_by(rows.uid)
    if rows.routing_key not in (None, rows.key):
        # By it rows of the latest files are found again: a table has one for ever.
        signature["buckets by"] = list(rows.routing_key)
    return signature


def with_rows_of(sink: Mapping[str, Any], former: str, uid: str) -> dict[str, Any]:
    """Return a sink's signature as it is when an operator has got another uid."""
    return {key: uid if (key, value) == (_ROWS_OF, former) else value for key, value in sink.items()}


def _source(source: SourceSpec) -> dict[str, Any]:
    time = source.event_time
    return {"root": _root(source.path)} | ({} if time is None else {_EVENT_TIME: time.reading})


def _root(path: str) -> str:
    """Return what a source's object keys are relative to: its bucket, or its folder up to the first pattern."""
    scheme, _, rest = path.partition("://")
    if scheme == "s3":
        return f"{scheme}://{rest.split('/')[0]}"
    fixed = re.split(r"[*?\[]", path, maxsplit=1)[0]
    return fixed[: fixed.rfind("/") + 1]


def compare_signatures(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one verdict per operator, source, sink and the job: in the order of the new spec, then what is gone.

    Returns:
        ``{"kind", "name", "uid", "verdict", "detail"}``; kind is operator, source, sink or job; uid is the name as
        people read it; verdict is COMPATIBLE, or what it needs; detail says what changed.
    """
    verdicts = []
    for section in _SECTIONS:
        before, after = old.get(section, {}), new.get(section, {})
        for name, signature in after.items():
            verdict, detail = _judge(section, before.get(name), signature)
            verdicts.append(_row(section, name, verdict, detail))
        for name in before:
            if name not in after:
                verdict = NON_RESTORED if section in ("operators", "sources") else COMPATIBLE
                verdicts.append(_row(section, name, verdict, f"{section.removesuffix('s')} is gone from the spec"))
    return verdicts


def retimed_sources(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Return the sources whose event time changed, each with what did. Earlier versions did not record it."""
    before, found = old.get("sources", {}), {}
    for name, source in new["sources"].items():
        was, now = before.get(name, {}).get(_EVENT_TIME), source.get(_EVENT_TIME)
        if _times_differ(was, now):
            found[name] = f"{_EVENT_TIME} was {_text(was)}, is {_text(now)}"
    return found


def is_continued(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether an operator of one signature continues the state of an operator of another."""
    return _judge("operators", before, after)[0] == COMPATIBLE


def _row(section: str, name: str, verdict: str, detail: str) -> dict[str, str]:
    """A verdict; an operator is called by its uid alone, what else has a name with its kind before it."""
    kind = section.removesuffix("s")
    uid = name if kind in ("operator", "job") else f"{kind} {name}"
    return {"kind": kind, "name": name, "uid": uid, "verdict": verdict, "detail": detail}


def _judge(section: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, str]:
    if before is None:
        return COMPATIBLE, BEGINS_EMPTY
    changed = [
        key
        for key in sorted({*before, *after})
        if key != RENAMED_FROM and not key.endswith(_ANSWERS) and _is_changed(key, before.get(key), after.get(key))
    ]
    if not changed:
        return COMPATIBLE, UNCHANGED
    pairs = [(_in_the_spec(key, after), before.get(key), after.get(key)) for key in changed]
    detail = "; ".join(f"{key} was {_text(x)}, is {_text(y)}" for key, x, y in pairs)
    if section == "sinks":
        return NEW_TABLE_OR_BACKFILL if changed == [_ROWS_OF] else NEW_TABLE, detail
    # A source remembers object keys below its root: below another root they would mean other objects.
    return NEW_UID, detail


def _is_changed(key: str, before: Any, after: Any) -> bool:
    """Return whether two values of a part of a signature are a change."""
    if key.startswith(_EVENT_TIME_OF):
        return _times_differ(before, after)
    if key == _EVENT_TIME:
        return False
    return _CHANGES.get(key, ne)(before, after)


def _in_the_spec(key: str, signature: Mapping[str, Any]) -> str:
    """Return how a spec calls a part of a signature."""
    return _LIFETIMES.get(signature["kind"], key) if key == _REMEMBERS else key


def _grows(before: str | None, after: str | None) -> bool:
    """Return whether an operator would have to remember more than it did: what it has forgotten cannot come back.

    Also from "for ever" to a time: when the keys that it has were seen was not recorded.
    """
    if before is None or after is None or _FOR_EVER in (before, after):
        return before is not None and after is not None and before != after
    return parse_duration(after) > parse_duration(before)


def _differs(before: Any, after: Any) -> bool:
    """Return whether both are known and differ: earlier versions did not record it."""
    return before is not None and after is not None and before != after


def _times_differ(before: Any, after: Any) -> bool:
    """Return whether a source's event times are read in another way; further optional parts of a format are none."""
    if not _differs(before, after):
        return False
    if not all(isinstance(one, Mapping) and isinstance(one.get("format"), str) for one in (before, after)):
        return True
    same = {**before, "format": after["format"]} == after
    return not (same and accepts_all_of(after["format"], before["format"]))


_CHANGES: Mapping[str, Callable[[Any, Any], bool]] = {
    _REMEMBERS: _grows,
    _ROWS_OF: _differs,
    _MODES: _differs,
    _OUTPUT_KEY: _differs,
}
"""What counts as a change of a part of a signature, where not every difference does."""


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return "?" if value is None else str(value)
