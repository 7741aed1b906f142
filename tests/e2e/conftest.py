"""The one Airflow that all end-to-end tests share, and the scenarios whose runs begin as soon as it is up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from milepost_testkit.airflow.airflow_instance import AirflowInstance
from milepost_testkit.airflow.scenario import Scenarios


@pytest.fixture(scope="package")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowInstance]:
    instance = AirflowInstance(tmp_path_factory.mktemp("airflow"))
    try:
        yield instance
    finally:
        instance.stop()


@pytest.fixture(scope="package")
def scenarios(request: pytest.FixtureRequest, instance: AirflowInstance) -> Scenarios:
    """Airflow is up and knows the jobs of all selected scenarios. Their runs have begun."""
    scenarios = Scenarios(instance, request)
    scenarios.prepare()
    instance.start()
    scenarios.begin()
    return scenarios


@pytest.fixture(scope="package")
def airflow(instance: AirflowInstance, scenarios: Scenarios) -> AirflowInstance:
    return instance


@pytest.fixture
def scenario(request: pytest.FixtureRequest, scenarios: Scenarios) -> Any:
    """What the scenario of a test has begun."""
    return scenarios.of(request.node)


@pytest.fixture(autouse=True)
def no_job_outlives_its_test(airflow: AirflowInstance) -> Iterator[None]:
    """Each parse reads all specs: those that a test has added go with it."""
    before = set(airflow.config.iterdir())
    yield
    for spec in set(airflow.config.iterdir()) - before:
        spec.unlink()
