"""Decode a table's expected files from its stored head, mark and records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

STAGED = re.compile(r"_milepost/data/chk-(\d{20})/t(\d+)/")
HEADS, LISTS = "_milepost/heads/", "_milepost/garbage/"

Json = dict[str, Any]
Stored = Callable[[str], bytes | None]


def mark_of(stored: Stored, sink: str, head: Mapping[str, Any]) -> Json:
    """Return the mark of a table's head, which must have been recorded before (I14)."""
    number = head["number"]
    body = stored(f"sinks/{sink}/marks/{number:020d}.json")
    if body is None:
        raise AssertionError(f"I14: {sink} carries mark {number}, and nobody has recorded it")
    mark: Json = json.loads(body)
    same = all(mark[name] == head[name] for name in ("number", "write_id", "table_id"))
    if not same or mark["previous"] >= number:
        raise AssertionError(f"I14: {sink} carries {head}, and its mark says {mark}")
    return mark


def files_of(stored: Stored, contents: Mapping[str, Any] | None) -> list[str]:
    """Return the keys of a table's files; None is the empty table. A merged file replaces the first of its parts."""
    files: list[str] = []
    for handle in contents["records"] if contents is not None else ():
        body = stored(handle["key"])
        if body is None:
            raise AssertionError(f"I8: {handle['key']} of a table's contents is not there")
        change = json.loads(body)
        joins = {one["of"][0]: one["file"]["key"] for one in change["joined"]}
        gone = {*change["removed"], *(key for one in change["joined"] for key in one["of"])}
        stays = [joins.get(key) if key in gone else key for key in (() if change["whole"] else files)]
        files = [key for key in stays if key is not None] + [file["key"] for file in change["added"]]
    return files


def is_old_mark(sink_numbers: Mapping[str, int], key: str) -> bool:
    """Return whether a key is a mark older than its table's current one."""
    found = re.fullmatch(r"sinks/([^/]+)/marks/(\d{20})\.json", key)
    return found is not None and int(found[2]) < sink_numbers[found[1]]
