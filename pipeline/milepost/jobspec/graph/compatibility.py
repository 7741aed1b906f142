"""State signatures, which decide whether a changed spec can continue recorded state.

A signature contains what the state of an operator, or the table of a sink, depends on. It is recorded with each
checkpoint and compared before an epoch is planned. What it does not contain (sql, limits, schedule) may change freely;
a ttl or an allowed lateness may only shrink. Columns and types of state are recorded with its runs and compared in
`jobmaster/compatibility/preflight.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import ne
from typing import Any

from milepost.jobspec.graph.fingerprints import fingerprint, statement_of
from milepost.jobspec.graph.graph import JobGraph, Node
from milepost.jobspec.graph.read_updates import UPDATES_OF, query_digest, sql_key
from milepost.jobspec.job.sources.source_spec import SourceSpec
from milepost.jobspec.job.spec import JobSpec, SinkSpec
from milepost.language import is_same_start
from milepost.language.times import accepts_all_of, parse_duration
from milepost.operators import KINDS
from milepost.operators.base import FOR_EVER, REMEMBERS, StatefulSpec
from milepost.operators.sql import SelectSpec

COMPATIBLE = "compatible"
NON_RESTORED = "needs --allow-non-restored-state"
FROM_NOW_ON = "needs a backfill or --from-now-on"
"""Rows that a SQL statement read before went through another text, or were not read by its new steps."""
NEW_UID = "needs a new uid or a backfill"
NEW_TABLE = "needs a new sink name and path"
NEW_TABLE_OR_BACKFILL = "needs a new sink name and path, or a backfill"

UNCHANGED = "unchanged"
BEGINS_EMPTY = "begins empty"
REMOVED = "was removed from the spec"
"""End of the detail of a removed operator, source or sink."""

RENAMED_FROM = "renamed_from"
"""In a signature that was read, never in a recorded one: the uid under which the checkpoint has the operator."""

_MODES = "modes of its inputs"
"""Per input: append, updates or retract. State built from append rows cannot tell which row an update replaces."""
_OUTPUT_KEY = "output_key"
_TOPICS = "topics"
"""Topics of a source. One may be added, and begins at its earliest message; the log has messages of one that is not."""
_START = "start"
"""Where the log of a source began, as the spec has it. Two texts of one time are the same start."""
_EVENT_TIME = "event_time"
"""Event time of a source. A change has no verdict of its own: dependent operators have one (`_EVENT_TIME_OF`)."""
_EVENT_TIME_OF = "event_time of source "
"""Event time of a source whose times are in the state: new times would not be comparable with them."""
_QUERY = "its query"
"""Fingerprint of a SQL statement up to a step or a table. An edited query needs its state and its table rebuilt."""
_SOURCES = "sources"
"""Sources whose watermarks decide which rows are late for an operator."""
_ROWS_OF = "rows_of"
"""The operator that supplies the rows of an upsert table. The rows of two operators must not mix in one table."""
_ANSWERS = ": answers of Spark"
"""Suffix after `UPDATES_OF` and the uid of SQL: `SparkAnswers`, which an epoch adds and compares before it runs."""
_SECTIONS = ("operators", "sources", "sinks", "job")


def state_signatures(spec: JobSpec, graph: JobGraph) -> dict[str, dict[str, Any]]:
    """Return the signatures of a job, JSON-compatible.

    Returns:
        ``{"operators": {uid: …}, "sources": {name: …}, "sinks": {name: …}, "job": {"job": …}}``.
    """
    # A signature of a window operator:
    #   {"kind": "window", "key": ["city"], "modes of its inputs": ["append"], "event_time of source visits": "at",
    #    "sources": ["visits"], "window": {"tumbling": "1h"}, "remembers": "5m"}
    return {
        "operators": {node.uid: _operator(spec, graph, node) for node in graph.stateful},
        "sources": {name: _source(source) for name, source in spec.streams.items()},
        "sinks": {sink.name: _sink(spec, sink, graph) for sink in spec.sinks},
        "job": {"job": {"max_parallelism": spec.checkpointing.max_parallelism}},
    }


def _operator(spec: JobSpec, graph: JobGraph, node: Node) -> dict[str, Any]:
    operator = spec.operator(node.uid)
    assert isinstance(operator, StatefulSpec), node.uid
    modes = [graph.nodes[name].output_kind for name in node.inputs]
    signature: dict[str, Any] = {
        "kind": node.kind,
        "key": operator.key_texts,
        _MODES: modes if operator.ordered_inputs else sorted({*modes}),
    }
    if operator.holds_event_times(graph.nodes[node.inputs[0]].event_time):
        times = {name: spec.sources[name].event_time for name in sorted(node.sources)}
        signature |= {_EVENT_TIME_OF + name: time.reading for name, time in times.items() if time is not None}
    if operator.uses_watermark:
        # The watermarks of these sources decided which rows were late and which windows have fired.
        input_sources = [sorted(graph.nodes[name].sources) for name in node.inputs]
        signature[_SOURCES] = input_sources if len(input_sources) > 1 else input_sources[0]
    if statement_of(spec, node.uid) is not None:
        signature[_QUERY] = fingerprint(spec, node.uid)
    signature |= operator.signature(retracts=node.retracts)
    for name in node.inputs:
        if graph.nodes[name].retracts:
            signature |= _updates_of(spec, graph, graph.nodes[name])
    return signature


def _updates_of(spec: JobSpec, graph: JobGraph, producer: Node) -> dict[str, Any]:
    """Return what determines the updates of a producer: a retraction must equal the row that was added.

    The walk through SQL ends at the stateful producer, which retracts rows of its own state; that state is restored
    under the same uid. Append inputs of SQL are not included, because their rows are never retracted.
    """
    operator = spec.operator(producer.uid)
    parts: dict[str, Any] = {
        "columns": {name: "?" if type_ is None else str(type_) for name, type_ in producer.columns.items()}
    }
    upstream: dict[str, Any] = {}
    if isinstance(operator, SelectSpec):
        parts["SQL"] = query_digest(operator.query)
        for name in producer.inputs:
            if graph.nodes[name].retracts:
                upstream |= _updates_of(spec, graph, graph.nodes[name])
    else:
        assert isinstance(operator, StatefulSpec), producer.uid
        parts["key"] = list(producer.key)
        parts["aggregates"] = operator.update_calls
    return upstream | {f"{UPDATES_OF}{producer.uid}: {part}": value for part, value in parts.items()}


def with_answers(signatures: Mapping[str, Any], answers: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Add Spark's answers for the SQL between updates and each operator, and for its conditions.

    Args:
        answers: uid of the operator with the SQL -> answers.
    """
    operators = {
        uid: signature
        | {UPDATES_OF + sql + _ANSWERS: [*texts] for sql, texts in answers.items() if _depends(uid, signature, sql)}
        for uid, signature in signatures["operators"].items()
    }
    return {**signatures, "operators": operators}


