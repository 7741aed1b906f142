"""Parsed specs are kept by the hash of text and code: Airflow parses DAG files all the time, and for every task.

A disposable cache: what is not kept, or cannot be, is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from milepost.codec.records import decode, encode
from milepost.epoch.code_hash import CODE_HASH
from milepost.epoch.private_cache import private_cache
from milepost.errors import EnvironmentUnusable, InvalidRequest, StateCorrupt
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.load import LoadedJob, check_placement, from_spec, from_text, read_spec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ParsedSpec:
    """What is kept of a spec.

    Attributes:
        key: hex SHA-256 of all that it follows from. problem: what `lint` says against its graph; "" for nothing.
        spec: the validated spec as JSON text: canonical JSON would sort its columns. spec_hash: as that of the job.
    """

    key: str
    problem: str
    spec: str
    spec_hash: str


def parsed_spec(path: Path) -> LoadedJob:
    """Return the job of a spec file whose graph `lint` accepts: its SQL, columns, types, and what follows what.

    What is not kept is made: a parser of YAML and one of SQL are imported, no engine and no user code.

    Raises:
        InvalidRequest: all problems, with file and line.
    """
    text = read_spec(path)
    key, file = _key(path, text), _file(path)
    kept = _kept(file, key)
    if kept is None:
        kept = _parsed(key, text, path)
        _keep(file, kept)
    if kept.problem:
        raise InvalidRequest(kept.problem)
    job = from_spec(JobSpec.model_validate(json.loads(kept.spec)), kept.spec_hash, text, path)
    check_placement(job)
    return job


def cached_job_name(path: Path) -> str | None:
    """Return the job's name in a spec file, where what it follows from is kept; nothing of it is checked."""
    try:
        kept = _kept(_file(path), _key(path, read_spec(path)))
    except InvalidRequest:
        return None
    return None if kept is None else str(json.loads(kept.spec)["name"])


def _key(path: Path, text: str) -> str:
    return hashlib.sha256(os.fsencode("\0".join((CODE_HASH, _sqlglot(), str(path), text)))).hexdigest()


@cache
def _sqlglot() -> str:
    return version("sqlglot")


def _parsed(key: str, text: str, path: Path) -> ParsedSpec:
    """Return what is to be kept. Raises InvalidRequest: a spec that is not valid is looked at each time."""
    job, problem = from_text(text, path), ""
    try:
        job.graph()
    except InvalidRequest as error:
        problem = error.message
    spec = json.dumps(job.spec.model_dump(mode="json", by_alias=True, exclude_unset=True))
    return ParsedSpec(key, problem, spec, job.spec_hash)


def _file(spec: Path) -> Path | None:
    """Return where a spec is kept, one file per spec; None: this user has no folder of its own."""
    try:
        folder = private_cache() / "specs"
        folder.mkdir(mode=0o700, exist_ok=True)
    except (EnvironmentUnusable, OSError) as error:
        log.debug("no folder for parsed specs: %s", error)
        return None
    return folder / f"{hashlib.sha256(os.fsencode(spec)).hexdigest()[:32]}.json"


def _kept(file: Path | None, key: str) -> ParsedSpec | None:
    """Return what is kept under a key; None: nothing is, or nothing that can be read."""
    if file is None:
        return None
    try:
        kept = decode(ParsedSpec, file.read_bytes(), "kept spec")
    except (OSError, StateCorrupt):
        return None
    return kept if kept.key == key else None


def _keep(file: Path | None, parsed: ParsedSpec) -> None:
    if file is None:
        return
    with contextlib.suppress(OSError):  # it is parsed again next time
        descriptor, temporary = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(encode(parsed))
        Path(temporary).replace(file)
