"""Errors for executors that lack a library, a version, the code or Python itself."""

from __future__ import annotations

import re
import sys

from milepost.epoch import CODE_HASH
from milepost.errors import EnvironmentUnusable
from milepost.spark.driver.engines.engine import Engine
from milepost.spark.worker.worker_memory import RESERVED_BYTES

_MISSING = re.compile(r"No module named '([\w.]+)'")
_THEIR_PYTHON = re.compile(r"Python in worker has different version: ([\d.]+)")
_RAISED = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception): [^\n]+")
_BY_ARCHIVE = (
    "install what is missing there, or send it as an archive: `spark.archives` and `spark.pyspark.python` below "
    "`spark.conf` (how-to/cluster.md)"
)


def unusable(engine: Engine, error: Exception) -> EnvironmentUnusable:
    """Return the error that explains why the probe's job failed."""
    text = str(error)
    if theirs := _THEIR_PYTHON.search(text):
        ours = ".".join(map(str, sys.version_info[:2]))
        return EnvironmentUnusable(
            f"the Python of the executors of {engine.name} has another version than this process's: expected {ours}, "
            f"got {theirs[1]}. Nothing was run.",
            hint="run the epoch in their version, or name an interpreter of this one that they have: "
            "`spark.pyspark.python` below `spark.conf`",
        )
    if missing := _MISSING.search(text):
        return _lacking(f"the executors of {engine.name}", [missing[1].split(".")[0]])
    lines = [*_RAISED.findall(text), *text.splitlines(), type(error).__name__]
    return EnvironmentUnusable(
        f"{engine.name} does not run what an epoch is made of: expected the end of a job of Python tasks and an "
        f"exchange, got {lines[0].strip()[:500]}. Nothing was run.",
        hint="see Spark's log there; how-to/cluster.md says what executors need",
    )


def check_answer(name: str, answer: dict[str, object]) -> None:
    """Check one executor's answer to the probe.

    Args:
        name: name of its Spark, for messages.
        answer: the answer of `probe_tasks.environment_probe`.

    Raises:
        EnvironmentUnusable: the executor cannot run an epoch's tasks.
    """
    who = f"an executor of {name} (host {answer['host']}, {answer['python']})"
    if missing := answer["missing"]:
        assert isinstance(missing, list)
        raise _lacking(who, missing)
    if answer["failed"] is not None:
        raise EnvironmentUnusable(
            f"{who} cannot do what tasks do: expected rows and a run of state, got {answer['failed']}. Nothing was "
            "run.",
            hint="bring its libraries to the versions of this environment, or send these as an archive "
            "(`spark.archives`; how-to/cluster.md)",
        )
    if answer["code"] != CODE_HASH:
        raise EnvironmentUnusable(
            f"{who} imports other code than what was sent to it: expected Milepost {CODE_HASH[:12]}, got "
            f"{str(answer['code'])[:12]}. Nothing was run.",
            hint="its Python must look into the directory that it starts in first: PYTHONSAFEPATH is not to be set",
        )


def too_little_memory(name: str, limit_bytes: int) -> EnvironmentUnusable:
    """Return the error for Python workers with a memory limit that is too low for their imports."""
    return EnvironmentUnusable(
        f"the Python workers of {name} cannot begin: expected at least {RESERVED_BYTES >> 20} MiB of memory for each, "
        f"which interpreter and libraries take, got {limit_bytes >> 20} MiB. Nothing was run.",
        hint="raise `spark.executor.pyspark.memory` (each worker gets it divided by `spark.executor.cores`; at least "
        "512m), or leave it out",
        limit_bytes=limit_bytes,
    )


def _lacking(who: str, missing: list[str]) -> EnvironmentUnusable:
    return EnvironmentUnusable(
        f"{', '.join(missing)} cannot be imported by {who}: expected what an epoch's tasks need, got no module of that "
        "name. Nothing was run.",
        hint=_BY_ARCHIVE,
        missing=missing,
    )
