"""Probe whether a session's executors can run epochs, whatever their Spark version.

The probe is a job with the shape of an epoch: Python tasks, the exchange, Python tasks. It runs once per session,
before the first epoch, with as many tasks as run in parallel. An executor that joins later is not probed. If it lacks
something, its tasks fail.

The probe also returns the memory limit that an epoch is planned for: the lowest limit of all probed workers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from milepost.epoch import CODE_HASH, EpochPlan
from milepost.language import SparkRemote
from milepost.spark.driver.compat import exchange, from_arrow_schema
from milepost.spark.driver.engines.engine import Engine
from milepost.spark.driver.executors.unusable import check_answer, too_little_memory, unusable
from milepost.spark.worker import probe_tasks
from milepost.spark.worker.worker_memory import RESERVED_BYTES, address_space_limit

LIBRARIES = ("numpy", "pandas", "psutil", "pyarrow", "pydantic")
"""Libraries that an epoch's tasks import, apart from Spark and Milepost."""

FOR_S3 = ("boto3", "tenacity")

PROBED = "spark.milepost.probed"
"""Setting of a session after a successful probe: a digest of the requirements, a space, the lowest limit in bytes.

`3f1c9a72d04be815 1073741824` is a limit of 1 GiB. Without a limit the value ends after the space.
"""

_MEMORY, _CORES = "spark.executor.pyspark.memory", "spark.executor.cores"
_UNITS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_SIZE = re.compile(r"(\d+)(?:([kmgtp])b?|b)?")

_SCHEMA = from_arrow_schema(pa.schema([("subtask", pa.int32()), ("answer", pa.string())]))


def libraries_of(urls: Iterable[str]) -> tuple[str, ...]:
    """Return the libraries that tasks import to use stores with these URLs."""
    return (*LIBRARIES, *(FOR_S3 if any(url.startswith("s3:") for url in urls) else ()))


def libraries_of_plan(plan: EpochPlan) -> tuple[str, ...]:
    """Return the libraries that the tasks of an epoch import."""
    return libraries_of(store.url for store in (plan.job_store, *plan.sources.values(), *plan.sinks.values()))


def probe(engine: Engine, libraries: tuple[str, ...]) -> int | None:
    """Check that a session's executors have what tasks need, unless an earlier probe did.

    Returns:
        The lowest memory limit of a worker, in bytes; None if they have no limit.

    Raises:
        EnvironmentUnusable: something is missing.
        PySparkException, Py4JError, ConnectionError: the job failed. `unusable` explains the error.
    """
    if engine.is_own:
        limits = (address_space_limit(), _said_limit(engine))
        return min((limit for limit in limits if limit is not None), default=None)
    digest = hashlib.sha256(json.dumps([CODE_HASH, *libraries]).encode()).hexdigest()[:16]
    probed, _, found = engine.setting(PROBED).partition(" ")
    if probed == digest:
        return int(found) if found else None
    _said_limit(engine)
    answers = [json.loads(answer) for answer in sorted(_answers(engine.session, engine.slots, libraries))]
    for answer in answers:
        check_answer(engine.name, answer)
    least = min((answer["limit_bytes"] for answer in answers if answer["limit_bytes"] is not None), default=None)
    engine.session.conf.set(PROBED, f"{digest} {'' if least is None else least}")
    return least


def _said_limit(engine: Engine) -> int | None:
    """Return the memory limit of a worker by Spark's settings, in bytes; None: no limit.

    `spark.executor.pyspark.memory` divided by `spark.executor.cores`. A number without a unit is MiB::

        "2g", 4 cores    536870912
        "512", 1 core    536870912
        "600000kb"       614400000

    Raises:
        EnvironmentUnusable: no worker could start with so little, and the failure would not mention memory.
    """
    match = _SIZE.fullmatch(engine.setting(_MEMORY).strip().lower())
    if match is None:
        return None
    size, unit = int(match[1]), match[2] or ("m" if match[0].isdigit() else "b")
    limit_bytes = (size << _UNITS[unit]) // int(engine.setting(_CORES) or 1)
    if limit_bytes < RESERVED_BYTES:
        raise too_little_memory(engine.name, limit_bytes)
    return limit_bytes


def _answers(session: SparkSession, tasks: int, libraries: tuple[str, ...]) -> set[str]:
    cloudpickle.register_pickle_by_value(probe_tasks)
    try:
        probed = session.range(0, tasks, 1, tasks).mapInArrow(probe_tasks.environment_probe(libraries), _SCHEMA)
        exchanged = exchange(probed, 2).mapInArrow(probe_tasks.identity_task, _SCHEMA)
        return {row.answer for row in exchanged.collect()}
    finally:
        cloudpickle.unregister_pickle_by_value(probe_tasks)


def check_server(
    remote: SparkRemote, conf: Mapping[str, str] = MappingProxyType({}), libraries: tuple[str, ...] = LIBRARIES
) -> str:
    """Return a short description of the server at an address, after checking that it can run epochs.

    Raises:
        EnvironmentUnusable: there is no server, or it cannot run epochs.
    """
    from milepost.spark.driver.engines.connect import open_unshared  # imports gRPC, which classic does not need

    engine = open_unshared(remote, conf)
    try:
        probe(engine, libraries)
        return f"Spark {engine.session.version} at {remote.url}, {engine.setting('spark.master')}"
    except PySparkException as error:
        raise engine.lost(error) or unusable(engine, error) from error
    finally:
        engine.session.stop()  # release the session: it is not used again
