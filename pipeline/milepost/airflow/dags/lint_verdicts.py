"""Lint verdicts are kept by the hash of spec and code, so that parsing DAG files stays cheap."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from milepost.epoch.code_hash import CODE_HASH
from milepost.epoch.private_cache import private_cache
from milepost.protocol.records.errors import EnvironmentUnusable, InvalidRequest
from milepost.spec.load.load import LoadedJob

log = logging.getLogger(__name__)


def require_linted(job: LoadedJob) -> None:
    """Refuse a spec whose graph `lint` refuses: its SQL, columns, types, or what follows what.

    A verdict that is not kept, or cannot be, is made: a parser of SQL is imported, no engine and no user code.

    Raises:
        InvalidRequest: all problems, with file and line.
    """
    key = hashlib.sha256("\0".join((CODE_HASH, version("sqlglot"), str(job.path), job.text)).encode()).hexdigest()
    file = _file(job.path)
    problem = _kept(file, key)
    if problem is None:
        problem = _made(job)
        _keep(file, key, problem)
    if problem:
        raise InvalidRequest(problem)


def _made(job: LoadedJob) -> str:
    try:
        job.graph()
    except InvalidRequest as error:
        return error.message
    return ""


def _file(spec: Path) -> Path | None:
    """Return where a spec's verdict lies, one file per spec; None: this user has no folder of its own."""
    try:
        folder = private_cache() / "lint"
        folder.mkdir(mode=0o700, exist_ok=True)
    except (EnvironmentUnusable, OSError) as error:
        log.debug("no folder for verdicts of lint: %s", error)
        return None
    return folder / f"{hashlib.sha256(str(spec).encode()).hexdigest()[:32]}.json"


def _kept(file: Path | None, key: str) -> str | None:
    """Return the problem that is kept under a key, "" for none; None: nothing is kept, or nothing that can be read."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8")) if file is not None else None
    except (OSError, ValueError):
        return None
    if not isinstance(kept, dict) or kept.get("key") != key or not isinstance(kept.get("problem"), str):
        return None
    return str(kept["problem"])


def _keep(file: Path | None, key: str, problem: str) -> None:
    if file is None:
        return
    with contextlib.suppress(OSError):  # it is linted again next time
        descriptor, temporary = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump({"key": key, "problem": problem}, stream)
        Path(temporary).replace(file)
