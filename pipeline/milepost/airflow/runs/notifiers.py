"""The notifiers that a spec names for failed runs, as callbacks of its DAGs.

Each is a class of Airflow's own kind (`airflow.sdk.BaseNotifier`), of any provider or of a team, named by its import
path. It is imported and made when the DAG is parsed, so that what is wrong with it is seen then; and made anew for each
failed run, whose facts its templates read as `milepost`.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from importlib import import_module
from typing import Any

from airflow.sdk import BaseNotifier

from milepost.airflow.page_urls import checkpoints_url, form_url, run_path
from milepost.airflow.runs.facts import facts_of, keys_of
from milepost.airflow.task_output.form_links import airflow_address
from milepost.errors import InvalidRequest
from milepost.jobspec.job.notifier_spec import NotifierSpec

_ACT = re.compile(r"__operate: ([a-z_]+)")
"""What a step to take says of the job's form."""


class OnFailure:
    """A callback of a DAG: has one notifier told of a failed run.

    Args:
        notifier: what the spec says of it.
    Raises: InvalidRequest: there is no such class, or it does not take these arguments.
    """

    def __init__(self, notifier: NotifierSpec) -> None:
        self._class, self._notifier = _found(notifier.notifier), notifier
        self._made()

    def __call__(self, context: Any) -> None:
        """Tell the notifier. Airflow logs what it raises, and goes on."""
        context["milepost"] = failed_run(context)
        self._made()(context)

    def _made(self) -> BaseNotifier:
        try:
            return self._class(**self._notifier.arguments)
        except Exception as error:  # whatever a class does while it is made
            raise InvalidRequest(
                f"airflow.on_failure: {self._notifier.notifier} does not take these arguments: {type(error).__name__}: "
                f"{error}."
            ) from error


def _found(name: str) -> type[BaseNotifier]:
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:  # whatever a module does while it is imported
        raise InvalidRequest(
            f"airflow.on_failure: {name} cannot be imported where DAGs are parsed: {type(error).__name__}: {error}.",
            hint="install its provider beside Airflow's DAG processor, or correct its name",
        ) from error
    if not (isinstance(found, type) and issubclass(found, BaseNotifier)):
        raise InvalidRequest(f"airflow.on_failure: {name} is no notifier: expected a class below BaseNotifier.")
    return found


def failed_run(context: Any) -> dict[str, Any]:
    """Return the facts of a failed run, by the names that templates use.

    Args:
        context: of a DAG's callback: with the task instance that failed, or, of a run that no task ended, without.
    """
    dag_id, run_id = context["dag"].dag_id, context["run_id"] if "run_id" in context else context["dag_run"].run_id
    facts = facts_of(dag_id, True, _left(dag_id, run_id, context.get("ti")))
    shown = "" if facts.checkpoint_id is None else f"/{facts.checkpoint_id}"
    act = _ACT.search(facts.step)
    return asdict(facts) | {
        "dag_id": dag_id,
        "run_id": run_id,
        "airflow_reason": str(context.get("reason") or ""),
        "run_url": airflow_address(run_path(dag_id, run_id)),
        "page_url": airflow_address(f"{checkpoints_url(dag_id)}{shown}"),
        "form_url": "" if act is None else airflow_address(form_url(facts.job, act[1])),
    }


def _left(dag_id: str, run_id: str, ti: Any) -> dict[tuple[str, str], Any]:
    from airflow.sdk.execution_time.xcom import XCom

    left = {}
    for task_id, key in keys_of(dag_id):
        index = ti.map_index if ti is not None and ti.task_id == task_id else None
        value = XCom.get_one(key=key, dag_id=dag_id, task_id=task_id, run_id=run_id, map_index=index)
        if value is not None:
            left[task_id, key] = value
    return left
