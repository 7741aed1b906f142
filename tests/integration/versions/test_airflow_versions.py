"""The scenarios of Airflow on its older versions. The newest version runs them with all other tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.older_versions import OLDER, VERSIONS, version_of
from tests.integration.versions.nested_pytest import assert_tests_pass

pytestmark = pytest.mark.deep

EPOCHS = (
    "tests/e2e/test_schedule.py::test_a_scheduled_run_is_an_epoch_from_its_trigger_to_its_lineage",
    "tests/e2e/test_epoch_dag.py",
    "tests/unit/airflow/test_land_input.py",
)
ACTS = ("tests/e2e/test_form_dags.py", "tests/e2e/test_told_failures.py")
PAGES = ("tests/e2e/test_airflow_surface.py", "tests/e2e/test_roles.py", "tests/e2e/test_team_dag.py")

NOT_ON_3_1 = {
    "tests/e2e/test_roles.py::test_users_outside_a_team_neither_see_nor_trigger_its_job": (
        "the users of Airflow's simple login have no teams"
    ),
    "tests/e2e/test_form_dags.py::test_an_edited_plan_is_not_the_approved_one": (
        "its API encodes an edited XCom twice, so the plan is refused as damaged before its digest is compared"
    ),
}
"""Test -> why an older version cannot run it."""


def run_on(minor: str, folder: Path, *tests: str) -> None:
    """Run tests in the environment of a version of Airflow."""
    if (reason := VERSIONS.unreached.reason()) is not None:
        pytest.skip(f"no package index was reached: {reason}")
    python = VERSIONS.interpreter(OLDER["apache-airflow"][minor])
    shown = subprocess.run([python, "-m", "airflow", "version"], capture_output=True, text=True, check=True).stdout
    assert version_of("apache-airflow", minor) in shown.split()
    assert_tests_pass(python, folder, tests, NOT_ON_3_1 if minor == "3.1" else ())


# A function per version and scenario: `make test-all PART=2/6` divides functions, not their parameters.


def test_epochs_run_on_airflow_3_1(tmp_path: Path) -> None:
    run_on("3.1", tmp_path, *EPOCHS)


def test_epochs_run_on_airflow_3_2(tmp_path: Path) -> None:
    run_on("3.2", tmp_path, *EPOCHS)


def test_acts_run_on_airflow_3_1(tmp_path: Path) -> None:
    run_on("3.1", tmp_path, *ACTS)


def test_acts_run_on_airflow_3_2(tmp_path: Path) -> None:
    run_on("3.2", tmp_path, *ACTS)


def test_pages_and_dag_files_work_on_airflow_3_1(tmp_path: Path) -> None:
    run_on("3.1", tmp_path, *PAGES)


def test_pages_and_dag_files_work_on_airflow_3_2(tmp_path: Path) -> None:
    run_on("3.2", tmp_path, *PAGES)
