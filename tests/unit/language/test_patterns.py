"""A pattern matches the same names as its definition as a regular expression, in bounded time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.language.patterns import matcher
from milepost_testkit import profiles

_TOKEN = re.compile(r"(?<![^/])\*\*/|\*\*|\*|[^*]+")
_MEANING = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
_PIECES = st.lists(st.sampled_from(["*", "*", "**", "**/", "/", "a", "b", "ab", "a/", "\n"]), max_size=8).map("".join)


def means(pattern: str, name: str) -> bool:
    """The definition: `*` is any characters within a segment, `**` any characters, `**/` whole segments or none."""
    expression = "".join(_MEANING.get(token) or re.escape(token) for token in _TOKEN.findall(pattern))
    return re.fullmatch(expression, name, re.DOTALL) is not None


@pytest.mark.deep
@profiles.examples(share=5)
@given(_PIECES, st.lists(st.text("aab//\n", max_size=10), max_size=20))
def test_a_pattern_matches_as_defined(pattern: str, names: list[str]) -> None:
    is_meant = matcher(pattern)
    assert [is_meant(name) for name in names] == [means(pattern, name) for name in names]


@given(_PIECES, st.lists(st.text("ab/", max_size=4), min_size=9, max_size=9))
def test_a_name_generated_from_a_pattern_matches_it(pattern: str, fillings: list[str]) -> None:
    fill = iter(fillings)
    parts = []
    for token in _TOKEN.findall(pattern):
        filling = next(fill, "")
        replacements = {"*": filling.replace("/", ""), "**": filling, "**/": f"{filling}/" if filling else ""}
        parts.append(replacements.get(token, token))
    assert matcher(pattern)("".join(parts))


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*_*_*_*_*_*.json", "_" * 250),
        ("**/*_*_*_*_*_*.json", "_/" * 2_000 + "_" * 96),
        ("**a*b*c*z", "a" * 4_096),
        ("**a*a*a**a*a*a**a*a*b", "a" * 4_096),
        ("**/a*/a*/a*/a*b", "a/" * 2_048),
        ("**/*/*/*/*x/*/*/*y**z", "a/" * 2_048),
        ("*a" * 500, "a" * 4_096 + "b"),
        ("**" * 500 + "b", "a" * 4_096),
    ],
)
def test_matching_time_is_bounded_by_name_length_times_pattern_length(pattern: str, name: str) -> None:
    """As a regular expression, the first one took minutes."""
    is_meant = matcher(pattern)
    began = time.process_time()
    assert not is_meant(name)
    assert time.process_time() - began < 0.2
