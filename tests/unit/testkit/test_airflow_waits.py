"""A test that waits for Airflow ends as soon as one of Airflow's processes does, with the end of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.airflow.airflow_instance import AirflowInstance
from scripts import processes


def test_a_wait_ends_with_the_log_of_the_process_that_ended(tmp_path: Path) -> None:
    airflow = AirflowInstance(tmp_path)
    command = [processes.python(), "-c", "print('the database is locked')"]
    log = tmp_path / "scheduler.log"
    airflow.stack.started["scheduler"] = processes.start(
        "scheduler", command, stack=airflow.stack.marker, environ={}, cwd=tmp_path, log=log
    )
    with pytest.raises(processes.StackError, match=r"(?s)scheduler ended.*the database is locked") as ended:
        airflow.until(lambda: False, "never")
    assert str(log) in str(ended.value)
    airflow.set_aside("scheduler")
    airflow.until(lambda: True, "a process that was ended on purpose ends no wait")
