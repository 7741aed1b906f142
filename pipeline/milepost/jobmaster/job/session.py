"""Sessions: one Airflow DAG run or one CLI run (I3). The death of a CLI run can be provable (I10)."""

from __future__ import annotations

import getpass
import os
import re
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path

from milepost.protocol.records import Actor, Decision, Holder, Run, SessionId

_PROC = Path("/proc")
_MAX_NAME = 60
_CREATE_TIME_TOLERANCE_MS = 1000
"""Creation times are computed from boot time and ticks, so two readings can differ by rounding."""


@dataclass(frozen=True, slots=True)
class Session:
    """The identity under which an epoch runs.

    Attributes:
        session_id: the same in every task and try of one Airflow run.
        holder: the current process.
        person: user of the operating system, or who triggered the Airflow run; "" if that is unknown.
    """

    session_id: SessionId
    holder: Holder
    run: Run
    person: str = ""

    @property
    def actor(self) -> Actor:
        """Who acts, for the history."""
        kind = "cli" if self.run.dag_id is None else "airflow"
        return Actor(kind, self.person or None, dag_id=self.run.dag_id, run_id=self.run.run_id)

    def decision(self, why: str = "") -> Decision:
        """Return a decision of this session's actor, which is that of every act whose caller passes none.

        Args:
            why: the command, or what made the act necessary; "" if unknown.
        """
        return Decision(self.actor, why)

    @classmethod
    def cli(cls) -> Session:
        """Return a new session for this process."""
        person = user_name()
        return cls(SessionId(f"cli:{person}/{uuid.uuid4()}"), _this_process("cli"), Run(), person)

    @classmethod
    def airflow(
        cls,
        dag_id: str,
        run_id: str,
        run_type: str,
        logical_date: str | None,
        bundle: str | None = None,
        person: str = "",
    ) -> Session:
        """Return the session of an Airflow DAG run; arguments as in `Run`. person: who triggered it."""
        run = Run(dag_id, run_id, run_type, logical_date, bundle)
        return cls(SessionId(f"airflow:{dag_id}/{run_id}"), _this_process("airflow"), run, person)


def user_name() -> str:
    """Return the user of this process, as one word. A container may have no name for it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):
        name = ""
    return re.sub(r"[^\w.@-]", "_", name)[:_MAX_NAME] or f"uid-{os.getuid()}"


def _this_process(kind: str) -> Holder:
    import psutil

    process = psutil.Process()
    return Holder(kind, socket.gethostname(), process.pid, round(process.create_time() * 1000), machine_id())


def machine_id() -> str | None:
    """Return an id of the boot and pid namespace of this process; None where the system has no `/proc`.

    Pids are comparable only between processes with the same id. A host name does not suffice: containers can share one
    and have separate pids.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def is_provably_dead(holder: Holder) -> bool:
    """Return whether the holder is a CLI run on this machine whose process has ended. False proves nothing."""
    return _is_cli_run_here(holder) and not _is_running(holder)


def is_provably_alive(holder: Holder) -> bool:
    """Return whether the holder is a CLI run on this machine whose process is running. False proves nothing."""
    return _is_cli_run_here(holder) and _is_running(holder)


def _is_cli_run_here(holder: Holder) -> bool:
    return holder.kind == "cli" and holder.machine is not None and holder.machine == machine_id()


def _is_running(holder: Holder) -> bool:
    import psutil

    try:
        process = psutil.Process(holder.pid)
        is_same = abs(round(process.create_time() * 1000) - holder.create_time_ms) <= _CREATE_TIME_TOLERANCE_MS
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
