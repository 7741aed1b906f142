"""Placement keeps locations of a job apart: sinks, the job's own folder, what a source reads.

Locations are compared as they are resolved: relative to the spec, without `.` and `..`, percent escapes decoded, links
of local folders followed. Whether a source can read what is written is decided by the names that Milepost gives files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as Folder
from urllib.parse import unquote

from milepost.protocol.records.locations import absolute_url, location_problem
from milepost.spec.job.environment import referenced_variables, resolve_text
from milepost.spec.job.spec import JobSpec
from milepost.spec.values.patterns import ANY, Step, can_name, hidden_by, static_prefix
from milepost.spec.values.problems import Path, Problem

_DIGIT, _HEX, _SUBTASK = "0123456789", "0123456789abcdef", "0123456789al"
"""Characters of a number, of a digest, and of what staged a file: a subtask's number, or `all`."""


def _steps(*parts: str | Step) -> tuple[Step, ...]:
    """Return the steps of a name; a text stands for its characters."""
    steps: list[Step] = []
    for part in parts:
        steps += [(character, False) for character in part] if isinstance(part, str) else [part]
    return tuple(steps)


_NUMBER = [(_DIGIT, False)] * 20
_SHA256 = [(_HEX, False)] * 64
TABLE_FILES = (
    _steps("_milepost/data/chk-", *_NUMBER, "/t", (_DIGIT, True), "/", (_SUBTASK, True), "-", *_SHA256, ".parquet"),
    _steps("_milepost/heads/", *_NUMBER, ".json"),
    _steps("_milepost/garbage/", *_NUMBER, "-", *_SHA256, ".json"),
    _steps("_milepost/owner.json"),
)
"""Names below a sink's path; a test compares them with those of a table."""
_JOB_FILES = tuple(_steps((ANY, True), end) for end in (".parquet", ".json", ".arrow"))


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder that the job writes to: whose it is, where the spec says so, resolved, and the names of its files."""

    who: str
    path: Path
    folder: str
    files: Sequence[Sequence[Step]]


def placement_problems(spec: JobSpec, folder: Folder, environment: Mapping[str, str]) -> list[Problem]:
    """Return what is wrong between a job's locations.

    Args:
        folder: of the spec, absolute: relative locations begin there.
        environment: for the references in sinks' paths; a path with a variable that is not set is not looked at.
    """
    own = f"{_resolved(spec.storage, folder)}/{spec.name}"
    places = [_Place("the job's own folder", ("storage",), own, _JOB_FILES)]
    problems: list[Problem] = []
    for index, sink in enumerate(spec.sinks):
        if sink.path is None:  # what is staged for it lies in the job's own folder
            continue
        if any(variable not in environment for variable in _variables_without_default(sink.path)):
            continue
        text = resolve_text(sink.path, environment, "path")
        if location_problem(text) is None:
            place = _Place(f"sink {sink.name}", ("sinks", index, "path"), _resolved(text, folder), TABLE_FILES)
            problems += _meetings(place, places)
            places.append(place)
    for name, source in spec.sources.items():
        pattern = _resolved_pattern(source.path, folder)
        problems += [
            Problem(("sources", name, "path"), f"this can name files that the job writes: of {place.who}; narrow it")
            for place in places
            if _reads(pattern, place)
        ]
    return problems


def _meetings(place: _Place, others: Sequence[_Place]) -> Iterator[Problem]:
    for other in others:
        if (place.folder + "/").startswith(other.folder + "/"):
            where = "is" if place.folder == other.folder else "lies inside"
        elif (other.folder + "/").startswith(place.folder + "/"):
            where = "holds"
        else:
            continue
        yield Problem(place.path, f"this location {where} that of {other.who}; give each sink a path of its own")


def _reads(pattern: str, place: _Place) -> bool:
    for file in place.files:
        first = file[0][0] if not file[0][1] else None
        hidden = hidden_by(pattern)(f"{place.folder}/{first or 'x'}")
        if not hidden and can_name(pattern, _steps(f"{place.folder}/", *file)):
            return True
    return False


def _variables_without_default(text: str) -> list[str]:
    return [name for name in referenced_variables(text) if f"${{env:{name}}}" in text]


def _resolved(text: str, folder: Folder) -> str:
    """Return a text that two locations share exactly when they are one: ``s3://bucket/key`` or an absolute path."""
    url = absolute_url(text, folder)
    return os.path.realpath(unquote(url.removeprefix("file://"))) if url.startswith("file://") else url


def _resolved_pattern(text: str, folder: Folder) -> str:
    url = absolute_url(text, folder)
    if not url.startswith("file://"):
        return url
    path = unquote(url.removeprefix("file://"))
    above = static_prefix(path).rpartition("/")[0]
    return os.path.realpath(above or "/").rstrip("/") + path[len(above) :]
