"""Decode stored manifest entries and checkpoint metadata, independently of the codec."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_KEY = re.compile(r"(?:chk-\d{20}/t\d{20}|inputs)/[\w./-]+")

PACKED = ("aborted_sessions", "checkpoints", "completed_sessions", "garbage", "garbage_lists")

Json = dict[str, Any]


def entry_of(body: bytes) -> Json:
    """Return a decoded log entry, with columns as records and handles with full keys."""
    document: Json = json.loads(body, object_hook=_with_key)
    if "state" in document:
        document["state"] |= {name: _records(document["state"][name]) for name in PACKED}
    return document


def state_of(state: Json) -> Json:
    """Return the state of a job with one timeline, without its garbage, in the form of the plain model."""
    (timeline,) = state["timelines"]
    leader, pending = timeline["leader"], timeline["pending"]
    return {
        "status": state["status"],
        "incarnation": state["incarnation"],
        "next": state["next_checkpoint_id"],
        "head": timeline["head"],
        "leader": leader and (leader["session_id"], leader["token"]),
        "pending": pending
        and {
            "id": pending["checkpoint_id"],
            "token": pending["token"],
            "base": pending["base"],
            "deadline": pending["deadline_ms"],
        },
        "retained": {one["checkpoint_id"]: sorted(one["unconfirmed"]) for one in state["checkpoints"]},
        "failures": (state["failures"]["consecutive"], state["failures"]["counted"]),
        "pins": {one["name"]: (one["checkpoint_id"], one["until_ms"]) for one in state["pins"]},
        "results": {one["incarnation"]: (one["status"], one["clean_up"]) for one in state["results"]},
    }


def keys_in(metadata: bytes) -> set[str]:
    """Return the keys of all objects that checkpoint metadata names."""
    document = json.loads(metadata, object_hook=_with_key)
    for source in document.get("sources", {}).values():
        source["consumed"] = _records(source["consumed"])
    document["tables"] = contents_in(metadata)
    return set(_KEY.findall(json.dumps(document)))


def contents_in(metadata: bytes) -> dict[str, Json]:
    """Return the contents of each sink's table in checkpoint metadata."""
    tables: dict[str, Json] = json.loads(metadata, object_hook=_with_key).get("tables", {})
    return {sink: one | {"records": _records(one["records"])} for sink, one in tables.items()}


def _records(stored: list[Json] | Json) -> list[Json]:
    if isinstance(stored, list):
        return stored
    (count,) = set(_lengths(stored))
    return [_at(stored, number) for number in range(count)]


def _lengths(column: Json) -> Iterator[int]:
    for kind in ("each", "steps"):
        if kind in column:
            yield len(column[kind])
    for one in _parts(column).values():
        yield from _lengths(one)


def _parts(column: Json) -> Json:
    parts = column.get("of", {})
    return parts if isinstance(parts, dict) else dict(enumerate(parts))


def _at(column: Json, number: int) -> Any:
    """Return one value of a packed column.

    `{"all": 5}` is 5 everywhere, `{"steps": [3, 1, 1]}` is 3, 4, 5, and `{"each": ["7", "9"], "text": ["t", "/"]}`
    is `t7/`, `t9/`. `of` holds the columns of a record or a list.
    """
    if "of" in column:
        found = {name: _at(one, number) for name, one in _parts(column).items()}
        return _with_key(found) if isinstance(column["of"], dict) else [*found.values()]
    if "all" in column:
        return column["all"]
    if "steps" in column:
        return sum(column["steps"][: number + 1])
    value = column["each"][number]
    return value.join(column["text"]) if "text" in column else value


def _with_key(found: Json) -> Json:
    if found.keys() == {"key", "sha256", "size"} and isinstance(found["key"], str):
        found["key"] = found["key"].replace("{sha256}", found["sha256"])
    return found


def prefix(checkpoint: int, token: int) -> str:
    """Return the prefix of one attempt of one checkpoint.

    Checkpoint 7 with token 19 writes below `chk-00000000000000000007/t00000000000000000019/`.
    """
    return f"chk-{checkpoint:020d}/t{token:020d}/"


def covers(entry: str, key: str) -> bool:
    """Return whether a garbage entry covers a key: `a/` covers `a/b`, and `a` covers only `a`."""
    return key.startswith(entry) if entry.endswith("/") else key == entry
