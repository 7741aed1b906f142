"""Cache of parsed specs on disk, because Airflow parses DAG files continuously and for every task.

The cache may be deleted at any time. One file per spec path holds the last result and its key:

    key = sha256(code hash, sqlglot version, path, text); a change of any of them is a miss

The SQL file of a job and its compiled spec are compared by a digest of both, which the result has.
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

from milepost.codec import decode, encode
from milepost.epoch import CODE_HASH, private_cache
from milepost.errors import EnvironmentUnusable, InvalidRequest, StateCorrupt
from milepost.jobspec.load import LoadedJob, SqlText, check_placement, from_json, from_text, read_spec, spec_as_json

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ParsedSpec:
    """The cached result of parsing a spec.

    Attributes:
        key: hex SHA-256 of all inputs, see `_key`. problem: the error of the graph; "" if it is valid.
        text: text of the spec, compiled if it has SQL. sql: name of its file, or "". compiled: name of the compiled
            spec whose steps it reuses, or "". sql_hash: digest of both, as in `SqlText`, or "".
        spec: the validated spec as JSON text, see `spec_as_json`.
    """

    key: str
    problem: str
    spec: str
    text: str
    sql: str
    compiled: str
    sql_hash: str


def parsed_spec(path: Path) -> LoadedJob:
    """Return the job of a spec file with a valid graph, from the cache if possible.

    A miss imports the parsers of YAML and SQL, but no engine and no user code.

    Raises:
        InvalidRequest: the spec or its graph is not valid; the message has all problems, with file and line.
    """
    text = read_spec(path)
    key, file = _key(path, text), _cache_file(path)
    cached = _load(file, key)
    if cached is None or not _has_same_sql(cached, path):
        cached = _parse(key, text, path)
        _store(file, cached)
    if cached.problem:
        raise InvalidRequest(cached.problem)
    job = from_json(cached.spec, cached.text, path)
    check_placement(job)
    return job


def cached_job_name(path: Path) -> str | None:
    """Return the job name of a spec file, if its result is cached. Does not validate the spec."""
    try:
        cached = _load(_cache_file(path), _key(path, read_spec(path)))
    except InvalidRequest:
        return None
    return None if cached is None else str(json.loads(cached.spec)["name"])


def _key(path: Path, text: str) -> str:
    return hashlib.sha256(os.fsencode("\0".join((CODE_HASH, _sqlglot(), str(path), text)))).hexdigest()


@cache
def _sqlglot() -> str:
    return version("sqlglot")


def _parse(key: str, text: str, path: Path) -> ParsedSpec:
    """Parse a spec for the cache. Raises InvalidRequest: the spec is not valid, which is not cached."""
    job, problem = from_text(text, path), ""
    try:
        job.graph()
    except InvalidRequest as error:
        problem = error.message
    spec = spec_as_json(job.spec)
    if job.sql is None:
        return ParsedSpec(key, problem, spec, job.text, "", "", "")
    source, compiled = job.sql.source, job.sql.compiled or ""
    return ParsedSpec(key, problem, spec, job.text, source.file, compiled, source.digest)


def _has_same_sql(cached: ParsedSpec, path: Path) -> bool:
    """Return whether the SQL file of a cached spec, if it has one, is unchanged."""
    if not cached.sql:
        return True
    try:
        text, compiled = (
            (path.parent / name).read_text(encoding="utf-8") if name else "" for name in (cached.sql, cached.compiled)
        )
        digest = SqlText.digest_of(text)
        return (SqlText.digest_of(digest, compiled) if cached.compiled else digest) == cached.sql_hash
    except (OSError, UnicodeDecodeError):
        return False  # parsing reports why it cannot be read


def _cache_file(spec: Path) -> Path | None:
    """Return the cache file of a spec; None if this user has no private cache folder."""
    try:
        folder = private_cache() / "specs"
        folder.mkdir(mode=0o700, exist_ok=True)
    except (EnvironmentUnusable, OSError) as error:
        log.debug("no folder for parsed specs: %s", error)
        return None
    return folder / f"{hashlib.sha256(os.fsencode(spec)).hexdigest()[:32]}.json"


def _load(file: Path | None, key: str) -> ParsedSpec | None:
    """Return the cached result for a key; None if there is none, or it cannot be read."""
    if file is None:
        return None
    try:
        cached = decode(ParsedSpec, file.read_bytes(), "cached spec")
    except (OSError, StateCorrupt):
        return None
    return cached if cached.key == key else None


def _store(file: Path | None, parsed: ParsedSpec) -> None:
    if file is None:
        return
    with contextlib.suppress(OSError):  # it is parsed again next time
        descriptor, temporary = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(encode(parsed))
        Path(temporary).replace(file)
