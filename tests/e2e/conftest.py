"""The one Airflow that all end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milepost_testkit.airflow.airflow_instance import AirflowInstance


@pytest.fixture(scope="package")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowInstance]:
    instance = AirflowInstance(tmp_path_factory.mktemp("airflow"))
    try:
        instance.start()
        yield instance
    finally:
        instance.stop()


@pytest.fixture(autouse=True)
def no_job_outlives_its_test(airflow: AirflowInstance) -> Iterator[None]:
    """Every task of Airflow parses all specs there are: those that a test has added go with it."""
    before = set(airflow.config.iterdir())
    yield
    for spec in set(airflow.config.iterdir()) - before:
        spec.unlink()
