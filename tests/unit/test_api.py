"""The stable surface as a person finds it in an interpreter."""

from __future__ import annotations

import inspect
import pydoc
from pathlib import Path

import milepost.api
from milepost.api import JobMaster
from milepost.jobmaster.reports.reports import Reports
from milepost.protocol.records import cached_property
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


def test_dir_lists_the_names_of_the_surface() -> None:
    assert all(getattr(milepost.api, name) is not None for name in dir(milepost.api))


def test_help_shows_the_groups_of_use_cases_and_their_functions(tmp_path: Path) -> None:
    shown = pydoc.render_doc(JobMaster, renderer=pydoc.plaintext)
    groups = {name: value for name, value in vars(JobMaster).items() if isinstance(value, cached_property)}
    public = [name for name in groups if not name.startswith("_")]
    assert len(public) > 9 and all(name in shown for name in public)
    assert "read(self, sink: 'str', at: 'int | None' = None" in pydoc.render_doc(Reports.read, renderer=pydoc.plaintext)
    master = SparklessJob.create(tmp_path).master
    assert master.reports.job_state().job == "small"
    for name in public:
        assert inspect.getdoc(getattr(master, name)), name
