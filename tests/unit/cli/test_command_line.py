"""The `milepost` command: exit codes, one JSON document, short errors, and nothing heavy before it is needed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from milepost.cli.main import app_for
from milepost.cli.terminal.failures import report
from milepost.cli.terminal.output import Output
from milepost.cli.workspace import doctor
from milepost.errors import CheckpointError, InvalidRequest, QualityGateFailed, StateCorrupt
from milepost.jobmaster import local_disks
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.lint import json_schema, lint_report
from milepost.jobspec.load.load import load_job
from milepost.jobspec.picture.drawing import graph_picture
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.examples import EXAMPLES
from milepost_testkit.specs.spec_edits import edit_spec

COMMANDS = (
    "init lint schema doctor run list show history status read state verify abort cancel rollback start resume".split()  # noqa: SIM905
)


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory whose path has a space."""
    folder = tmp_path / "my jobs"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def milepost(*words: str) -> Result:
    return CliRunner().invoke(app_for(words), list(words))


def document(result: Result) -> dict[str, Any]:
    """The one JSON document of a `--json` call."""
    lines = result.stdout.splitlines()
    assert len(lines) == 1
    value = json.loads(lines[0])
    assert value["schema"] == "milepost/v1"
    return value


def test_help_lists_what_works_and_nothing_else() -> None:
    result = milepost("--help")
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ") and line[2] != " "]
    assert set(COMMANDS) <= set(listed)


@pytest.mark.parametrize(
    "command",
    [
        "lst",
        "list",
        "list x --bogus",
        "list x --status done",
        "list x --limit 0",
        "show x one",
        "run x --epochs 0",
        "run x --epochs 2 --until-caught-up",
        "run x --epochs 2 --drain",
        "savepoint delete x",
        "savepoint dispose x",
        "export x 3",
        "bootstrap x",
        "status x --max-lag 3",
        "read x s --format xlsx",
    ],
)
def test_a_usage_error_exits_2_and_names_the_mistake(workdir: Path, command: str) -> None:
    words = command.split()
    result = milepost(*words)
    assert result.exit_code == 2
    wording.matches("usage", result.stderr, replace={r" \(Possible options: .*\)": ""})
    assert result.stdout == ""
    as_json = document(milepost(*words, "--json"))
    assert as_json["ok"] is False
    assert as_json["error"]["exit_code"] == 2


def test_where_a_word_is_missing_those_that_could_stand_there_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SparklessJob.create(tmp_path)
    monkeypatch.chdir(job.folder)
    for words, there in ((["list"], "small"), (["state", "small"], "latest"), (["read", "small"], "table")):
        refused = milepost(*words)
        shown = refused.stderr.splitlines()[-1]
        assert refused.exit_code == 2 and there in shown
        wording.matches("usage", shown)
    wording.matches("usage", milepost("state", "unknown").stderr.splitlines()[-1])


def test_help_lists_the_commands_by_what_they_are_for() -> None:
    shown = milepost("--help").stdout
    groups = dict(re.findall(r"^([A-Z][^\n]+):\n((?:  [a-z].*\n)+)", shown, re.MULTILINE))
    wording.matches("milepost", groups)
    listed = {name: re.findall(r"^  ([a-z-]+)", text, re.MULTILINE) for name, text in groups.items()}
    first, second, *_, last = (names for heading, names in listed.items() if heading != "Options")
    assert first == ["init", "lint", "schema", "doctor", "test"]
    assert {"run", "spark-server"} <= set(second) and "savepoint" in last
    assert max(map(len, shown.splitlines())) <= 80
    assert "\nCommands:\n  create" in milepost("savepoint", "--help").stdout


def test_an_unknown_job_exits_3(workdir: Path) -> None:
    result = milepost("list", "flights", "--json")
    assert result.exit_code == 3
    error = document(result)["error"]
    assert error["class"] == "NotFound"
    assert "config/flights.yaml" in error["message"]
    wording.matches("list", error["message"])
    assert "Traceback" not in milepost("list", "flights").stderr


def test_init_writes_a_job_that_lints_and_never_overwrites(workdir: Path) -> None:
    result = milepost("init", "visits", "--json")
    assert result.exit_code == 0
    files = document(result)["data"]["files"]
    assert document(result)["data"]["missing_extras"] == []
    assert files == ["config/visits_data/2026-01-01.csv", "config/visits_data/2026-01-02.csv", "config/visits.yaml"]
    report_ = lint_report(load_job("visits"))
    assert [node["uid"] for node in report_["nodes"]] == ["visits", "known", "totals"]
    before = {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}
    again = milepost("init", "visits")
    assert again.exit_code == 2
    wording.matches("init", again.stderr)
    assert {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("job", "source", "sql"),
    [
        ("orders", "orders", "orders"),
        ("late-orders", "late_orders", "late_orders"),
        ("order", "order", "`order`"),
        ("totals", "totals_in", "totals_in"),
        ("true", "true", "`true`"),
        ("x-_y", "x_y", "x_y"),
    ],
)
def test_init_names_the_source_as_the_job(workdir: Path, job: str, source: str, sql: str) -> None:
    """As far as a source may be named so: not as an operator is, and quoted where SQL has a word of that name."""
    assert milepost("init", job).exit_code == 0
    loaded = load_job(job)
    assert loaded.spec.name == job and list(loaded.spec.sources) == [source]
    assert f"FROM {sql} WHERE" in loaded.text and source in loaded.graph().nodes["totals"].columns
    assert 'options: {delimiter: ";"}' in loaded.text


