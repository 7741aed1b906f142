"""A spec file is read strictly, and all its problems are reported together with their positions."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
import yaml

from milepost.errors import InvalidRequest, NotFound
from milepost.jobspec.load.document import read_document
from milepost.jobspec.load.load import LoadedJob, from_text, load_job
from milepost.language.spark_settings import ELSEWHERE, FIXED, LOOPBACK
from milepost.operators.kinds import KINDS
from milepost_testkit import wording
from milepost_testkit.specs.spec_edits import edited

SPEC = """\
name: visits
storage: ../lake
sources:
  visits:
    format: csv
    path: landing/*.csv
    schema: {city: string, minutes: int32, at: "timestamp[us, UTC]"}
    event_time: at
    watermark_delay: 2h
operators:
  - {uid: totals, kind: aggregate, inputs: [visits], key: [city], aggregates: {n: count(*), m: sum(minutes)}}
sinks:
  - {name: totals, input: totals, format: parquet, path: "out/totals", mode: upsert}
"""


REFUSALS = yaml.safe_load((Path(__file__).parent / "golden" / "refusals.yaml").read_text(encoding="utf-8"))


def load(text: str, path: Path = Path("/jobs/config/visits.yaml")) -> LoadedJob:
    return from_text(text, path)


def refused(text: str) -> InvalidRequest:
    with wording.raises(InvalidRequest) as caught:
        load(text).graph()
    assert len(caught.value.message.splitlines()) <= 23
    return caught.value


def test_settle_may_be_0s_on_s3() -> None:
    assert load(SPEC.replace("path: landing/*.csv", "path: s3://in/*.csv\n    settle: 0s")).spec.sources["visits"]


def test_only_true_and_false_are_booleans_and_dates_are_strings() -> None:
    value = read_document(
        "a: [true, false, yes, No, on, True, 2013-01-01, 1:30, 012, 0o17, 1_000, null, ~, 1e3, .5]"
    ).value
    assert value["a"] == [
        True,
        False,
        "yes",
        "No",
        "on",
        "True",
        "2013-01-01",
        "1:30",
        12,
        15,
        "1_000",
        None,
        None,
        1000.0,
        0.5,
    ]


def test_a_quoted_scalar_is_a_string() -> None:
    assert read_document("a: ['true', \"1\", '']").value == {"a": ["true", "1", ""]}


@pytest.mark.long
def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "more than 100000 values" in refused("\n".join(lines)).message


@pytest.mark.long
@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: " ".join(str(text) for text in case.values())[:60])
def test_an_invalid_spec_is_refused_with_position_reason_and_suggestion(case: dict[str, str]) -> None:
    """DESIGN 8.1: unknown keys are refused with the nearest known name, file, line and allowed values."""
    assert case.get("replace", "") in SPEC
    changed = SPEC.replace(case.get("replace", ""), case.get("by", ""), 1)
    error = refused(case.get("text", changed + case.get("add", "")))
    assert error.message == case["says"].replace("KINDS", ", ".join(KINDS))
    assert error.exit_code == 2 and error.details["problems"]


def test_an_unsupported_key_that_is_null_is_accepted() -> None:
    text = SPEC.replace("event_time: at", "event_time: at\n    idle_timeout: null\n    forget_after: null")
    text += "checkpointing: {max_in_flight: null, epoch_budget: null}\nspark: {remote: null}\n"
    assert load(text).spec_hash == load(SPEC).spec_hash


def test_all_problems_of_a_file_are_reported_in_file_order() -> None:
    text = SPEC.replace("csv", "cvs").replace("kind: aggregate", "kind: agregate").replace("mode: upsert", "mode: x")
    lines = [int(number) for number in re.findall(r"visits\.yaml:(\d+):", refused(text).message)]
    assert lines == [5, 11, 13]


def test_a_list_whose_items_are_all_invalid_is_not_reported_as_empty() -> None:
    text = SPEC.replace("inputs: [visits]", "inputs: [3]")
    text += "quality: [{sink: totals, expectations: [{type: expect_column_to_exist, column: m, severity: fatal}]}]\n"
    refused(text)


def test_a_spec_with_a_hundred_problems_stays_short() -> None:
    text = SPEC + "".join(f"bad{i}: 1\n" for i in range(100))
    error = refused(text)
    assert "100 problems" in error.message
    assert "… and 90 more" in error.message
    assert len(error.message.splitlines()) == 12


def test_the_spec_hash_does_not_depend_on_formatting() -> None:
    same = "# a comment\n" + SPEC.replace("2h", "120m") + "spark: {parallelism: 2}\n"
    assert load(same).spec_hash == load(SPEC).spec_hash
    assert load(SPEC.replace("2h", "3h")).spec_hash != load(SPEC).spec_hash


@pytest.mark.parametrize(
    ("written", "turned"),
    [
        ("{city: string, minutes: int32, at", "{minutes: int32, city: string, at"),
        ("{n: count(*), m: sum(minutes)}", "{m: sum(minutes), n: count(*)}"),
    ],
)
def test_the_spec_hash_depends_on_the_order_of_columns(written: str, turned: str) -> None:
    """It breaks ties between rows, and determines the column order of a new table."""
    assert load(edited(SPEC, {written: turned})).spec_hash != load(SPEC).spec_hash


def test_the_spec_hash_does_not_depend_on_the_order_of_the_specs_own_keys() -> None:
    turned = edited(SPEC, {"name: visits\nstorage: ../lake\n": "storage: ../lake\nname: visits\n"})
    turned = edited(turned, {"inputs: [visits], key: [city]": "key: [city], inputs: [visits]"})
    assert load(turned).spec_hash == load(SPEC).spec_hash


def test_the_master_is_used_if_the_environment_names_no_server() -> None:
    job = load(SPEC + "spark: {master: 'local[3]', remote: '${env:REMOTE:-}'}\n")
    assert job.resolved({"REMOTE": "sc://far:1"}).spark.remote == "sc://far:1"
    assert (job.resolved({}).spark.remote, job.resolved({}).spark.master) == (None, "local[3]")


@pytest.mark.long
@pytest.mark.parametrize("key", [*FIXED, *LOOPBACK, *ELSEWHERE])
def test_a_setting_that_milepost_controls_is_refused_by_name(key: str) -> None:
    """A spec cannot override settings that the protocol relies on."""
    with wording.raises(InvalidRequest) as refused:
        load(SPEC + f"spark: {{conf: {{{key}: 'x'}}}}\n")
    assert key in str(refused.value)


def test_other_spark_settings_are_passed_through() -> None:
    conf = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-Xss4m"}
    assert load(SPEC + f"spark: {{conf: {conf}}}\n").spec.spark.conf == conf
    cluster = {"spark.driver.host": "10.0.0.7"}
    assert load(SPEC + f"spark: {{master: 'spark://far:7077', conf: {cluster}}}\n").spec.spark.conf == cluster


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sparc.driver.memory", "2g"),
        ("spark.driver.extraJavaOptions", "-Dpassword=${env:PASSWORD}"),
    ],
)
def test_a_setting_that_would_be_ignored_or_shown_is_refused(key: str, value: str) -> None:
    with wording.raises(InvalidRequest):
        load(SPEC + f"spark: {{conf: {{{key}: '{value}'}}}}\n")


@pytest.mark.parametrize("endpoint", ["http://user:s3cret@host:9000", "https://s3cret@host"])
def test_an_endpoint_with_a_password_is_refused_without_repeating_it(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wording.raises(InvalidRequest) as written:
        load(SPEC + f"store: {{endpoint_url: '{endpoint}'}}\n")
    monkeypatch.setenv("ENDPOINT", endpoint)
    job = load(SPEC + "store: {endpoint_url: '${env:ENDPOINT}'}\n")
    with wording.raises(InvalidRequest) as resolved:
        _ = job.job_store
    for caught in (written, resolved):
        error = caught.value
        assert "s3cret" not in f"{error.message} {error.hint} {error.details}"


def test_references_are_resolved_late_and_only_the_unresolved_text_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 8.1: only the unresolved text is stored, hashed, logged or shown."""
    text = SPEC.replace("out/totals", "${env:LAKE:-out}/totals")
    text += "store: {endpoint_url: '${env:ENDPOINT}', region: '${env:REGION:-eu-west-1}'}\n"
    text += "spark: {conf: {spark.x: '${env:X:-1}'}}\n"
    job = load(text)
    with wording.raises(InvalidRequest):
        job.resolved({})
    resolved = job.resolved({"ENDPOINT": "http://127.0.0.1:9", "LAKE": "s3://lake"})
    assert resolved.store.endpoint_url == "http://127.0.0.1:9"
    assert resolved.store.region == "eu-west-1"
    assert resolved.sinks[0].path == "s3://lake/totals"
    assert resolved.spark.conf == {"spark.x": "1"}
    assert job.spec.store.endpoint_url == "${env:ENDPOINT}"
    assert "127.0.0.1" not in repr(job)
    monkeypatch.setenv("ENDPOINT", "http://127.0.0.1:9")
    assert job.job_store.endpoint_url == "http://127.0.0.1:9"
    monkeypatch.setenv("ENDPOINT", "")
    assert job.job_store.endpoint_url is None


def test_relative_locations_are_relative_to_the_folder_of_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "s3://lake")
    job = load(SPEC, Path("/jo bs/config/visits.yaml"))
    assert job.storage_url == "file:///jo bs/lake"
    assert job.job_store.url == "file:///jo bs/lake/visits"
    assert job.url("a/100%/*.csv") == "file:///jo bs/config/a/100%25/*.csv"
    assert job.url("file:///x/../y") == "file:///y"
    assert job.url("${env:LAKE}/t") == "s3://lake/t"


def test_a_loaded_job_can_be_pickled() -> None:
    job = load(SPEC)
    assert pickle.loads(pickle.dumps(job)) == job


def test_a_job_is_found_by_path_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").mkdir()
    file = tmp_path / "config" / "visits.yaml"
    file.write_text(SPEC, encoding="utf-8")
    assert load_job("visits", tmp_path) == load_job(file)
    monkeypatch.chdir(tmp_path)
    assert load_job("visits").path == file
    with wording.raises(NotFound):
        load_job("visit")
    with wording.raises(NotFound):
        load_job("./nope.yaml")
    file.write_bytes(b"name: \xff\n")
    with wording.raises(InvalidRequest):
        load_job("visits")
