"""Lineage settings say whether events are sent and under which run, by OpenLineage's own means.

To ask costs some looks at the environment: what sends is imported only where the answer is yes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from milepost.errors import CheckpointError

_LOG = logging.getLogger(__name__)

PARENT_VARIABLE = "OPENLINEAGE_PARENT_ID"
"""`namespace/job/run id` of the run that this process is part of, as other integrations take it."""


@dataclass(frozen=True, slots=True)
class ParentRun:
    """A run that epochs are part of, as OpenLineage names it.

    Attributes:
        dag_run: DAG id and run id of Airflow's run that it is: it is the parent of that run's epochs alone. None: of
            whatever this process runs.
    """

    namespace: str
    job: str
    run_id: str
    dag_run: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class LineageSettings:
    """How events are sent.

    Attributes:
        config: what OpenLineage's client is given beside its own files and variables.
        parent: asked once, when the first event is made; its answer None: there is none.
    """

    config: Mapping[str, Any] | None = None
    parent: Callable[[], ParentRun | None] = lambda: None


def nowhere() -> LineageSettings | None:
    """Return that no events are sent, whatever is configured."""
    return None


def settings_of_environment() -> LineageSettings | None:
    """Return how events are sent by OpenLineage's variables and files; None: they are not, or it is switched off."""
    return None if is_switched_off() or not is_configured() else LineageSettings(parent=_parent)


def asked(settings: Callable[[], LineageSettings | None]) -> LineageSettings | None:
    """Return what is configured; None, and a warning, where that cannot be read: no job fails by it."""
    try:
        return settings()
    except Exception as error:  # noqa: BLE001 - whatever is wrong there, the job is not
        said = error.message if isinstance(error, CheckpointError) else type(error).__name__  # others may quote secrets
        _LOG.warning("no lineage is sent: its configuration cannot be read: %s", said)
        return None


def is_switched_off() -> bool:
    """Return whether `OPENLINEAGE_DISABLED` is true, which goes before all else."""
    return os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true"


def is_configured() -> bool:
    """Return whether a file or a variable of OpenLineage's says where events go."""
    if os.environ.get("OPENLINEAGE_URL") or any(
        name.startswith("OPENLINEAGE__TRANSPORT") and text for name, text in os.environ.items()
    ):
        return True
    named = os.environ.get("OPENLINEAGE_CONFIG")
    return any(path.is_file() for path in (*([Path(named)] if named else []), *_usual_files()))


def _usual_files() -> list[Path]:
    home = os.environ.get("HOME")
    usual = [Path("openlineage.yml")]
    return [*usual, Path(home) / ".openlineage" / "openlineage.yml"] if home else usual


def _parent() -> ParentRun | None:
    text = os.environ.get(PARENT_VARIABLE, "")
    if not text:
        return None
    try:
        namespace, job, run_id = text.rsplit("/", 2)
        return ParentRun(namespace, job, str(UUID(run_id)))
    except ValueError:
        _LOG.warning("%s is not namespace/job/run id: epochs are sent without a parent", PARENT_VARIABLE)
        return None