def test_init_says_how_another_engine_reads_the_table_that_its_job_writes(workdir: Path) -> None:
    told = re.search(r"`duckdb -c \"FROM delta_scan\('([^']+)'\)\"`", milepost("init", "visits").stderr)
    assert told is not None
    context = JobContext(load_job("visits"))
    assert context.spec.sinks[0].format == "delta"
    assert context.sink_config("totals").url == f"file://{workdir / told[1]}"


@pytest.mark.parametrize("name", ["../visits", "Visits", "a__b", "", "a b", "x" * 80])
def test_init_refuses_a_name_no_job_may_have(workdir: Path, name: str) -> None:
    result = milepost("init", name)
    assert result.exit_code == 2
    wording.matches("init", result.stderr)
    assert list(workdir.iterdir()) == []


def test_init_does_not_follow_a_link_out_of_the_folder(workdir: Path) -> None:
    (workdir / "config").mkdir()
    (workdir / "config" / "visits.yaml").symlink_to(workdir / "elsewhere")
    assert milepost("init", "visits").exit_code == 2
    assert not (workdir / "elsewhere").exists()


def test_lint_shows_the_graph_and_the_kinds_of_output(workdir: Path) -> None:
    milepost("init", "visits")
    result = milepost("lint", "visits")
    assert result.exit_code == 0, result.stderr
    wording.matches("lint", result.stdout)
    assert "totals" in result.stdout
    data = document(milepost("lint", "visits", "--json"))["data"]
    assert {node["uid"]: node["output"] for node in data["nodes"]} == {
        "visits": "append",
        "known": "append",
        "totals": "updates",
    }
    assert data["compatibility"] == []


def test_lint_explains_states_and_late_rows_and_draws_the_graph(workdir: Path) -> None:
    spec = str(EXAMPLES / "join.yaml")
    result = milepost("lint", spec, "--output", "graph.svg")
    wording.matches("lint", result.stdout)
    drawn = Path("graph.svg").read_text(encoding="utf-8")
    assert drawn == graph_picture(lint_report(load_job(spec)))
    again = milepost("lint", spec, "--output", "graph.svg")
    assert again.exit_code == 2
    wording.matches("lint", again.stderr)
    assert milepost("lint", spec, "--output", "graph.png").exit_code == 2


def test_lint_says_the_way_out_of_what_a_run_would_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.spark.driver.runner.SparkEpochRunner", SparklessRunner)
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    path = job.folder / "config" / "small.yaml"
    assert milepost("run", str(path)).exit_code == 0
    assert milepost("lint", str(path)).exit_code == 0
    edit_spec(path, {"{rows: count(*)}": "{rows: count(*), least: min(v)}"})
    result = milepost("lint", str(path))
    assert result.exit_code == 2
    wording.matches("lint", result.stderr)
    as_json = json.loads(milepost("lint", str(path), "--json").stdout)
    assert as_json["ok"] is False
    wording.matches("lint", as_json["data"]["hint"])


def test_lint_reports_all_problems_with_their_places(workdir: Path) -> None:
    milepost("init", "visits")
    spec = workdir / "config" / "visits.yaml"
    edit_spec(spec, {"event_time": "evnt_time", "kind: sql": "kind: sqll"})
    result = milepost("lint", "visits")
    assert result.exit_code == 2
    wording.matches("lint", result.stderr)
    assert len(result.stderr.splitlines()) <= 24
    problems = document(milepost("lint", "visits", "--json"))["error"]["details"]["problems"]
    assert [problem["line"] for problem in problems] == [11, 15]


@pytest.mark.long
def test_schema_prints_the_json_schema() -> None:
    assert json.loads(milepost("schema").stdout) == json_schema()
    assert document(milepost("schema", "--json"))["data"] == json_schema()


def test_doctor_names_each_check() -> None:
    result = milepost("doctor", "--json")
    checks = {check["check"]: check for check in document(result)["data"]["checks"]}
    assert {"python", "java", "milepost", "extra spark", "extra s3", "disk", "host name", "user"} <= set(checks)
    assert result.exit_code == (0 if all(check["ok"] for check in checks.values()) else 8)


