"""A spec's JSON is the job of its text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.load import from_json, from_text, load_job, spec_as_json
from milepost_testkit.processes.processes import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "config" / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_json_of_a_spec_is_the_same_job(path: Path) -> None:
    job = load_job(path)
    again = from_json(spec_as_json(job.spec), "this text is not read", path)
    assert again == replace(job, spec_text="this text is not read", sql=None)
    assert list(again.spec.sources) == list(job.spec.sources) and again.spec_hash == job.spec_hash


def test_the_text_counts_if_a_version_does_not_know_the_json() -> None:
    path = EXAMPLES[0]
    text = path.read_text(encoding="utf-8")
    value = json.loads(spec_as_json(from_text(text, path).spec))
    for unknown in ("", json.dumps(value | {"of_a_later_version": 1})):
        assert from_json(unknown, text, path) == from_text(text, path)
    with pytest.raises(InvalidRequest, match="nmae"):
        from_json("", text.replace("name:", "nmae:", 1), path)
