"""Run epochs on a Spark Connect server, which outlives this process.

The session id is derived from the job, its timeline and the hash of its code. So a new process reuses warm Python
workers, and edited code never runs in workers that imported its old version (I13). A new run can also interrupt the
orphaned jobs of a killed run, which Spark allows only in the same session.

The session is never released. The server does not accept the id of a closed session again, for example after it was
idle for too long. The next number in line then gives the next id.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import grpc
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.proto import ReleaseExecuteRequest, SparkConnectServiceStub
from pyspark.sql.connect.session import SparkSession as RemoteSession

from milepost.epoch import CODE_HASH, EpochPlan
from milepost.errors import EnvironmentUnusable, SparkLost
from milepost.extras import is_supported, supported_range
from milepost.language import TOKEN_VARIABLE, SparkRemote, session_settings
from milepost.spark.driver.compat import grpc_status, has_running_jobs
from milepost.spark.driver.engines.channel import ANSWER_S, Channel, require_server, server_lost
from milepost.spark.driver.engines.engine import epoch_tag
from milepost.spark.driver.engines.session import quiet_pyspark
from milepost.spark.driver.engines.shipped_code import FOLDER, parted, shipped_code

_LOG = logging.getLogger(__name__)

_RETRIES = 5
"""Retries of a call that the server does not answer; 17 s in total with Spark's backoff."""

_SPACE = uuid.UUID("5b0f4dd3-7f0e-4b7e-9c55-6f1d1d1c9a52")
_USER = "milepost"
_CLOSED = "INVALID_HANDLE.SESSION_CLOSED"

_MAX_TOKENS_BACK = 200
"""How many tokens back an orphaned job may still run. An older process has ended or has noticed that it is fenced."""

_UNCHECKED_TOKENS_BACK = 8
"""How many tokens back jobs are interrupted on a server that cannot say whether one runs. Each is a call of 3 ms."""

_OURS = "spark.milepost.settings"
"""Session setting: names of the spec's settings that were applied. One that the spec no longer has is unset."""

_SENT = "spark.milepost.sent"
"""Session setting: hash of the code that was sent to the session, along with the spec's archives."""

_SESSION_LOST = ("INVALID_HANDLE.", "SESSION_CHANGED", "NO_ACTIVE_SESSION")


