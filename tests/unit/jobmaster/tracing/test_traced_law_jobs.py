"""Rows of random jobs, through rollbacks, backfills, failed attempts and rows in flight, are traced to their input."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given

from milepost_testkit.law.examples import JobExample, job_examples
from milepost_testkit.law.job import LawJob
from milepost_testkit.law.traced import check_traces, play
from milepost_testkit.profiles import examples


@pytest.mark.long
@given(example=job_examples(landed=True))
@examples(share=0.2)
def test_a_row_of_any_table_is_made_of_the_rows_that_its_trace_lists(example: JobExample) -> None:
    with tempfile.TemporaryDirectory() as folder:
        job = LawJob.create(Path(folder, "job"), example.document)
        play(example, job)
        check_traces(job, per_table=3, seed=len(example.acts))
