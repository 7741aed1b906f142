"""A probe decides whether a Spark can run epochs: not its version, but what its executors have and do.

A job of the shape of an epoch (Python tasks, the exchange, Python tasks) is run once in a session, before anything of
the epoch; a warm epoch asks nothing. It asks as many tasks as run at once. An executor that joins later is not asked:
what it lacks, its tasks say.

It also says how much memory an epoch is planned for: the least that a worker was found to have, for all of them.
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
from pyspark.sql.pandas.types import from_arrow_schema

from milepost.epoch import CODE_HASH, EpochPlan
from milepost.jobspec.values import SparkRemote
from milepost.spark.driver.engines.engine import Engine
from milepost.spark.driver.executors.unusable import check_answer, too_little_memory, unusable
from milepost.spark.worker import probe_tasks
from milepost.spark.worker.worker_memory import RESERVED_BYTES, address_space_limit

LIBRARIES = ("numpy", "pandas", "psutil", "pyarrow", "pydantic")
"""What an epoch's tasks import, beside Spark and Milepost, which bring themselves."""

FOR_S3 = ("boto3", "tenacity")

PROBED = "spark.milepost.probed"
"""Setting of a session whose executors were found to have what is needed: a digest of that, and the least limit."""

_MEMORY, _CORES = "spark.executor.pyspark.memory", "spark.executor.cores"
_UNITS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_SIZE = re.compile(r"(\d+)(?:([kmgtp])b?|b)?")

_SCHEMA = from_arrow_schema(pa.schema([("subtask", pa.int32()), ("answer", pa.string())]))


def libraries_of(urls: Iterable[str]) -> tuple[str, ...]:
    """Return what tasks import that use these stores."""
    return (*LIBRARIES, *(FOR_S3 if any(url.startswith("s3:") for url in urls) else ()))


def libraries_of_plan(plan: EpochPlan) -> tuple[str, ...]:
    """Return what the tasks of an epoch import."""
    return libraries_of(store.url for store in (plan.job_store, *plan.sources.values(), *plan.sinks.values()))


def probe(engine: Engine, libraries: tuple[str, ...]) -> int | None:
    """Ask the executors of a session what tasks need, unless it was asked before.

    Returns: the least limit in bytes of a worker's memory; None: they have none.
    Raises:
        EnvironmentUnusable: something is missing.
        PySparkException, Py4JError, ConnectionError: the job failed; `unusable` says what that means.
    """
    if engine.is_own:
        limits = (address_space_limit(), _said_limit(engine))
        return min((limit for limit in limits if limit is not None), default=None)
    asked = hashlib.sha256(json.dumps([CODE_HASH, *libraries]).encode()).hexdigest()[:16]
    before, _, found = engine.setting(PROBED).partition(" ")
    if before == asked:
        return int(found) if found else None
    _said_limit(engine)
    answers = [json.loads(answer) for answer in sorted(_answers(engine.session, engine.slots, libraries))]
    for answer in answers:
        check_answer(engine.name, answer)
    least = min((answer["limit_bytes"] for answer in answers if answer["limit_bytes"] is not None), default=None)
    engine.session.conf.set(PROBED, f"{asked} {'' if least is None else least}")
    return least


def _said_limit(engine: Engine) -> int | None:
    """Return the limit that Spark is told to give its workers; None: no limit.

    Raises: EnvironmentUnusable: with so little none of them starts, and how it fails says nothing of memory.
    """
    said = _SIZE.fullmatch(engine.setting(_MEMORY).strip().lower())
    if said is None:
        return None
    size, unit = int(said[1]), said[2] or ("m" if said[0].isdigit() else "b")
    limit_bytes = (size << _UNITS[unit]) // int(engine.setting(_CORES) or 1)
    if limit_bytes < RESERVED_BYTES:
        raise too_little_memory(engine.name, limit_bytes)
    return limit_bytes


def _answers(session: SparkSession, tasks: int, libraries: tuple[str, ...]) -> set[str]:
    cloudpickle.register_pickle_by_value(probe_tasks)
    try:
        asked = session.range(0, tasks, 1, tasks).mapInArrow(probe_tasks.environment_probe(libraries), _SCHEMA)
        passed_on = asked.repartitionById(2, "subtask").mapInArrow(probe_tasks.identity_task, _SCHEMA)
        return {row.answer for row in passed_on.collect()}
    finally:
        cloudpickle.unregister_pickle_by_value(probe_tasks)


def check_server(
    remote: SparkRemote, conf: Mapping[str, str] = MappingProxyType({}), libraries: tuple[str, ...] = LIBRARIES
) -> str:
    """Return what answers at an address and can run epochs, in a few words.

    Raises: EnvironmentUnusable: nobody answers, or what answers cannot.
    """
    from milepost.spark.driver.engines.connect import open_unshared  # it needs gRPC, which the other kind does not

    engine = open_unshared(remote, conf)
    try:
        probe(engine, libraries)
        return f"Spark {engine.session.version} at {remote.url}, {engine.setting('spark.master')}"
    except PySparkException as error:
        raise engine.lost(error) or unusable(engine, error) from error
    finally:
        engine.session.stop()  # releases it: nobody comes back for this one