def recorded_answers(operator: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the answers in an operator's signature, in the form that `with_answers` takes."""
    return {
        key.removeprefix(UPDATES_OF).removesuffix(_ANSWERS): tuple(texts)
        for key, texts in operator.items()
        if key.startswith(UPDATES_OF) and key.endswith(_ANSWERS)
    }


def _depends(uid: str, operator: Mapping[str, Any], sql: str) -> bool:
    return uid == sql or sql_key(sql) in operator


def with_source_names(operator: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return an operator's signature after sources that it reads were renamed. names: new name by former name."""

    def renamed(sources: list[Any]) -> list[Any]:
        if any(isinstance(item, list) for item in sources):
            return [renamed(item) for item in sources]
        return sorted(names.get(item, item) for item in sources)

    keys = {_EVENT_TIME_OF + former: _EVENT_TIME_OF + name for former, name in names.items()}
    signature = {keys.get(key, key): value for key, value in operator.items()}
    return signature | ({_SOURCES: renamed(signature[_SOURCES])} if _SOURCES in signature else {})


def _sink(spec: JobSpec, sink: SinkSpec, graph: JobGraph) -> dict[str, Any]:
    rows = graph.sink_inputs[sink.name]
    signature: dict[str, Any] = {
        "format": sink.format,
        "path": sink.location,
        "mode": sink.mode,
        "key": list(rows.key),
    }
    if rows.mode == "upsert":
        signature[_ROWS_OF] = graph.keyed_by(rows.uid)
    if statement_of(spec, rows.uid) is not None and not rows.part:
        signature[_QUERY] = fingerprint(spec, rows.uid)
    if rows.routing_key not in (None, rows.key):
        # It decides the bucket of a row, so it is fixed for the life of a table.
        signature["buckets by"] = list(rows.routing_key)
    return signature


def with_rows_of(sink: Mapping[str, Any], former: str, uid: str) -> dict[str, Any]:
    """Return a sink's signature after an operator was renamed from `former` to `uid`."""
    return {key: uid if (key, value) == (_ROWS_OF, former) else value for key, value in sink.items()}


def _source(source: SourceSpec) -> dict[str, Any]:
    time = source.event_time
    return {**source.identity} | ({} if time is None else {_EVENT_TIME: time.reading})


def compare_signatures(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one verdict per operator, source, sink and the job, in the order of the new spec, then the removed ones.

    Returns:
        ``{"kind", "name", "uid", "verdict", "detail"}``. kind: operator, source, sink or job. uid: the name as shown to
        users. verdict: COMPATIBLE, or the required action. detail: what changed.
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
                verdicts.append(_row(section, name, verdict, f"{section.removesuffix('s')} {REMOVED}"))
    return verdicts


def retimed_sources(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Return source -> how its event time changed. Sources without a recorded event time are omitted."""
    before, changes = old.get("sources", {}), {}
    for name, source in new["sources"].items():
        was, now = before.get(name, {}).get(_EVENT_TIME), source.get(_EVENT_TIME)
        if _times_differ(was, now):
            changes[name] = f"{_EVENT_TIME} was {_text(was)}, is {_text(now)}"
    return changes


def can_continue(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether an operator with the signature `after` can continue the state of one with `before`."""
    return _judge("operators", before, after)[0] == COMPATIBLE


def _row(section: str, name: str, verdict: str, detail: str) -> dict[str, str]:
    """Return a verdict. The uid of an operator is its name; sources and sinks get their kind in front."""
    kind = section.removesuffix("s")
    uid = name if kind in ("operator", "job") else f"{kind} {name}"
    return {"kind": kind, "name": name, "uid": uid, "verdict": verdict, "detail": detail}


def _judge(section: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, str]:
    if before is None:
        return COMPATIBLE, BEGINS_EMPTY
    changed = _changed(before, after)
    if not changed:
        return COMPATIBLE, UNCHANGED
    pairs = [(_spec_key(key, after), before.get(key), after.get(key)) for key in changed]
    detail = "; ".join(
        f"{key} changed" if key == _QUERY else f"{key} was {_text(x)}, is {_text(y)}" for key, x, y in pairs
    )
    if section == "sinks":
        return NEW_TABLE_OR_BACKFILL if {*changed} <= {_ROWS_OF, _QUERY} else NEW_TABLE, detail
    # A source records consumed object keys relative to its root, so another root would mean other objects.
    return NEW_UID, detail


def without_queries(signatures: Mapping[str, Any]) -> dict[str, Any]:
    """Return signatures without the digests of queries, which have verdicts of their own."""
    sections = {
        section: {name: {key: one[key] for key in one if key != _QUERY} for name, one in signatures[section].items()}
        for section in ("operators", "sinks")
        if section in signatures
    }
    return {**signatures, **sections}


def is_changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two signatures of an operator differ by more than their queries."""
    return bool({*_changed(before, after)} - {_QUERY})


def is_other_table(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two signatures of a sink differ by more than the rows that they show."""
    return bool({*_changed(before, after)} - {_QUERY, _ROWS_OF})


def is_same_query(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two signatures are of statements with the same text, perhaps under other names."""
    return before.get(_QUERY) is not None and before.get(_QUERY) == after.get(_QUERY)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the keys by which two signatures differ."""
    return [
        key
        for key in sorted({*before, *after})
        if key != RENAMED_FROM and not key.endswith(_ANSWERS) and _is_changed(key, before.get(key), after.get(key))
    ]


def _is_changed(key: str, before: Any, after: Any) -> bool:
    """Return whether two values of a signature's key count as a change."""
    if key.startswith(_EVENT_TIME_OF):
        return _times_differ(before, after)
    if key == _EVENT_TIME:
        return False
    return _CHANGES.get(key, ne)(before, after)


def _spec_key(key: str, signature: Mapping[str, Any]) -> str:
    """Return the spec key for a signature's key."""
    return KINDS[signature["kind"]].lifetime_key if key == REMEMBERS else key


def _grows(before: str | None, after: str | None) -> bool:
    """Return whether an operator would have to remember more than it did. Forgotten keys cannot be restored.

    A change from "for ever" to a time counts as well: state does not record when its keys were last seen.
    """
    # "1h" -> "30m": False.  "1h" -> "2h": True.  "for ever" -> "1h": True.
    if before is None or after is None or FOR_EVER in (before, after):
        return before is not None and after is not None and before != after
    return parse_duration(after) > parse_duration(before)


def _differs(before: Any, after: Any) -> bool:
    """Return whether both values are recorded and differ. Earlier versions recorded none."""
    return before is not None and after is not None and before != after


def _times_differ(before: Any, after: Any) -> bool:
    """Return whether event times are read differently. More optional parts in the format do not count."""
    if not _differs(before, after):
        return False
    if not all(isinstance(time, Mapping) and isinstance(time.get("format"), str) for time in (before, after)):
        return True
    same = {**before, "format": after["format"]} == after
    return not (same and accepts_all_of(after["format"], before["format"]))


def _loses(before: str | None, after: str | None) -> bool:
    """Return whether a list of names lacks one that it had. Names may be added."""
    return not {*(before or "").split(", ")} <= {*(after or "").split(", ")}


def _starts_differ(before: str | None, after: str | None) -> bool:
    """Return whether a log would begin elsewhere. A source without `start` has None."""
    return before != after if before is None or after is None else not is_same_start(before, after)


_CHANGES: Mapping[str, Callable[[Any, Any], bool]] = {
    REMEMBERS: _grows,
    _ROWS_OF: _differs,
    _MODES: _differs,
    _OUTPUT_KEY: _differs,
    _TOPICS: _loses,
    _START: _starts_differ,
}
"""Signature key -> predicate for a change; for other keys every difference is a change."""


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return "?" if value is None else str(value)
