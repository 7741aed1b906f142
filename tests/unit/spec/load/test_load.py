"""A spec file is read strictly, and all its problems are reported together with their places."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from milepost.protocol.records.errors import InvalidRequest, NotFound
from milepost.spec.load.document import read_document
from milepost.spec.load.load import LoadedJob, from_text, load_job
from milepost.spec.values.spark_settings import ELSEWHERE, FIXED, LOOPBACK

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


def load(text: str, path: Path = Path("/jobs/config/visits.yaml")) -> LoadedJob:
    return from_text(text, path)


def refused(text: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        load(text).graph()
    assert len(caught.value.message.splitlines()) <= 23
    return caught.value


def test_settle_may_say_that_it_is_off_where_nothing_settles() -> None:
    assert load(SPEC.replace("path: landing/*.csv", "path: s3://in/*.csv\n    settle: 0s")).spec.sources["visits"]


def test_only_true_and_false_are_booleans_and_dates_stay_text() -> None:
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


def test_a_quoted_scalar_is_text() -> None:
    assert read_document("a: ['true', \"1\", '']").value == {"a": ["true", "1", ""]}


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("name: a\nname: b\n", ":2:1:", "the key `name` occurs twice; first in line 1"),
        ("a: {b: 1, b: 2}\n", ":1:11:", "the key `b` occurs twice"),
        ("name: [\n", ":2:1:", "not YAML"),
        ("name: a\n  b: c\n", ":2:4:", "not YAML"),
        ("name: !!python/object:os.system x\n", ":1:7:", "the tag"),
        ("- a\n", ":1:1:", "expected a mapping"),
        ("? [a]\n: b\n", ":1:3:", "a key must be text"),
        ("a: *b\n", ":1:4:", "not YAML"),
        ("", "", "expected a mapping"),
    ],
)
def test_what_is_no_spec_at_all_is_refused_with_its_place(text: str, place: str, reason: str) -> None:
    message = refused(text).message
    assert reason in message
    assert place in message


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "more than 100000 values" in refused("\n".join(lines)).message


@pytest.mark.parametrize(
    ("old", "new", "at", "reason"),
    [
        (
            "event_time: at",
            "evnt_time: at",
            "evnt_time: at",
            'unknown key `evnt_time`; did you mean "event_time"? Known: format',
        ),
        ("event_time: at", "idle_timeout: 5m", "idle_timeout: 5m", "`idle_timeout` is not available in this version"),
        ("event_time: at", "forget_after: 90d", "forget_after: 90d", "`forget_after` is not available in this version"),
        (
            "event_time: at",
            "bad_records: dead_letter",
            "dead_letter",
            "`bad_records: dead_letter` is not available in this version",
        ),
        ("event_time: at", "event_time: att", "att", 'the schema has no column att; did you mean "at"?'),
        ("event_time: at", "event_time: city", "city", "an event time is a timestamp"),
        ("event_time: at", "on_change: fail", "format: csv", "`watermark_delay` without `event_time`"),
        ("watermark_delay: 2h", "watermark_delay: 2", "2", "expected a duration"),
        ("watermark_delay: 2h", "limits_per_epoch: {max_files: 0}", "0}", "expected at least 1, got 0"),
        ("path: landing/*.csv", "path: s3://in/*.csv\n    settle: 5s", "5s", "`settle` is for local paths"),
        ("    event_time: at\n    watermark_delay: 2h", "    max_event_time_ahead: 1d", "1d", "without `event_time`"),
        ("watermark_delay: 2h", "max_event_time_ahead: 1", "1", "expected a duration"),
        ("watermark_delay: 2h", "settle: null", "null", "expected a duration"),
        ("watermark_delay: 2h", "on_bad_name: ignore", "ignore", "expected one of fail, skip, got 'ignore'"),
        ("watermark_delay: 2h", "start: yesterday", "yesterday", "expected earliest, latest or a time"),
        (
            "watermark_delay: 2h",
            "options: {null_value: [a]}",
            "[a]}",
            'unknown option `null_value` of format csv; did you mean "null_values"?',
        ),
        ("watermark_delay: 2h", "options: {skip_rows: yes}", "yes}", "options.skip_rows: expected a count, got 'yes'"),
        (
            "format: csv",
            "format: nexmark",
            "nexmark",
            "`format: nexmark` is not available in this version; available: csv, json, parquet",
        ),
        ("format: csv", "format: cvs", "cvs", "expected one of csv, json, parquet, got 'cvs'"),
        ("minutes: int32", "minutes: int", 'int, at: "timestamp[', "'int' is not a column type"),
        ("minutes: int32", "minutes: list<int32>", 'list<int32>, at: "ti', "format csv cannot hold a list<int32>"),
        ("minutes: int32", "City: int32", "{city: string, City:", "the column City occurs twice"),
        ("minutes: int32", "__m: int32", '__m: int32, at: "tim', "'__m' is not a column name"),
        (
            "kind: aggregate",
            "kind: join",
            "join, inputs: [visit",
            "`kind: join` is not available in this version; available: sql",
        ),
        (
            "kind: aggregate",
            "kind: agregate",
            "agregate, inputs: [v",
            'there is no `kind: agregate`; did you mean "aggregate"?',
        ),
        ("kind: aggregate, ", "", "{uid: totals, inputs", "`kind` is missing"),
        ("uid: totals, ", "", "{kind: aggregate, in", "`uid` is missing"),
        ("uid: totals", "uid: Totals", "Totals, kind: aggreg", "'Totals' is not a valid name"),
        ("uid: totals", "uid: visits", "visits, kind: aggreg", "the name visits is already that of a source"),
        ("inputs: [visits]", "inputs: [visit]", "visit], key: [city],", 'there is no visit; did you mean "visits"?'),
        (
            "inputs: [visits]",
            "inputs: [visits, visits]",
            "[visits, visits], ke",
            "exactly one input is available in this version",
        ),
        ("inputs: [visits]", "inputs: visits", "visits, key: [city],", "expected a list, got 'visits'"),
        ("key: [city]", "key: [cty]", "cty], aggregates: {n", 'visits has no column cty; did you mean "city"?'),
        ("key: [city]", "key: []", "[], aggregates: {n: ", "expected at least 1 item"),
        ("key: [city]", "key: [city, city]", "[city, city], aggreg", "city occurs twice"),
        ("sum(minutes)", "sum(city)", "sum(city)}}", "sum needs numbers, but city is string"),
        ("sum(minutes)", "sum(minute)", "sum(minute)}}", 'visits has no column minute; did you mean "minutes"?'),
        ("sum(minutes)", "first(minutes)", "first(minutes)}}", "`first` is not available in this version"),
        ("input: totals", "input: total", "total, format: parqu", 'there is no total; did you mean "totals"?'),
        (
            "input: totals",
            "input: totals.late",
            "totals.late, format:",
            "only window, and deduplicate with a ttl, have late rows",
        ),
        (
            "format: parquet",
            "format: delta",
            'delta, path: "out/to',
            "`format: delta` is not available in this version",
        ),
        (
            "mode: upsert",
            "mode: append",
            "append}",
            "totals gives updates, which an append sink cannot take; use mode: upsert",
        ),
        (
            'path: "out/totals"',
            "path: gs://lake/x",
            "gs://lake/x, mode: u",
            "the scheme `gs` is not available in this version",
        ),
        ("storage: ../lake", "storage: ${env:LAKE}", "${env:LAKE}", "resolved only in connection fields"),
        ("name: visits", "name: a__b", "a__b", "is not a job name"),
        ("name: visits\n", "", "storage: ../lake", "`name` is missing"),
    ],
)
def test_a_problem_is_reported_with_its_place_reason_and_nearest_name(old: str, new: str, at: str, reason: str) -> None:
    """INTERFACE 1: unknown keys are refused with the nearest known name, file, line and allowed values."""
    assert old in SPEC
    text = SPEC.replace(old, new, 1)
    error = refused(text)
    place = re.search(r"visits\.yaml:(\d+):(\d+): ", error.message)
    assert place is not None
    assert text.splitlines()[int(place[1]) - 1][int(place[2]) - 1 :].startswith(at)
    assert reason in error.message
    assert error.exit_code == 2
    assert error.details["problems"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("checkpointing: {aligned_timeout: 10m}", "expected less than checkpointing.timeout, 10m, got 10m"),
        ("checkpointing: {epoch_budget: 2h}", "expected less than checkpointing.timeout, 10m, got 2h"),
        ("checkpointing: {epoch_budget: 0s}", "above 0s"),
        ("checkpointing: {max_in_flight: 1GB}", "max_in_flight: needs aligned_timeout or epoch_budget"),
        ("checkpointing: {retained: {last: 3, hourly: -1}}", "expected at least 0, got -1"),
        ("checkpointing: {retained: {daily: 10001}}", "expected at most 10000, got 10001"),
        ("checkpointing: {retained: {weekly: 4}}", "weekly"),
        ("checkpointing: {retained: 0}", "expected at least 1, got 0"),
        (
            "checkpointing: {restart: {strategy: exponential}}",
            'there is no `strategy: exponential`; did you mean "exponential_delay"?',
        ),
        (
            "checkpointing: {restart: {attempts: 3}}",
            "`strategy` is missing: one of none, fixed_delay, exponential_delay",
        ),
        ("checkpointing: {restart: {strategy: none, delay: 3s}}", "unknown key `delay`"),
        ("checkpointing: {restart: {strategy: fixed_delay, interval: 3s}}", "unknown key `interval`"),
        ("checkpointing: {restart: {strategy: exponential_delay, backoff_multiplier: 1}}", "greater than 1"),
        ("checkpointing: {timeout: 0s}", "above 0s"),
        ("checkpointing: {tolerable_failures: -1}", "expected at least 0, got -1"),
        ("checkpointing: {max_parallelism: 1}", "expected at most checkpointing.max_parallelism, 1, got 2"),
        ("spark: {remote: 'local[2]'}", "expected the address of a Spark Connect server, sc://host:port"),
        ("spark: {remote: 'sc://host/;token=abc'}", "comes from the environment variable SPARK_CONNECT_AUTHENTICATE"),
        ("spark: {remote: 'sc://me:abc@host'}", "expected no user name and password"),
        ("spark: {remote: 'sc://host/;session_id=abc'}", "expected no parameter but use_ssl=true, got `session_id`"),
        ("spark: {remote: 'sc://host:0'}", "expected sc://host:port"),
        ("spark: {remote: 'sc://host/path'}", "nothing behind it but /;use_ssl=true"),
        ("spark: {remote: 'sc://host', master: 'local[2]'}", "the server of `remote` has a master of its own"),
        ("spark: {parallelism: '2'}", "expected a whole number, got '2'"),
        ("schedule: {cron: 'every day'}", "is not a cron expression"),
        ("schedule: {cron: '@daily', timezone: Mars/Base}", "is not a time zone"),
        ("airflow: {retries: true}", "expected a whole number, got True"),
        ("store: {access_key: abc}", "unknown key `access_key`"),
        ("store: {endpoint_url: '${env:A'}", "expected ${env:NAME}"),
        ("store: [a]", "expected a mapping, got a list"),
        ("quality: [{sink: totals, expectations: []}]", "the suite is empty"),
        (
            "quality: [{sink: total, expectations: [{type: expect_x}]}]",
            'there is no sink total; did you mean "totals"?',
        ),
        (
            "quality: [{sink: totals, scope: table, expectations: [{type: expect_x}]}]",
            "`scope: table` is not available",
        ),
        (
            "quality: [{sink: totals, engine: spark, expectations: [{type: expect_x}]}]",
            "`engine: spark` is not available",
        ),
        (
            "quality: [{sink: totals, expectations: [{type: expect_column_values_to_not_be_null, column: mm}]}]",
            "sink totals has no column mm",
        ),
        (
            "quality: [{sink: totals, expectations: [{type: expect_column_values_to_be_nul, column: m}]}]",
            'no expect_column_values_to_be_nul; did you mean "expect_column_values_to_be_null"?',
        ),
        (
            "quality: [{sink: totals, expectations: [{type: expect_column_max_to_be_between, column: m, max: 3}]}]",
            "expect_column_max_to_be_between has no argument `max`",
        ),
        (
            "quality: [{sink: totals, expectations: [{type: expect_column_max_to_be_between, max_value: 3}]}]",
            "expect_column_max_to_be_between needs `column`",
        ),
        (
            "quality: [{sink: totals, expectations: [{type: expect_column_to_exist, column: m, meta: {}}]}]",
            "`meta` is set by the gate itself",
        ),
        ("quality: [{sink: totals, expectations: [{type: drop_table}]}]", "expect_"),
    ],
)
def test_what_this_version_does_not_have_is_refused_by_name(text: str, reason: str) -> None:
    assert reason in refused(SPEC + text + "\n").message


def test_a_key_of_a_later_version_that_is_null_is_off_and_passes() -> None:
    text = SPEC.replace("event_time: at", "event_time: at\n    idle_timeout: null\n    forget_after: null")
    text += "checkpointing: {max_in_flight: null, epoch_budget: null}\nspark: {remote: null}\n"
    assert load(text).spec_hash == load(SPEC).spec_hash


def test_all_problems_of_a_file_come_together_in_the_order_of_the_file() -> None:
    text = SPEC.replace("csv", "cvs").replace("kind: aggregate", "kind: join").replace("mode: upsert", "mode: x")
    lines = [int(number) for number in re.findall(r"visits\.yaml:(\d+):", refused(text).message)]
    assert lines == [5, 11, 13]


def test_a_list_whose_items_are_all_refused_is_not_called_empty() -> None:
    text = SPEC.replace("inputs: [visits]", "inputs: [3]")
    text += "quality: [{sink: totals, expectations: [{type: expect_column_to_exist, column: m, severity: fatal}]}]\n"
    message = refused(text).message
    assert "(2 problems)" in message
    assert "expected one of critical, warning, info, got 'fatal'" in message
    assert "operators[0].inputs[0]: expected a text, got 3" in message


def test_a_spec_with_a_hundred_problems_stays_short() -> None:
    text = SPEC + "".join(f"bad{i}: 1\n" for i in range(100))
    error = refused(text)
    assert "100 problems" in error.message
    assert "… and 90 more" in error.message
    assert len(error.message.splitlines()) == 12


def test_the_spec_hash_depends_on_meaning_and_not_on_writing() -> None:
    same = "# a comment\n" + SPEC.replace("2h", "120m") + "spark: {parallelism: 2}\n"
    assert load(same).spec_hash == load(SPEC).spec_hash
    assert load(SPEC.replace("2h", "3h")).spec_hash != load(SPEC).spec_hash


def test_where_the_environment_names_no_server_the_master_is_used() -> None:
    job = load(SPEC + "spark: {master: 'local[3]', remote: '${env:REMOTE:-}'}\n")
    assert job.resolved({"REMOTE": "sc://far:1"}).spark.remote == "sc://far:1"
    assert (job.resolved({}).spark.remote, job.resolved({}).spark.master) == (None, "local[3]")


@pytest.mark.parametrize("key", [*FIXED, *LOOPBACK, *ELSEWHERE])
def test_a_setting_that_milepost_makes_is_refused_by_name(key: str) -> None:
    """What the protocol relies on is not the spec's to override."""
    with pytest.raises(InvalidRequest, match=rf"spark\.conf\.{re.escape(key)}: is set by Milepost \(.*\); remove it"):
        load(SPEC + f"spark: {{conf: {{{key}: 'x'}}}}\n")