class RemoteEngine:
    """A session on a Spark Connect server.

    Attributes:
        owner: address of the server, and the job, timeline and code that own the session.
    """

    def __init__(self, session: RemoteSession, remote: SparkRemote, owner: str) -> None:
        self.session = session
        self.owner = owner
        self._remote = remote
        self._settings: Mapping[str, str] = {}

    @property
    def name(self) -> str:
        return f"the Spark Connect server at {self._remote.url}"

    def is_on(self, remote: SparkRemote) -> bool:
        """Return whether its server is the one at an address."""
        return self._remote.url == remote.url

    @property
    def is_own(self) -> bool:
        return False

    @property
    def is_here(self) -> bool:
        return self._remote.is_loopback and self.setting("spark.master").startswith("local[")

    def setting(self, key: str) -> str:
        return self._settings.get(key, "")

    @property
    def slots(self) -> int:
        """The default number of splits of a range. Spark Connect has no call that returns the parallelism."""
        plan = self.session.range(1)._explain_string()
        match = re.search(r"splits=(\d+)", plan)
        assert match is not None, f"a range without its splits: {plan}"
        return int(match[1])

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        self.session.addTag(tag)
        try:
            yield
        finally:
            self.session.removeTag(tag)

    def interrupt(self, tag: str) -> None:
        try:
            self.session.interruptTag(tag)
        except PySparkException as error:  # storage fences a running job; a lost server runs none
            _LOG.warning("the jobs of %s on %s were not interrupted: %s", tag, self._remote.url, error)

    def apply(self, conf: Mapping[str, str]) -> None:
        """Send the code to the session, apply a spec's settings, and unset those that the spec no longer has.

        Raises:
            EnvironmentUnusable: a setting can only be set when the server starts.
        """
        conf, archives = parted(conf)
        present = self._settings = self.session.conf.getAll
        if present.get(_SENT) != CODE_HASH:
            for archive in (f"{shipped_code().as_uri()}#{FOLDER}", *(archive.text for archive in archives)):
                self.session.addArtifacts(archive, archive=True)
            self.session.conf.set(_SENT, CODE_HASH)
        required = {**conf, **session_settings()}
        before = present.get(_OURS, "").split(",") if present.get(_OURS) else []
        changed = {key: value for key, value in required.items() if present.get(key) != value}
        fixed = sorted(key for key in changed if key in conf and not self.session.conf.isModifiable(key))
        if fixed:
            raise EnvironmentUnusable(
                f"spark.conf: {', '.join(fixed)} cannot be set on the running Spark Connect server at "
                f"{self._remote.url}, which has another value. Nothing was run.",
                hint="start the server with it, or remove it from `spark.conf`",
                settings=fixed,
            )
        for key in before:
            if key not in required:
                self.session.conf.unset(key)
        names = ",".join(sorted(conf))
        if names != ",".join(before):
            self.session.conf.set(_OURS, names)
        for key, value in changed.items():
            self.session.conf.set(key, value)

    def interrupt_orphans(self, plan: EpochPlan) -> None:
        """Interrupt the jobs that older attempts of this timeline left running, never one with a newer token.

        Token 7 interrupts the jobs tagged 6, 5, 4, ... until nothing runs. Storage fences these jobs anyway, but they
        would hold slots until the server notices that their client has disconnected. Before Spark 4.2 a server cannot
        say whether a job runs, so the tags of the last few tokens are interrupted unchecked.
        """
        for back in range(1, min(_MAX_TOKENS_BACK, plan.token)):
            running = has_running_jobs(self.session)
            if running is False or (running is None and back > _UNCHECKED_TOKENS_BACK):
                return
            self.interrupt(epoch_tag(plan, type(plan.token)(plan.token - back)))

    def _works(self) -> bool:
        """Return whether the server can still run jobs. While it stops, it answers but refuses all work."""
        try:
            return self.slots > 0
        except PySparkException:
            return False

    def why_starved(self) -> str | None:
        return None  # Spark Connect has no call that lists executors

    def lost(self, error: Exception) -> SparkLost | None:
        condition = (error.getCondition() or "") if isinstance(error, PySparkException) else ""
        code = grpc_status(error) if isinstance(error, SparkConnectGrpcException) else None
        if condition.startswith(_SESSION_LOST):
            what = "has lost this job's session"
        elif code is grpc.StatusCode.UNAVAILABLE or not self._works():
            what = "no longer responds"
        else:
            return None
        return server_lost(self._remote, what, "Nothing of this epoch is visible.")


def open_remote(plan: EpochPlan, kept: RemoteEngine | None) -> RemoteEngine:
    """Return the session of a plan's job on the spec's server. Its settings are applied, its orphans interrupted.

    Args:
        kept: an open session of this process. It is reused if it belongs to the plan's job and is still alive.

    Raises:
        SparkLost: the server stopped answering after an epoch of this process, or during this call.
        EnvironmentUnusable: nothing answers, the token is wrong, or a setting of the spec can only be set when the
            server starts.
    """
    assert plan.server is not None
    remote = plan.server
    owner = "\0".join((remote.url, *_owner(plan)))
    if kept is not None and kept.owner == owner:
        try:
            return _ready(kept, plan)
        except PySparkException:
            _LOG.info("the session on %s was lost; opening another", remote.url)
    if kept is not None:
        kept.session.client.close()
    quiet_pyspark()
    os.environ.pop("SPARK_CONNECT_RELEASE_SESSION_ON_EXIT", None)
    require_server(remote, served_before=kept is not None and kept.is_on(remote))
    session = _session_of(remote, plan)
    engine = RemoteEngine(session, remote, owner)
    try:
        return _ready(engine, plan)
    except PySparkException as error:
        raise engine.lost(error) or _refused(remote, error) from error


def open_unshared(remote: SparkRemote, conf: Mapping[str, str]) -> RemoteEngine:
    """Return a new session that belongs to no job. The caller closes it. Raises as `open_remote`."""
    quiet_pyspark()
    require_server(remote)
    engine = RemoteEngine(_opened(remote, str(uuid.uuid4())), remote, "")
    try:
        engine.apply(conf)
    except PySparkException as error:
        raise engine.lost(error) or _refused(remote, error) from error
    return engine


def _ready(engine: RemoteEngine, plan: EpochPlan) -> RemoteEngine:
    engine.apply(plan.spec.spark.conf)
    engine.interrupt_orphans(plan)
    return engine


class _Closed(Exception):
    """The server has closed the session and never accepts its id again."""


