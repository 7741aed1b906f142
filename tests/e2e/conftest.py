"""The one Airflow that all end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.servers.airflow_instance import AirflowInstance


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowInstance]:
    instance = AirflowInstance(tmp_path_factory.mktemp("airflow"))
    try:
        instance.start()
        yield instance
    finally:
        instance.stop()
