"""Older formats of `_metadata`, brought to the current one: retained checkpoints outlive the code that wrote them.

Format 1: epochs were always aligned: one firing watermark per operator, no rows in flight, no measured pace, no
job that ends.

Format 2: the code was recorded by one hash only, and an operator's signature had types and aggregates, which are
compared with the state schema since.

Format 3: `plan_ms` was the time between the rebind and Spark, which is `begin_ms` since; the trigger was not measured.
A task's time for handing rows on was part of its reading or processing, and its uploads' part of what they waited for.

Format 4: of a source's objects only those that were read or missing were told, and of its event times the watermark.
Keys were hashed without a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def from_format_1(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document as format 2. Raises KeyError, TypeError: it is not one of format 1."""
    return {
        **document,
        "format": 2,
        "sources": {name: {**source, "finished": False} for name, source in document["sources"].items()},
        "operators": {uid: _operator(item) for uid, item in document["operators"].items()},
        "unaligned": False,
        "held_back": None,
        "pace": {"ms_per_source_byte": None, "in_flight_ms": 0.0},
    }


def from_format_2(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document as format 3. Raises KeyError, TypeError: it is not one of format 2."""
    signatures = document["signatures"]
    operators = {uid: _signature(item) for uid, item in signatures.get("operators", {}).items()}
    named = {"operators": operators} if operators else {}
    return {**document, "format": 3, "code": {}, "signatures": {**signatures, **named}}


def from_format_3(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document as format 4. Raises KeyError, TypeError: it is not one of format 3."""
    timings = {_TIMING_OF_3.get(name, name): spent for name, spent in document["timings"].items()}
    tasks = [_task(task) for task in document["tasks"]]
    return {**document, "format": 4, "started_ms": None, "timings": timings, "tasks": tasks}


def from_format_4(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document as format 5. Raises KeyError, TypeError: it is not one of format 4."""
    untold: dict[str, Any] = {
        **dict.fromkeys(("newest_event_us", "furthest_us", "ahead_since")),
        "ahead_rows": 0,
        "ahead": [],
        "skipped": {},
        "bad_names": [],
    }
    sources = {name: {**one, **untold} for name, one in document["sources"].items()}
    return {**document, "format": 5, "sources": sources, "key_hash_secret": None}


_TIMING_OF_3 = {"plan_ms": "begin_ms"}
_NOT_IN_3 = ("started_ms", "total_ms", "emit_ms", "stage_ms", "async_wait_ms", "bytes", "buffers")


def _task(task: Mapping[str, Any]) -> dict[str, Any]:
    """A task whose attempt measured nothing of a kind did not write it."""
    same = {name: task.get(name) for name in ("read_ms", "restore_ms", "process_ms", "sync_ms", "async_ms", "left_ms")}
    counted = {name: task.get(name, 0) for name in ("alignment_ms", "in_flight_bytes")}
    named = {name: task[name] for name in ("level", "subtask", "attempt")}
    received = {"exchange_wait_ms": task.get("receive_ms"), "rows": task.get("rows_in", 0)}
    return dict.fromkeys(_NOT_IN_3) | named | same | counted | received


def _signature(item: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in item.items() if name != "aggregates"}
    return kept | ({"key": [column for column, _ in item["key"]]} if "key" in item else {})


def _operator(item: Mapping[str, Any]) -> dict[str, Any]:
    subtasks = len(item["handles"])
    kept = {name: value for name, value in item.items() if name != "firing_us"}
    return {
        **kept,
        "firing": [item["firing_us"]] * subtasks,
        "channels": [None] * subtasks,
        "processed_bytes": [0] * subtasks,
    }