def test_other_spark_settings_stay_the_spec_s() -> None:
    conf = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-Xss4m"}
    assert load(SPEC + f"spark: {{conf: {conf}}}\n").spec.spark.conf == conf
    cluster = {"spark.driver.host": "10.0.0.7"}
    assert load(SPEC + f"spark: {{master: 'spark://far:7077', conf: {cluster}}}\n").spec.spark.conf == cluster


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("sparc.driver.memory", "2g", "does not begin with `spark.`"),
        ("spark.driver.extraJavaOptions", "-Dpassword=${env:PASSWORD}", "is shown by the process list"),
    ],
)
def test_a_setting_that_would_be_ignored_or_shown_is_refused(key: str, value: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        load(SPEC + f"spark: {{conf: {{{key}: '{value}'}}}}\n")


@pytest.mark.parametrize("endpoint", ["http://user:s3cret@host:9000", "https://s3cret@host"])
def test_an_endpoint_with_a_password_is_refused_without_repeating_it(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidRequest, match="without user name and password") as written:
        load(SPEC + f"store: {{endpoint_url: '{endpoint}'}}\n")
    monkeypatch.setenv("ENDPOINT", endpoint)
    job = load(SPEC + "store: {endpoint_url: '${env:ENDPOINT}'}\n")
    with pytest.raises(InvalidRequest, match="without user name and password") as resolved:
        _ = job.job_store
    for caught in (written, resolved):
        error = caught.value
        assert "s3cret" not in f"{error.message} {error.hint} {error.details}"


def test_references_resolve_late_and_only_the_unresolved_text_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """INTERFACE 1: what is pinned, hashed, logged or shown is the unresolved text."""
    text = SPEC.replace("out/totals", "${env:LAKE:-out}/totals")
    text += "store: {endpoint_url: '${env:ENDPOINT}', region: '${env:REGION:-eu-west-1}'}\n"
    text += "spark: {conf: {spark.x: '${env:X:-1}'}}\n"
    job = load(text)
    with pytest.raises(InvalidRequest, match="the environment variable ENDPOINT is not set"):
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


def test_relative_locations_begin_at_the_folder_of_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "s3://lake")
    job = load(SPEC, Path("/jo bs/config/visits.yaml"))
    assert job.storage_url == "file:///jo bs/lake"
    assert job.job_store.url == "file:///jo bs/lake/visits"
    assert job.url("a/100%/*.csv") == "file:///jo bs/config/a/100%25/*.csv"
    assert job.url("file:///x/../y") == "file:///y"
    assert job.url("${env:LAKE}/t") == "s3://lake/t"


def test_a_loaded_job_travels_between_processes() -> None:
    job = load(SPEC)
    assert pickle.loads(pickle.dumps(job)) == job


def test_a_job_is_found_by_path_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").mkdir()
    file = tmp_path / "config" / "visits.yaml"
    file.write_text(SPEC, encoding="utf-8")
    assert load_job("visits", tmp_path) == load_job(file)
    monkeypatch.chdir(tmp_path)
    assert load_job("visits").path == file
    with pytest.raises(
        NotFound, match=r'there is no job visit: config/visit\.yaml does not exist\. Did you mean "visits"\?'
    ):
        load_job("visit")
    with pytest.raises(NotFound, match=r"there is no spec file \./nope\.yaml"):
        load_job("./nope.yaml")
    file.write_bytes(b"name: \xff\n")
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        load_job("visits")
