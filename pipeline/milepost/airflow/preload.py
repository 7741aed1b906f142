"""Import the modules of tasks in the scheduler, before its LocalExecutor forks the task processes.

A task of an epoch takes tenths of a second, less than its imports. A forked process has the modules already and shares
their memory. The same holds for other per-process work: the list of plugins, and the codecs of records. Executors that
start new processes (Celery, Kubernetes) do not benefit, so nothing is imported there.

Every Airflow process imports this module. What only a scheduler needs is imported in functions.
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

log = logging.getLogger(__name__)

OFF = "MILEPOST_NO_PRELOAD"
"""Environment variable of the scheduler that switches the preload off, whatever its value."""

_OWN = "milepost"
_HOME = Path(__file__).resolve().parents[1]
_EXCLUDED = ("__main__", "airflow.page", "airflow.preload", "cli", "spark.local", "spark.worker", "testing")
"""Our modules and packages that no task of an epoch uses."""

_LIBRARIES = (
    "pandas",
    "pyarrow.pandas_compat",
    "pyspark.sql.connect.session",
    "grpc._channel",
    "sqlglot.dialects.spark",
)
"""Modules that functions import lazily, in our code or in libraries."""

_SCHEDULER = "airflow.cli.commands.scheduler_command"
_TASK = "TaskRunnerMarker"


class Preload:
    """Listener for the start of a scheduler and of a task process."""

    def __init__(self) -> None:
        self._sources: frozenset[tuple[str, int, int]] | None = None

    @hookimpl
    def on_starting(self, component: object) -> None:
        """Preload in a scheduler that forks. In a task, discard our modules if their sources have changed.

        A task runs the code that is on disk when it starts, and records the hash of that code (I13).
        """
        if type(component).__name__ == _TASK:
            if self._sources is not None and self._sources != frozenset(_sources()):
                forget()
        elif self._sources is None and _SCHEDULER in sys.modules and _forks():
            self._sources = frozenset(_sources())
            preload()


def preload() -> None:
    """Import the installed modules that tasks need. An error never stops the scheduler."""
    for name in (*_modules(), *_LIBRARIES):
        _attempt(partial(import_module, name))
    _attempt(_warm_up_jobs)
    _attempt(_load_asset_handlers)
    _attempt(_load_listeners)
    _attempt(_prepare_codecs)


def forget() -> None:
    """Remove our modules, so that this process imports them again."""
    for name in [name for name in sys.modules if name.partition(".")[0] == _OWN]:
        del sys.modules[name]


def _attempt(step: Callable[[], object]) -> None:
    try:
        step()
    except ImportError as error:  # an extra that is not installed; a task that needs it reports that
        log.debug("not preloaded: %s: %s", step, error)
    except Exception as error:  # noqa: BLE001 - a library may raise anything; a task that needs it reports the error
        log.warning("not preloaded, so each task does it itself: %s: %r", step, error)


def _modules() -> Iterator[str]:
    """Yield the names of our modules."""
    excluded = tuple(f"{_OWN}.{name}" for name in _EXCLUDED)
    for path, _, _ in sorted(_sources()):
        parts = (_OWN, *Path(path).relative_to(_HOME).with_suffix("").parts)
        name = ".".join(parts).removesuffix(".__init__")
        if not name.startswith(excluded):
            yield name


def _warm_up_jobs() -> None:
    from milepost.jobmaster import warm_up

    warm_up()


def _load_asset_handlers() -> None:
    """Make Airflow load the handlers of asset URIs, for which it searches every provider."""
    from airflow.sdk import Asset

    Asset("s3://bucket/key")


def _load_listeners() -> None:
    from milepost.airflow.compat import load_listeners

    load_listeners()


def _prepare_codecs() -> None:
    """Build the codecs of our records from their types, which takes half the time of a short task."""
    from milepost.codec import prepare_codec

    ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == _OWN]
    for kind in {kind for module in ours for kind in vars(module).values() if isinstance(kind, type)}:
        if is_dataclass(kind):
            _attempt(partial(prepare_codec, kind))


def _forks() -> bool:
    """Return whether this scheduler forks its task processes."""
    import multiprocessing

    from milepost.airflow.compat import conf

    local = any("LocalExecutor" in name for name in conf.get("core", "executor").split(","))
    forked = sys.platform == "linux" and multiprocessing.get_start_method(allow_none=True) in (None, "fork")
    return local and forked and not os.environ.get(OFF)


def _sources() -> Iterator[tuple[str, int, int]]:
    """Yield path, size and modification time of each of our source files."""
    folders = [str(_HOME)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.endswith(".py"):
                    facts = entry.stat()
                    yield entry.path, facts.st_size, facts.st_mtime_ns