def _session_of(remote: SparkRemote, plan: EpochPlan) -> RemoteSession:
    """Return a plan's first session that the server has not closed, by number."""
    number = 0
    while True:
        try:
            return _opened(remote, session_id(plan, number))
        except _Closed:  # rare: the first session is nearly always open
            number = _first_open(remote, plan, number + 1)


def _first_open(remote: SparkRemote, plan: EpochPlan, above: int) -> int:
    """Return a session number from `above` on that is not closed, while the number before it is closed.

    Numbers are used in order, so the closed ones come first. Galloping finds an unused number, bisection the first one.
    If 0 to 9 are closed and `above` is 1::

        gallop:  1 closed, 3 closed, 7 closed, 15 unused
        bisect:  11 unused, 9 closed, 10 unused           returns 10

    The query opens no session, which would otherwise stay open in the middle of the line. If the server has forgotten
    its oldest sessions, the search may end at another boundary, which is just as good.
    """
    builder = Channel(remote, session_id(plan, above))
    with builder.toChannel() as channel:
        server = SparkConnectServiceStub(channel)
        closed, step = above - 1, 1
        while _is_closed(server, builder, session_id(plan, closed + step)):
            closed, step = closed + step, step * 2
        unused = closed + step
        while unused - closed > 1:
            between = (closed + unused) // 2
            if _is_closed(server, builder, session_id(plan, between)):
                closed = between
            else:
                unused = between
        return unused


def _is_closed(server: SparkConnectServiceStub, builder: Channel, session: str) -> bool:
    """Return whether the server has closed a session, by its answer to the release of an unknown operation.

    This call of Spark Connect opens no session, and the operation that it releases does not exist.
    """
    request = ReleaseExecuteRequest(
        session_id=session,
        user_context={"user_id": _USER},
        operation_id=str(uuid.uuid4()),
        release_all=ReleaseExecuteRequest.ReleaseAll(),
    )
    try:
        server.ReleaseExecute(request, metadata=builder.metadata(), timeout=ANSWER_S)
    except grpc.RpcError as error:  # opening the session reports any other error
        return _CLOSED in str(error)
    return False


def _opened(remote: SparkRemote, session: str) -> RemoteSession:
    """Open the session with an id. Raises SparkLost, EnvironmentUnusable, _Closed."""
    opened = RemoteSession(Channel(remote, session), userId=_USER)
    opened.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
    try:
        version = opened.version  # the first call opens it
    except PySparkException as error:
        opened.client.close()
        if error.getCondition() == _CLOSED:
            raise _Closed from error
        raise _refused(remote, error) from error
    if not is_supported("pyspark", version):
        opened.client.close()
        raise EnvironmentUnusable(
            f"the Spark Connect server at {remote.url} runs Spark {version}: expected {supported_range('pyspark')}. "
            "Nothing was run.",
            hint="start a server of a supported version",
            remote=remote.url,
        )
    # If the interpreter's last garbage collection closed it during a call, the close would never return, because the
    # thread that ends the call no longer exists.
    atexit.register(opened.client.close)
    return opened


def session_id(plan: EpochPlan, number: int) -> str:
    """Return the id of a plan's session on any server. `number` counts the sessions that servers have closed."""
    return str(uuid.uuid5(_SPACE, "\0".join((*_owner(plan), str(number)))))


def _owner(plan: EpochPlan) -> tuple[str, ...]:
    root = plan.job_store
    sent = (archive.identity for archive in parted(plan.spec.spark.conf)[1])
    return (root.url, root.endpoint_url or "", str(plan.timeline), plan.code_hash, *sent)


def _refused(remote: SparkRemote, error: PySparkException) -> EnvironmentUnusable:
    code = grpc_status(error)
    if code is grpc.StatusCode.UNAVAILABLE:
        return server_lost(remote, "disconnected before the session was open")
    if code is grpc.StatusCode.UNAUTHENTICATED:
        given = "the token was refused" if remote.token or os.environ.get(TOKEN_VARIABLE) else "it requires a token"
        ours = TOKEN_VARIABLE if remote.conn_id is None else f"the password of Connection {remote.conn_id}"
        return EnvironmentUnusable(
            f"the Spark Connect server at {remote.url} rejected this process: {given}. Nothing was run.",
            hint=f"set {ours} to the server's token",
            remote=remote.url,
        )
    lines = str(error).strip().splitlines()
    return EnvironmentUnusable(
        f"the Spark Connect server at {remote.url} cannot be used: {lines[0] if lines else type(error).__name__}. "
        "Nothing was run.",
        hint="see the server's log",
        remote=remote.url,
    )
