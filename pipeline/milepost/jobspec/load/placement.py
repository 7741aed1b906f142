"""Refuse a job with overlapping locations: sinks, the job's folder, and what sources read.

Locations are compared after resolution: relative to the spec, without `.` and `..`, with percent escapes decoded and
local links followed. Whether a source could read the job's own files depends on the names that Milepost gives files.

    sink path out/totals, source path out/**/*.parquet      refused: matches out/totals/_milepost/data/…
    sink path out/totals, source path out/*.csv             accepted
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as Folder
from urllib.parse import unquote

from milepost.jobspec.job.environment import referenced_variables, resolve_text
from milepost.jobspec.job.sources.delta_source import DeltaSourceSpec
from milepost.jobspec.job.sources.milepost_source import MilepostSourceSpec
from milepost.jobspec.job.spec import JobSpec
from milepost.language import ANY, Path, Problem, Step, can_name, hidden_by, static_prefix
from milepost.protocol.records import absolute_url, location_problem

_DIGIT, _HEX, _SUBTASK = "0123456789", "0123456789abcdef", "0123456789al"
"""Characters of a number, of a digest, and of the writer of a staged file (a subtask's number, or `all`)."""


def _steps(*parts: str | Step) -> tuple[Step, ...]:
    """Return the steps of a file name pattern; a string means its characters."""
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
"""Patterns of the file names below a sink's path. A test compares them with the files of a table."""
_JOB_FILES = tuple(_steps((ANY, True), end) for end in (".parquet", ".json", ".arrow"))


@dataclass(frozen=True, slots=True)
class _OutputFolder:
    """A folder that the job writes to.

    Attributes:
        owner: what the folder belongs to, in messages.
        path: path of its key in the spec.
        folder: its resolved location.
        files: patterns of the names of its files.
    """

    owner: str
    path: Path
    folder: str
    files: Sequence[Sequence[Step]]


def placement_problems(spec: JobSpec, folder: Folder, environment: Mapping[str, str]) -> list[Problem]:
    """Return the problems of a job's locations.

    Args:
        folder: absolute folder of the spec, to which relative locations refer.
        environment: for references in sinks' paths. A path with a variable that is not set is not checked.
    """
    job_folder = f"{_resolved(spec.storage, folder)}/{spec.name}"
    outputs = [_OutputFolder("the job's own folder", ("storage",), job_folder, _JOB_FILES)]
    problems: list[Problem] = []
    for index, sink in enumerate(spec.sinks):
        if sink.path is None:  # its rows are staged in the job's own folder
            continue
        if _unset_variables(sink.path, environment):
            continue
        text = resolve_text(sink.path, environment, "path")
        if location_problem(text) is None:
            output = _OutputFolder(f"sink {sink.name}", ("sinks", index, "path"), _resolved(text, folder), TABLE_FILES)
            problems += _overlaps(output, outputs)
            outputs.append(output)
    for name, source in spec.files.items():
        pattern = _resolved_pattern(source.path, folder)
        problems += [
            Problem(
                ("sources", name, "path"),
                f"this path can match files that the job writes, of {output.owner}; narrow it",
            )
            for output in outputs
            if _can_read(pattern, output)
        ]
    for name, table in spec.sources.items():
        if isinstance(table, DeltaSourceSpec | MilepostSourceSpec) and not _unset_variables(table.path, environment):
            problems += _own_table(name, resolve_text(table.path, environment, "path"), folder, outputs)
    return problems


def _own_table(source: str, path: str, folder: Folder, outputs: Sequence[_OutputFolder]) -> Iterator[Problem]:
    """Yield a problem if a source is a table that the job writes: each epoch would read the rows of the one before."""
    for output in outputs:
        if location_problem(path) is None and _resolved(path, folder) == output.folder:
            yield Problem(("sources", source, "path"), f"this is the table of {output.owner}; read the sink's input")


def _overlaps(output: _OutputFolder, others: Sequence[_OutputFolder]) -> Iterator[Problem]:
    for other in others:
        if (output.folder + "/").startswith(other.folder + "/"):
            relation = "is" if output.folder == other.folder else "is inside"
        elif (other.folder + "/").startswith(output.folder + "/"):
            relation = "contains"
        else:
            continue
        yield Problem(output.path, f"this location {relation} that of {other.owner}; give each sink its own path")


def _can_read(pattern: str, output: _OutputFolder) -> bool:
    """Return whether a source's pattern can match a file in a folder."""
    for file in output.files:
        first = file[0][0] if not file[0][1] else None
        is_hidden = hidden_by(pattern)(f"{output.folder}/{first or 'x'}")
        if not is_hidden and can_name(pattern, _steps(f"{output.folder}/", *file)):
            return True
    return False


def _unset_variables(text: str, environment: Mapping[str, str]) -> list[str]:
    """Return the variables that a text needs and that are not set."""
    return [name for name in referenced_variables(text) if f"${{env:{name}}}" in text and name not in environment]


def _resolved(text: str, folder: Folder) -> str:
    """Return a canonical location: ``s3://bucket/key`` or an absolute path. Equal locations have equal texts."""
    url = absolute_url(text, folder)
    return os.path.realpath(unquote(url.removeprefix("file://"))) if url.startswith("file://") else url


def _resolved_pattern(text: str, folder: Folder) -> str:
    url = absolute_url(text, folder)
    if not url.startswith("file://"):
        return url
    path = unquote(url.removeprefix("file://"))
    above = static_prefix(path).rpartition("/")[0]
    return os.path.realpath(above or "/").rstrip("/") + path[len(above) :]
