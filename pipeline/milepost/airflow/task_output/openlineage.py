"""OpenLineage settings of a task, from Airflow's section `[openlineage]` as in Airflow's own provider."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import get_current_context

from milepost.airflow.compat import conf
from milepost.errors import InvalidRequest
from milepost.openlineage import LineageSettings, ParentRun, is_configured, is_switched_off

_SECTION = "openlineage"


def lineage_settings() -> LineageSettings | None:
    """Return how to send the events of a task's epoch; None: not configured, or switched off.

    Raises: InvalidRequest or another error: the section cannot be read.
    """
    if is_switched_off() or conf.getboolean(_SECTION, "disabled", fallback=False):
        return None
    config = _config()
    if config is None and not is_configured():
        return None
    context = get_current_context()
    run = context["dag_run"]
    due, clear_number = run.logical_date or run.run_after, getattr(run, "clear_number", 0)
    namespace = conf.get(_SECTION, "namespace", fallback="") or os.environ.get("OPENLINEAGE_NAMESPACE", "default")
    return LineageSettings(config, partial(_parent, (run.dag_id, run.run_id), namespace, due, clear_number))


def _parent(dag_run: tuple[str, str], namespace: str, due: Any, clear_number: int) -> ParentRun:
    from milepost.openlineage import parent_dag_run

    return parent_dag_run(dag_run, namespace, due, clear_number)


def _config() -> Mapping[str, Any] | None:
    """Return the client's configuration: that of `config_path`, else of `transport`; None: neither is set.

    Raises: InvalidRequest: it is not a mapping.
    """
    path = conf.get(_SECTION, "config_path", fallback="")
    if path:
        from ruamel.yaml import YAML

        return _mapping(f"the file {path} of [{_SECTION}] config_path", YAML(typ="safe").load(Path(path)))
    transport = conf.getjson(_SECTION, "transport", fallback={})
    return {"transport": _mapping(f"[{_SECTION}] transport", transport)} if transport else None


def _mapping(source: str, value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise InvalidRequest(f"{source}: expected a mapping, got {'nothing' if value is None else type(value).__name__}")