def test_doctor_names_the_disk_of_a_job_s_storage_and_warns_of_one_that_fills(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each disk once, and the one below which a folder is to be made; a bucket has none."""
    milepost("init", "visits")
    size = {r"\b\d[\d.,]* GB": "{size}"}
    (disk,) = [line for line in milepost("doctor", "visits").stdout.splitlines() if str(workdir) in line]
    wording.matches("doctor", disk, replace=size)
    found = re.search(r"(\S+) GB", disk)
    assert found is not None and abs(float(found[1]) - shutil.disk_usage(workdir).free / 1e9) < 5
    monkeypatch.setattr(doctor, "_ADVISED_BYTES", 1 << 60)
    result = milepost("doctor", "visits")
    (line,) = [line for line in result.stdout.splitlines() if str(workdir) in line]
    wording.matches("doctor", line, replace=size)
    spec = workdir / "config" / "visits.yaml"
    spec.write_text(spec.read_text().replace("../.milepost", "s3://bucket/any"))
    assert local_disks(JobContext(load_job("visits"))) == {}


@pytest.mark.long
def test_doctor_builds_the_expectations_of_a_job(workdir: Path) -> None:
    """An argument that the library alone refuses is found by asking, not by the epoch that it would have ended."""
    assert milepost("init", "orders").exit_code == 0
    spec = workdir / "config" / "orders.yaml"
    text, verdicts = spec.read_text(), {}
    for bound in ("min_value: 0", "min_value: 0, windows: 3"):
        spec.write_text(text.replace("min_value: 0", bound))
        result = milepost("doctor", "orders", "--json")
        checks = {check["check"]: check for check in document(result)["data"]["checks"]}
        verdicts[bound] = (checks["quality: totals"]["ok"], checks["quality: totals"]["detail"], result.exit_code)
    good, bad = verdicts.values()
    assert (good[0], good[2]) == (True, 0)
    wording.matches("doctor", good[1])
    assert (bad[0], bad[2]) == (False, 8) and "`windows`" in bad[1]


def test_help_of_verify_states_the_checks() -> None:
    (line,) = re.findall(r"^ +\[ID\] .*", milepost("verify", "--help").stdout, re.MULTILINE)
    wording.matches("verify", re.split(r" {2,}", line.strip())[1])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("bad"), 2),
        (QualityGateFailed("gate"), 5),
        (StateCorrupt("torn"), 7),
        (KeyboardInterrupt(), 130),
        (RuntimeError("boom\nmore"), 1),
    ],
)
def test_each_error_has_its_exit_code(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(error, Output()) == code
    assert report(error, Output(json=True)) == code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["exit_code"] == code
    assert "Traceback" not in printed.err


def test_an_error_has_at_most_24_lines_and_a_trace_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    error = CheckpointError("\n".join(f"line {i}" for i in range(100)), hint="do this")
    report(error, Output())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 24
    assert "unexpected-error" in lines[-2] and lines[-1].lower() == "do this"
    try:
        raise RuntimeError("boom")
    except RuntimeError as caught:
        report(caught, Output())
        wording.matches("milepost", capsys.readouterr().err)
        report(caught, Output(verbose=True))
        assert "Traceback" in capsys.readouterr().err


def test_text_from_data_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(["a", "n"], [["\x1b[31mred\nline", 1], [None, 20]])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 4


def _run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env, check=False, timeout=240)


@pytest.mark.deep
def test_the_module_is_the_command() -> None:
    result = _run("-m", "milepost", "lst", "x")
    assert result.returncode == 2
    wording.matches("milepost", result.stderr)


def test_exit_handlers_run_and_the_exit_code_stays() -> None:
    code = (
        "import atexit, sys\nimport milepost.cli.main as cli\nfrom milepost.__main__ import main\nreal = cli.app\n"
        "def app(**words):\n    atexit.register(print, 'at the end')\n    real(**words)\n"
        "cli.app_for = lambda words: app\nsys.argv = ['milepost', 'lst', 'x']\nmain()"
    )
    result = _run("-c", code)
    assert (result.returncode, result.stdout) == (2, "at the end\n")
    wording.matches("milepost", result.stderr)


@pytest.mark.deep
def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom milepost.cli.main import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = ('pyspark', 'pyarrow', 'pandas', 'airflow', 'great_expectations', 'boto3', 'sqlglot', 'pydantic')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    assert _run("-c", code).stderr.strip() == "[]"


@pytest.mark.deep
def test_the_job_master_imports_neither_spark_nor_pandas() -> None:
    code = (
        "import sys\nimport milepost.jobmaster.jobmaster\n"
        "print([m for m in ('pyspark', 'pandas', 'airflow', 'great_expectations', 'boto3') if m in sys.modules])"
    )
    assert _run("-c", code).stdout.strip() == "[]"


@pytest.mark.long
@pytest.mark.parametrize("word", ["schema", "--version"])
def test_output_without_a_reader_is_no_error(word: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "milepost", word]
    result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.deep
def test_a_closed_pipe_is_no_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m milepost schema | head -c 10"
    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert result.stderr == ""
