"""The stable surface as a person finds it in an interpreter."""

from __future__ import annotations

import inspect
import pydoc
from pathlib import Path

import milepost.api
from milepost.api import JobMaster
from milepost.jobmaster.jobmaster import _UseCase
from milepost.jobmaster.reports.reports import Reports
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


def test_dir_lists_the_names_of_the_surface() -> None:
    assert dir(milepost.api) == sorted(milepost.api.__all__)
    assert all(getattr(milepost.api, name) is not None for name in dir(milepost.api))


def test_help_shows_each_use_case_as_the_function_that_it_is(tmp_path: Path) -> None:
    cases = [name for name, value in vars(JobMaster).items() if isinstance(value, _UseCase)]
    assert len(cases) > 40
    for name in cases:
        function = getattr(JobMaster, name)
        assert inspect.isfunction(function) and function.__doc__, name
    assert JobMaster.read is Reports.read
    shown = pydoc.render_doc(JobMaster.read, renderer=pydoc.plaintext)
    assert "read(self, sink: 'str', at: 'int | None' = None" in shown
    assert str(Reports.read.__doc__).partition("\n")[0] in shown
    whole = pydoc.render_doc(JobMaster, renderer=pydoc.plaintext)
    assert all(f" |  {name}(self" in whole for name in cases)
    assert SparklessJob.create(tmp_path).master.job_state().job == "small"
