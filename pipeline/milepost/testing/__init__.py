"""Tests of a job: cases with input rows and expected rows, run by the product's own tasks."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.testing.case_file import find_case_files as find_case_files
    from milepost.testing.case_file import load_cases as load_cases
    from milepost.testing.case_run import CaseResult as CaseResult
    from milepost.testing.case_run import run_case as run_case
    from milepost.testing.recording import record as record
else:
    __getattr__, __dir__ = lazy_exports(__name__)
