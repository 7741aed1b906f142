"""Query a standalone cluster's masters: does one listen, and who holds the cores?

A suspended driver keeps its executors. While its connection is open, the master cannot notice that it does nothing.
"""

from __future__ import annotations

import json
import logging
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from milepost.epoch import counted
from milepost.errors import EnvironmentUnusable, SparkLost

_STANDALONE = "spark://"
_ANSWER_S = 30.0
"""Timeout of a master's answer on a busy machine."""

_LOG = logging.getLogger(__name__)


def require_master(url: str, *, served_before: bool) -> None:
    """Check that at least one master of a standalone cluster listens.

    Spark itself would give up after a minute and end its JVM.

    Args:
        served_before: whether this process's Spark has run there, which shows that the address is right.

    Raises:
        SparkLost: the master no longer listens.
        EnvironmentUnusable: nothing listens.
    """
    problems = []
    for address in _addresses(url):
        try:
            socket.create_connection(_host_and_port(address), _ANSWER_S).close()
            return
        except (OSError, ValueError) as error:
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    if problems and served_before:
        raise SparkLost(
            f"the Spark master at {url} no longer responds ({'; '.join(problems)}). Nothing was run.",
            hint="see the master's log; once it runs, run again",
        )
    if problems:
        raise EnvironmentUnusable(
            f"no Spark master answers at {url}: {'; '.join(problems)}. Nothing was run.",
            hint="start it, or correct `spark.master`",
        )


def who_has_cores(context: SparkContext) -> str:
    """Return which applications hold the cores of a session's cluster, as text."""
    for address in _addresses(context.master):
        try:
            state = _state_of(context, address)
            if state["status"] == "ALIVE":  # the leader; the others are standby
                return core_holders(state, context.applicationId)
        except (Py4JError, OSError, HTTPException, ValueError, KeyError) as error:  # maybe another Spark version
            _LOG.warning("the Spark master at %s does not report which applications hold its cores: %r", address, error)
    return "the master did not report which applications hold the cores"


def core_holders(state: Mapping[str, Any], own: str) -> str:
    """Return which applications hold the cores of a cluster, as text.

    Args:
        state: JSON status of a standalone master.
        own: application id of this run.
    """
    cores, workers = counted(state["cores"], "core"), counted(state["aliveworkers"], "worker")
    taken = [
        f"{app['cores']} by this run, whose executors have not begun"
        if app["id"] == own
        else f"{app['cores']} by {app['name']} ({app['id']}, of {app['user']}, since {app['submitdate']})"
        for app in state["activeapps"]
        if app["cores"]
    ]
    return f"{state['coresused']} of the {cores} of its {workers} are taken{': ' * bool(taken)}{', '.join(taken)}"


def is_standalone(master: str) -> bool:
    """Return whether `spark.master` is a standalone cluster."""
    return master.startswith(_STANDALONE)


def _addresses(url: str) -> Iterator[str]:
    """Yield the address of each master: `spark://a:7077,b:7077` has a:7077 and b:7077. None for other clusters."""
    if is_standalone(url):
        yield from url.removeprefix(_STANDALONE).split(",")


def _host_and_port(address: str) -> tuple[str, int]:
    """Return the host and port of an address. Raises ValueError without a port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _state_of(context: SparkContext, address: str) -> dict[str, Any]:
    """Return a master's JSON status. The port of its web UI is queried over Spark's RPC."""
    jvm: Any = context._jvm
    session: Any = context._jsc
    at = jvm.org.apache.spark.rpc.RpcAddress(*_host_and_port(address))
    master = session.sc().schedulerBackend().rpcEnv().setupEndpointRef(at, "Master")
    question = getattr(jvm.org.apache.spark.deploy.master, "MasterMessages$BoundPortsRequest$")
    ports = master.askSync(getattr(question, "MODULE$"), jvm.scala.reflect.ClassTag.Any())
    near = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    host, _, _ = address.rpartition(":")
    with near.open(f"http://{host}:{ports.webUIPort()}/json/", timeout=_ANSWER_S) as answer:
        state: dict[str, Any] = json.load(answer)
    return state
