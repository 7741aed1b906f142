"""Failure callbacks of DAGs that call the notifiers named in a spec.

A notifier is a subclass of `airflow.sdk.BaseNotifier`, of a provider or of the user, named by its import path. It is
imported and instantiated when the DAG is parsed, so that errors show then, and instantiated again for each failed run.
Its templates read the run's facts as `milepost`.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from importlib import import_module
from typing import Any

from airflow.sdk import BaseNotifier

from milepost.airflow.page_urls import checkpoints_url, form_url, run_path
from milepost.airflow.runs.facts import run_facts, xcom_keys
from milepost.airflow.task_output.form_links import airflow_address
from milepost.errors import InvalidRequest
from milepost.jobspec.job import NotifierSpec

_ACT = re.compile(r"__operate: ([a-z_]+)")
"""The act in a step of the form "trigger <job>__operate: <act>"."""


class OnFailure:
    """A DAG callback that calls one notifier for a failed run.

    Args:
        notifier: its section of the spec.
    Raises: InvalidRequest: there is no such class, or it does not accept these arguments.
    """

    def __init__(self, notifier: NotifierSpec) -> None:
        self._class, self._notifier = _import_notifier(notifier.notifier), notifier
        self._create()

    def __call__(self, context: Any) -> None:
        """Call the notifier. Airflow logs what it raises, and continues."""
        context["milepost"] = failed_run(context)
        self._create()(context)

    def _create(self) -> BaseNotifier:
        try:
            return self._class(**self._notifier.arguments)
        except Exception as error:  # a constructor may raise anything
            raise InvalidRequest(
                f"airflow.on_failure: {self._notifier.notifier} does not accept these arguments: "
                f"{type(error).__name__}: {error}."
            ) from error


def _import_notifier(name: str) -> type[BaseNotifier]:
    module, _, attribute = name.rpartition(".")
    try:
        notifier = getattr(import_module(module), attribute)
    except Exception as error:  # an import may raise anything
        raise InvalidRequest(
            f"airflow.on_failure: {name} cannot be imported where DAGs are parsed: {type(error).__name__}: {error}.",
            hint="install its provider where Airflow's DAG processor runs, or correct its name",
        ) from error
    if not (isinstance(notifier, type) and issubclass(notifier, BaseNotifier)):
        raise InvalidRequest(f"airflow.on_failure: {name} is not a notifier: expected a subclass of BaseNotifier.")
    return notifier


def failed_run(context: Any) -> dict[str, Any]:
    """Return the facts of a failed run, by the names that templates use.

    Args:
        context: of a DAG callback. It has no task instance if the run failed without one, for example by a timeout.
    """
    dag_id, run_id = context["dag"].dag_id, context["run_id"] if "run_id" in context else context["dag_run"].run_id
    facts = run_facts(dag_id, True, _pull_xcoms(dag_id, run_id, context.get("ti")))
    checkpoint = "" if facts.checkpoint_id is None else f"/{facts.checkpoint_id}"
    act = _ACT.search(facts.step)
    return asdict(facts) | {
        "dag_id": dag_id,
        "run_id": run_id,
        "airflow_reason": str(context.get("reason") or ""),
        "run_url": airflow_address(run_path(dag_id, run_id)),
        "page_url": airflow_address(f"{checkpoints_url(dag_id)}{checkpoint}"),
        "form_url": "" if act is None else airflow_address(form_url(facts.job, act[1])),
    }


def _pull_xcoms(dag_id: str, run_id: str, ti: Any) -> dict[tuple[str, str], Any]:
    from airflow.sdk.execution_time.xcom import XCom

    xcoms = {}
    for task_id, key in xcom_keys(dag_id):
        index = ti.map_index if ti is not None and ti.task_id == task_id else None
        value = XCom.get_one(key=key, dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=index)
        if value is not None:
            xcoms[task_id, key] = value
    return xcoms
