"""The tables of source formats: what a spec may declare, and the readers."""

from __future__ import annotations

from typing import get_args

from milepost.jobspec.job import FileSourceSpec
from milepost.language import SOURCE_FORMATS
from milepost.sources.formats import FORMATS


def test_each_format_of_a_spec_is_declared_and_has_a_reader() -> None:
    named = set(get_args(FileSourceSpec.model_fields["format"].annotation))
    assert named == SOURCE_FORMATS.keys() == FORMATS.keys()
