"""A spec that changes between epochs: state that still fits continues, and state is dropped only on request."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.runners.planes import Plane

SPEC = """\
name: flights
storage: ../store
sources:
  flights:
    format: csv
    path: ../landing/flights/**/*.csv
    settle: 0s
    options: {null_values: ["", "NA"], strings_can_be_null: true}
    schema: {carrier: string, flight: int32, origin: string, dep_delay: int32}
operators:
  - {uid: carriers, kind: aggregate, inputs: [flights], key: [carrier], aggregates: {flights: count(*)}}
  - {uid: origins, kind: aggregate, inputs: [flights], key: [origin], aggregates: {flights: count(*)}}
sinks:
  - {name: carriers, input: carriers, format: parquet, path: ../lake/carriers, mode: upsert}
  - {name: origins, input: origins, format: parquet, path: ../lake/origins, mode: upsert}
spark: {master: "local[2]", parallelism: 2}
"""

RENAMED = {
    "uid: origins": "uid: airports",
    "input: origins": "input: airports",
    "key: [origin], aggregates: {flights: count(*)}": "key: [origin], aggregates: {worst: max(dep_delay)}",
    "name: origins": "name: airports",
    "../lake/origins": "../lake/airports",
}

WEATHER = """\
  weather:
    format: csv
    path: ../landing/weather/*.csv
    settle: 0s
    schema: {station: string}
"""
STATIONS = {
    "operators:\n": "operators:\n"
    "  - {uid: stations, kind: aggregate, inputs: [weather], key: [station], aggregates: {n: count(*)}}\n",
    "sinks:\n": "sinks:\n"
    "  - {name: stations, input: stations, format: parquet, path: ../lake/stations, mode: upsert}\n",
}


def create(folder: Path) -> FlightsJob:
    (folder / "config").mkdir(parents=True)
    job = FlightsJob(folder)
    job.edit(SPEC, {})
    return job


def flights_of_carriers(job: FlightsJob) -> dict[str, int]:
    return {row["carrier"]: row["flights"] for row in job.master().reports.read("carriers").to_pylist()}


@pytest.mark.deep
def test_an_operator_with_a_new_uid_begins_empty_and_the_others_go_on(tmp_path: Path, plane: Plane) -> None:
    """DESIGN 8.1: refused before anything is planned, unless the old state may be left behind."""
    job = create(tmp_path)
    job.land([1])
    assert milepost("run", job.spec_path).exit_code == 0
    before = flights_of_carriers(job)
    job.edit(SPEC, RENAMED)
    job.land([2])

    refused = milepost("run", job.spec_path)
    assert_clear_error(refused, 2, "origins", golden="run")
    assert "--allow-non-restored-state" in refused.error[-1]
    (verdict,) = (line for line in refused.stderr.splitlines() if line.strip().startswith("origins: "))
    wording.matches("compatibility", verdict)
    assert [c.checkpoint_id for c in job.master().reports.list_checkpoints()] == [1]

    accepted = milepost("run", job.spec_path, "--allow-non-restored-state")
    assert accepted.exit_code == 0, accepted.stderr
    after = flights_of_carriers(job)
    assert sum(after.values()) > sum(before.values()) and before.keys() <= after.keys()
    assert len(job.master().reports.read("airports")) == len(job.master().reports.state("airports")) > 0
    gone = milepost("state", job.spec_path, "origins")
    assert gone.exit_code == 3

    job.land([3])
    assert milepost("run", job.spec_path).exit_code == 0  # the flag is needed once: the old state is gone


@pytest.mark.deep
def test_a_source_that_comes_back_goes_on_where_it_was(tmp_path: Path, plane: Plane) -> None:
    """Its position stays with the checkpoints while the spec is without it: no object is read twice."""
    job = create(tmp_path)
    with_weather = SPEC.replace("operators:\n", WEATHER + "operators:\n", 1)
    job.edit(with_weather, STATIONS)
    job.land([1])
    weather = tmp_path / "landing" / "weather"
    weather.mkdir()
    (weather / "1.csv").write_text("station\nJFK\n")
    assert milepost("run", job.spec_path).exit_code == 0

    job.edit(SPEC, {})
    job.land([2])
    assert_clear_error(milepost("run", job.spec_path), 2, "weather", "--allow-non-restored-state", golden="run")
    assert milepost("run", job.spec_path, "--allow-non-restored-state").exit_code == 0

    job.edit(with_weather, {key: text.replace("stations", "stations_again") for key, text in STATIONS.items()})
    (weather / "2.csv").write_text("station\nLGA\n")
    again = milepost("run", job.spec_path)
    assert again.exit_code == 0, again.stderr
    assert job.master().reports.read("stations_again").select(["station", "n"]).to_pylist() == [
        {"station": "LGA", "n": 1}
    ]


EXACT = {
    "operators:\n": "operators:\n"
    "  - {uid: exact, kind: sql, inputs: [flights],\n"
    '     sql: "SELECT origin, CAST(dep_delay AS DECIMAL(10,2)) AS d FROM flights"}\n'
    "  - {uid: named, kind: sql, inputs: [flights],\n"
    '     sql: "SELECT origin, upper(carrier) AS c, flight % 7 AS d FROM flights"}\n'
    "  - {uid: pairs, kind: deduplicate, inputs: [named], key: [origin, c]}\n"
    "  - {uid: delays, kind: aggregate, inputs: [exact], key: [origin], aggregates: {total: sum(d)}}\n"
    '  - {uid: lasts, kind: process, inputs: [flights], key: [carrier], function: "ops:Lasts"}\n',
    "sinks:\n": "sinks:\n"
    "  - {name: pairs, input: pairs, format: parquet, path: ../lake/pairs, mode: append}\n"
    "  - {name: delays, input: delays, format: parquet, path: ../lake/delays, mode: upsert}\n",
}


CLASS = """\
class Lasts:
    state = {STATE}
    output = {"carrier": "string"}

    def on_rows(self, key, rows, state, ctx):
        for name in state:
            state[name] = rows.num_rows
        return ()
"""


def test_a_sum_keeps_a_scale_that_only_sql_determines_and_a_renamed_operator_continues(
    tmp_path: Path, plane: Plane
) -> None:
    """A sum of decimals is stored as a whole number: in another scale the same bits are another sum.

    A class that declares more and wider state gets its stored state as well.
    """
    job = create(tmp_path)
    job.edit(SPEC, EXACT)
    function = job.spec_path.with_name("ops.py")
    function.write_text(CLASS.replace("{STATE}", '{"n": "int16"}'))
    job.land([1])
    assert milepost("run", job.spec_path).exit_code == 0
    text = job.spec_path.read_text()
    job.land([2])

    job.edit(text, {"DECIMAL(10,2)": "DECIMAL(10,4)"})
    refused = milepost("run", job.spec_path)
    assert_clear_error(refused, 2, "delays", golden="run")
    assert milepost("resume", job.spec_path).exit_code == 0

    job.edit(text, {"DECIMAL(10,2)": "DECIMAL(20,2)", "uid: delays,": "uid: total_delays, renamed_from: delays,",
                    "input: delays,": "input: total_delays,"})  # fmt: skip
    before = {row["carrier"]: row["n"] for row in job.master().reports.state("lasts").to_pylist()}
    function.write_text(CLASS.replace("{STATE}", '{"n": "int64", "again": "int64"}'))
    linted = json.loads(milepost("lint", job.spec_path, "--json").stdout)["data"]["compatibility"]
    found = {row["uid"]: (row["outcome"], row["detail"]) for row in linted}
    assert found["total_delays"][0] == found["pairs"][0] == "restored" and "delays" in found["total_delays"][1]
    assert {uid for uid, (outcome, _) in found.items() if outcome != "restored"} == {"exact"}, found["exact"]
    wording.matches("compatibility", [found[uid][1] for uid in ("total_delays", "pairs", "lasts")])
    accepted = milepost("run", job.spec_path)
    assert accepted.exit_code == 0, accepted.stderr
    uids = ("total_delays: ", "lasts: ")
    wording.matches("compatibility", [line for line in accepted.stderr.splitlines() if line.strip().startswith(uids)])
    after = {row["carrier"]: (row["n"], row["again"]) for row in job.master().reports.state("lasts").to_pylist()}
    assert before.keys() <= after.keys()
    for carrier, (count, again) in after.items():
        assert count == (before[carrier] if again is None else again)
    with duckdb.connect() as connection:
        landed = f"read_csv('{job.folder}/landing/flights/**/*.csv', nullstr=['', 'NA'])"
        expected = connection.sql(f"SELECT origin, sum(dep_delay) FROM {landed} GROUP BY origin").fetchall()
    totals = {row["origin"]: row["total"] for row in job.master().reports.read("delays").to_pylist()}
    assert totals == {origin: Decimal(int(total)) for origin, total in expected}
