"""`lint` accepts any spec and any SQL, or reports problems with positions, in bounded time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import CheckpointError, InvalidRequest
from milepost.jobspec.load.lint import lint_report
from milepost.jobspec.load.load import check_placement, from_text, load_job
from milepost_testkit import profiles, wording
from milepost_testkit.specs.hostile_specs import hostile_spec, hostile_sql

SPEC = """\
name: visits
storage: lake
sources:
  visits:
    format: parquet
    path: PATH
    schema: {city: string, minutes: int32, at: "timestamp[us, UTC]", tags: "list<string>", spot: "struct<lat: float64>"}
    event_time: at
operators:
  - {uid: s, kind: sql, inputs: [visits], sql: SQL}
sinks:
  - {name: totals, input: s, format: parquet, path: out/totals, mode: append}
"""
FILE = Path("/jobs/visits.yaml")


def spec(sql: str = "SELECT city FROM visits", path: str = '"landing/*.parquet"', more: str = "") -> str:
    return SPEC.replace("SQL", json.dumps(sql)).replace("PATH", path) + more


def lint(text: str) -> None:
    job = from_text(text, FILE)
    check_placement(job)
    lint_report(job)


def survives(text: str) -> None:
    """Lint a text. Any exception other than a typed error fails the test."""
    try:
        lint(text)
    except CheckpointError as error:
        json.dumps([error.message, error.hint]).encode()
        error.message.encode()  # it can be printed, stored and sent


RNG = st.randoms(use_true_random=False)


@pytest.mark.long
@profiles.examples(share=1.2)
@given(RNG)
def test_any_spec_is_accepted_or_refused_by_a_typed_error(rng: Random) -> None:
    survives(hostile_spec(rng))


@profiles.examples(share=0.8)
@given(RNG)
def test_any_sql_is_accepted_or_refused_by_a_typed_error(rng: Random) -> None:
    survives(spec(hostile_sql(rng)))


@pytest.mark.deep
@profiles.examples(share=30)
@given(RNG)
def test_many_specs_are_accepted_or_refused_by_typed_errors(rng: Random) -> None:
    survives(hostile_spec(rng))
    survives(spec(hostile_sql(rng)))


NESTED = {
    "brackets": "SELECT " + "(" * 900 + "city" + ")" * 900 + " AS x FROM visits",
    "calls": "SELECT " + "coalesce(" * 900 + "city" + ")" * 900 + " AS x FROM visits",
    "cases": "SELECT " + "CASE WHEN TRUE THEN " * 900 + "1" + " END" * 900 + " AS x FROM visits",
    "negations": "SELECT city FROM visits WHERE " + "NOT " * 900 + "minutes > 1",
    "types": "SELECT CAST(NULL AS " + "ARRAY<" * 900 + "INT" + ">" * 900 + ") AS x FROM visits",
    "casts": "SELECT minutes" + "::int" * 900 + " AS x FROM visits",
    "operators": "SELECT " + " || ".join(["city"] * 400) + " AS x FROM visits",
    "conditions": "SELECT city FROM visits WHERE " + " AND ".join(["minutes > 1"] * 1_200),
    "unions": " UNION ALL ".join(["SELECT city FROM visits"] * 1_200),
    "words": "SELECT city FROM visits WHERE minutes IN (" + ", ".join(map(str, range(20_000))) + ")",
}


@pytest.mark.long
@pytest.mark.parametrize("kind", NESTED)
def test_sql_beyond_the_limits_is_refused_early_with_its_position(kind: str) -> None:
    began = time.process_time()
    with wording.raises(InvalidRequest):
        lint(spec(NESTED[kind]))
    assert time.process_time() - began < 3


@pytest.mark.long
def test_sql_of_realistic_size_is_accepted_quickly() -> None:
    """300 conditions took 9 s, and 1,200 took 3 minutes. Airflow's timeout for a DAG file is 30 s."""
    began = time.process_time()
    lint(spec("SELECT city FROM visits WHERE " + " OR ".join(f"minutes = {i}" for i in range(300))))
    lint(spec("SELECT " + " || ".join(["'a'"] * 300) + " AS x FROM visits"))
    lint(spec("SELECT " + "replace(" * 30 + "city" + ", 'a', 'b')" * 30 + " AS x FROM visits"))
    assert time.process_time() - began < 4


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        spec("SELECT"),
        spec("SELECT map(city) AS x FROM visits"),
        spec("SELECT x -> 1BD AS y FROM visits"),
        spec(path=r'"l/\ud83d.csv"'),
        spec(more='"\\udcff": 1\n'),
        spec(more=f"schedule: {{cron: '@daily', timezone: {'a' * 300}}}\n"),
        spec(more=f"schedule: {{cron: '@daily', timezone: {'a/' * 3000}a}}\n"),
        spec(more=f"spark: {{parallelism: 0x{'f' * 9_999}}}\n"),
        spec(more="checkpointing: {recovery: [1]}\n"),
        "a: " + "[" * 5_000,
        'name: "\\UFFFFFFFF"',
    ],
)  # fmt: skip
def test_input_that_crashes_a_library_is_reported_as_a_problem_with_its_position(text: str) -> None:
    with wording.raises(InvalidRequest):
        lint(text)


WINDOW = (
    "  - {uid: w, kind: window, inputs: [s], key: [city], aggregates: {n: count(*)}, "
    "window: {calendar: 1d, timezone: ZONE}}\nsinks:\n"
)


@pytest.mark.parametrize(
    "text",
    [
        spec(more="schedule: {cron: '@daily', timezone: ZONE}\n"),
        spec("SELECT city, at FROM visits").replace("sinks:\n", WINDOW),
    ],
    ids=["schedule", "window"],
)
def test_a_name_too_long_for_a_file_is_not_a_time_zone(text: str) -> None:
    with wording.raises(InvalidRequest):
        lint(text.replace("ZONE", "a" * 300))


def test_a_surrogate_pair_is_one_character() -> None:
    job = from_text(spec(path=r'"l/\ud83d\ude00.csv"'), FILE)
    assert job.spec.sources["visits"].path == "l/\U0001f600.csv"


def test_a_spec_whose_file_name_is_not_utf8_is_refused_with_a_printable_name(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9.yaml"
    path.write_text(spec())
    with wording.raises(InvalidRequest) as refused:
        load_job(path)
    refused.value.message.encode()


def test_only_the_beginning_of_an_oversized_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as stream:
        stream.truncate(64 << 30)  # sparse: more than the machine's memory
    with wording.raises(InvalidRequest):
        load_job(path)
