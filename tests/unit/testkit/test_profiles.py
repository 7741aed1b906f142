"""A profile sets how many examples each property is tried on: no test names a number of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import hypothesis
import pytest

from milepost_testkit import profiles
from milepost_testkit.processes.processes import REPOSITORY

OWN_NUMBER = re.compile(r"(max_examples|stateful_step_count) *= *\d")


@pytest.fixture(params=[profiles.FAST, profiles.DEEP, profiles.MUTANTS])
def profile(request: pytest.FixtureRequest) -> Iterator[str]:
    current = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.load_profile(request.param)
    yield request.param
    hypothesis.settings.load_profile(current)


def test_a_share_is_of_the_profile_s_examples_and_never_only_the_simplest_one(profile: str) -> None:
    whole = {profiles.FAST: 15, profiles.DEEP: 200, profiles.MUTANTS: 200}[profile]
    assert profiles.examples().max_examples == whole
    assert profiles.examples(share=0.4).max_examples == whole * 2 // 5
    assert profiles.examples(share=0.001).max_examples == 3
    assert profiles.examples(share=0.4).deadline is None


def test_no_test_names_a_number_of_examples() -> None:
    files = (REPOSITORY / "tests").rglob("*.py")
    named = [file for file in files if OWN_NUMBER.search(file.read_text(encoding="utf-8"))]
    assert named == []
