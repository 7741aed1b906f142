"""End-to-end scenarios that share one start of Airflow, and whose runs go on at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from milepost_testkit.airflow.airflow_instance import AirflowInstance

Scenario: TypeAlias = Callable[[AirflowInstance, pytest.FixtureRequest], Iterator[Any]]
"""Writes its specs up to its first `yield`. Once Airflow is up it begins its runs and yields what its test gets."""

MARK = "scenario"


class Scenarios:
    """The scenarios of the tests that a session runs. Tests name theirs with a mark and get it from a fixture."""

    def __init__(self, airflow: AirflowInstance, request: pytest.FixtureRequest) -> None:
        marks = (mark for item in request.session.items for mark in item.iter_markers(MARK))
        self._started = {mark.kwargs["begins"]: mark.kwargs["begins"](airflow, request) for mark in marks}
        self._begun: dict[Scenario, Any] = {}

    def prepare(self) -> None:
        """Write the specs of all of them, before Airflow starts."""
        for scenario in self._started.values():
            next(scenario)

    def begin(self) -> None:
        """Begin the runs of all of them."""
        self._begun = {scenario: next(started) for scenario, started in self._started.items()}

    def of(self, item: pytest.Item) -> Any:
        """Return what the scenario of a test yielded."""
        mark = item.get_closest_marker(MARK)
        assert mark is not None, f"{item.nodeid} has no mark `{MARK}`"
        return self._begun[mark.kwargs["begins"]]
