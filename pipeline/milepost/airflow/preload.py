"""The scheduler imports once what tasks import, before its LocalExecutor forks what runs them.

A task of an epoch works for tenths of a second, and took longer to import what it works with. A fork has it already,
and shares its memory; so it is with all that a process finds out once: what plugins there are, and how records are
read. Where tasks begin in processes of their own (Celery, Kubernetes) nothing is imported ahead.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from airflow.listeners import hookimpl
from airflow.sdk.configuration import conf

log = logging.getLogger(__name__)

OFF = "MILEPOST_NO_PRELOAD"
"""Set to anything in the scheduler's environment: each task imports what it needs, as without a fork."""

_OWN = "milepost"
_HOME = Path(__file__).resolve().parents[1]
_LEFT_OUT = ("__main__", "airflow.page", "airflow.preload", "cli", "spark.local", "spark.worker", "testing")
"""Modules and rooms of ours that no task of an epoch uses."""

_LIBRARIES = (
    "pandas",
    "pyarrow.pandas_compat",
    "pyspark.sql.connect.session",
    "grpc._channel",
    "sqlglot.dialects.spark",
)
"""What is imported within functions, by us or by other libraries."""

_SCHEDULER = "airflow.cli.commands.scheduler_command"
_TASK = "TaskRunnerMarker"


class Preload:
    """The listener: Airflow tells it when a scheduler starts, and when the process of a task does."""

    def __init__(self) -> None:
        self._sources: frozenset[tuple[str, int, int]] | None = None

    @hookimpl
    def on_starting(self, component: object) -> None:
        """Import, in a scheduler that will fork; in a task, let go of modules whose sources have changed since.

        A task runs the code that lies on the disk when it starts, and records that code's hash (I13).
        """
        if type(component).__name__ == _TASK:
            if self._sources is not None and self._sources != frozenset(_sources()):
                forget()
        elif self._sources is None and _SCHEDULER in sys.modules and _forks():
            self._sources = frozenset(_sources())
            preload()


def preload() -> None:
    """Import what tasks import, as far as it is installed; nothing that fails keeps a scheduler from its work."""
    for name in (*_modules(), *_LIBRARIES):
        _tried(partial(import_module, name))
    _tried(_warm_up_jobs)
    _tried(_know_asset_uris)
    _tried(_know_plugins)
    _tried(_know_records)


def forget() -> None:
    """Have this process import our modules anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] == _OWN]:
        del sys.modules[name]


def _tried(step: Callable[[], object]) -> None:
    try:
        step()
    except ImportError as problem:  # of an extra that is not installed; a task that needs it says so
        log.debug("not ready ahead of the tasks: %s: %s", step, problem)
    except Exception as problem:  # noqa: BLE001 - whatever a library raises: a task that needs it says what is wrong
        log.warning("not ready ahead of the tasks, which do it anew each: %s: %r", step, problem)


def _modules() -> Iterator[str]:
    """Yield the names of our modules."""
    left_out = tuple(f"{_OWN}.{name}" for name in _LEFT_OUT)
    for path, _, _ in sorted(_sources()):
        parts = (_OWN, *Path(path).relative_to(_HOME).with_suffix("").parts)
        name = ".".join(parts).removesuffix(".__init__")
        if not name.startswith(left_out):
            yield name


def _warm_up_jobs() -> None:
    from milepost.jobmaster.jobmaster import warm_up

    warm_up()


def _know_asset_uris() -> None:
    """Have Airflow find out who knows the URIs of assets: it asks every provider there is."""
    from airflow.sdk import Asset

    Asset("s3://bucket/key")


def _know_plugins() -> None:
    """Have Airflow load the plugins of tasks, whose listeners each of them asks for: it looks at every package."""
    from airflow.sdk.listener import get_listener_manager

    get_listener_manager()


def _know_records() -> None:
    """Find out from types how records are read and written, which is half of what a short task works."""
    from milepost.codec.records import prepare_codec

    ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == _OWN]
    for kind in {kind for module in ours for kind in vars(module).values() if isinstance(kind, type)}:
        if is_dataclass(kind):
            _tried(partial(prepare_codec, kind))


def _forks() -> bool:
    """Whether the tasks of this scheduler begin as copies of it."""
    import multiprocessing

    local = any("LocalExecutor" in name for name in conf.get("core", "executor").split(","))
    forked = sys.platform == "linux" and multiprocessing.get_start_method(allow_none=True) in (None, "fork")
    return local and forked and not os.environ.get(OFF)


def _sources() -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of change of each source of ours."""
    folders = [str(_HOME)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.endswith(".py"):
                    facts = entry.stat()
                    yield entry.path, facts.st_size, facts.st_mtime_ns
