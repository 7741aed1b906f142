"""Locations that must not overlap are compared after resolution, before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.jobmaster import Session
from milepost.jobspec.load.load import load_job
from milepost.language.patterns import ANY, WITHIN_SEGMENT, Step, can_name, matcher
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SPEC = """\
name: small
storage: {storage}
sources:
  rows: {{format: csv, path: "{source}", schema: {{k: int64}}}}
operators:
  - {{uid: latest, kind: aggregate, inputs: [rows], key: [k], aggregates: {{rows: count(*)}}}}
sinks:
  - {{name: one, input: latest, format: parquet, path: "{one}", mode: upsert}}
  - {{name: two, input: latest, format: parquet, path: "{two}", mode: upsert}}
"""


def lint(folder: Path, **places: str) -> str:
    """Return the refusal of a job with these locations, or ""."""
    path = folder / "job.yaml"
    given_ = {"storage": "store", "source": "landing/*.csv", "one": "lake/one", "two": "lake/two"} | places
    path.write_text(SPEC.format(**given_))
    try:
        load_job(path)
    except InvalidRequest as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("lake/one", "lake/one/"),
        ("lake/one", "lake/./x/../one"),
        ("lake/one", "file://{here}/lake/one"),
        ("lake/o e", "file://{here}/lake/o%20e"),
        ("lake/one", "link/one"),
        ("lake/one", "file:///{here}//lake/one/"),
        ("lake/one", "${{env:MILEPOST_LAKE:-lake}}/one"),
        ("s3://lake/one", "s3://lake/one/"),
    ],
)
def test_two_sinks_at_the_same_location_are_refused_in_any_spelling(tmp_path: Path, one: str, two: str) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    message = lint(tmp_path, one=one, two=two.format(here=tmp_path))
    wording.matches("lint", message)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("places", "says"),
    [
        ({"two": "lake/one/two"}, "sinks[1].path: this location is inside that of sink one"),
        ({"one": "lake/two/one"}, "sinks[1].path: this location contains that of sink one"),
        ({"one": "s3://lake", "two": "s3://lake/two"}, "this location is inside that of sink one"),
        ({"one": "store/small"}, "sinks[0].path: this location is that of the job's own folder"),
        ({"one": "store/small/tables"}, "sinks[0].path: this location is inside that of the job's own folder"),
        ({"one": "store"}, "sinks[0].path: this location contains that of the job's own folder"),
        (
            {"source": "**/*.parquet"},
            "sources.rows.path: this path can match files that the job writes, of the job's own folder",
        ),
        ({"source": "lake/one/_milepost/data/*/*/*"}, "files that the job writes, of sink one"),
        ({"source": "lake/one/_milepost/heads/*"}, "files that the job writes, of sink one"),
        ({"source": "link/two/_milepost/**"}, "files that the job writes, of sink two"),
        ({"source": "store/**/*.json"}, "files that the job writes, of the job's own folder"),
    ],
)
def test_overlapping_locations_are_refused(tmp_path: Path, places: dict[str, str], says: str) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    assert says in lint(tmp_path, **places)


@pytest.mark.parametrize(
    "places",
    [
        {},
        {"one": "lake/one", "two": "lake/one2"},
        {"one": "s3://lake/one", "two": "s3://other/one"},
        {"one": "s3://lake/a%20b", "two": "s3://lake/a b"},
        {"one": "store/tables"},
        {"source": "**/*.csv"},
        {"source": "lake/*.parquet"},
        {"source": "lake/*/*.parquet"},
        {"source": "lake/**/*.csv.gz"},
        {"source": "lake/one/**/_heads/*.json"},
        {"one": "${env:NOT_SET_ANYWHERE}/one", "two": "${env:NOT_SET_ANYWHERE}/one/"},
    ],
)
def test_locations_that_do_not_overlap_are_accepted(tmp_path: Path, places: dict[str, str]) -> None:
    """In a bucket `%20` is literal, hidden segments are never read, and `*` stays within its segment."""
    assert lint(tmp_path, **places) == ""


def test_the_file_name_patterns_match_the_files_of_a_table(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    for name in ("a.csv", "b.csv"):
        job.land(name)
        job.master.epochs.run(Session.cli(), SparklessRunner())
    keys = [item.stat.key for item in job.context.sink("table").objects()]
    assert {key.split("/")[1] for key in keys} >= {"data", "heads", "owner.json"}
    spec = tmp_path / "config" / "small.yaml"
    text = spec.read_text()
    for key in keys:
        spec.write_text(text.replace("../landing/*.csv", f"../lake/table/{key}"))
        with wording.raises(InvalidRequest):
            job.loaded()


_PIECE = st.sampled_from(["*", "**", "**/", "/", "a", "b"])
_STEPS = st.lists(st.tuples(st.sampled_from([ANY, WITHIN_SEGMENT, "/", "a", "ab"]), st.booleans()), max_size=5)


@given(st.lists(_PIECE, max_size=5).map("".join), _STEPS, st.text("ab/", max_size=6))
def test_a_common_name_is_found(pattern: str, steps: list[Step], name: str) -> None:
    """Every text that both match is recognized as common."""
    spelled = "".join(
        ({ANY: ".", WITHIN_SEGMENT: "[^/]"}.get(characters) or f"[{characters}]") + "*" * many
        for characters, many in steps
    )
    if matcher(pattern)(name) and re.fullmatch(spelled, name):
        assert can_name(pattern, steps)


@given(st.lists(_PIECE, max_size=4).map("".join), st.text("ab/", max_size=6))
def test_a_literal_name_is_common_exactly_if_it_matches(pattern: str, name: str) -> None:
    steps: list[Step] = [(character, False) for character in name]
    assert can_name(pattern, steps) is matcher(pattern)(name)
