"""The session has the requested settings, and no command line shows them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import EnvironmentUnusable, SparkLost
from milepost.jobspec.job.spec import SparkSpec
from milepost.protocol.failure.restart import is_curable
from milepost.spark.driver.engines import session
from milepost.spark.driver.engines.session import open_session
from milepost_testkit import wording

SESSIONS = """
import contextlib, glob, json, os, psutil, stat
from milepost.jobspec.job.spec import SparkSpec
from milepost.errors import EnvironmentUnusable
from milepost.spark.driver.engines.session import open_session

SECRET = "s3cr3t = x: #! \\\\ é \U0001f600"
fixed = {"spark.hadoop.fs.s3a.secret.key": SECRET, "spark.driver.memory": "512m"}

def spec(**conf):
    return SparkSpec(master="local[1]", conf={**fixed, **conf})

def shuffles(session):
    return session.conf.get("spark.sql.shuffle.partitions")

unanswered = {}
for master in ("spark://localhost:1", "spark://localhost:1,[::1]:1"):
    try:
        open_session("none", SparkSpec(master=master))
    except EnvironmentUnusable as error:
        unanswered[master] = error.message, len(psutil.Process().children())

try:
    open_session("none", spec(**{"spark.driver.maxResultSize": "nonsense"}))
except EnvironmentUnusable as error:
    not_started = error.message

session = open_session("one", spec(**{"spark.sql.shuffle.partitions": "7"}))
conf = session.sparkContext.getConf()

def command_lines():
    lines = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # one that has just ended shows nothing any more
            lines.append(process.cmdline())
    return lines

def worker(batches):
    import gc, pyarrow, sys
    known = "milepost.spark.task.level_task" in sys.modules and gc.get_freeze_count() > 100_000
    yield pyarrow.record_batch({"known": [known for batch in batches for row in range(batch.num_rows)]})

report = {
    "ready workers": [row.known for row in session.range(1).mapInArrow(worker, "known boolean").collect()],
    "secret": conf.get("spark.hadoop.fs.s3a.secret.key") == SECRET,
    "master": conf.get("spark.master"),
    "loopback": conf.get("spark.driver.host"),
    "ansi": session.conf.get("spark.sql.ansi.enabled"),
    "adaptive": session.conf.get("spark.sql.adaptive.enabled"),
    "heap": [word for line in command_lines() for word in line if word == "-Xmx512m"],
    "shown": [line for line in command_lines() if "s3cr3t" in " ".join(line)],
    "left": os.listdir(os.environ["TMPDIR"]) and glob.glob(os.environ["TMPDIR"] + "/milepost-spark-*"),
    "environment": os.environ.get("PYSPARK_SUBMIT_ARGS"),
    "sockets": conf.get("spark.python.unix.domain.socket.dir"),
    "not started": not_started,
    "unanswered": unanswered,
    "shuffles": [shuffles(session)],
}
report["shuffles"].append(shuffles(open_session("two", spec(**{"spark.sql.shuffle.partitions": "9"}))))
report["shuffles"].append(shuffles(open_session("three", spec())))
try:
    open_session("four", spec(**{"spark.hadoop.fs.s3a.secret.key": "an0ther", "spark.sql.shuffle.partitions": "5"}))
except EnvironmentUnusable as error:
    report["refusal"] = error.message + " " + error.hint
report["shuffles"].append(shuffles(session))
report["rights"] = stat.S_IMODE(os.stat(report["sockets"]).st_mode)
report["names"] = os.listdir(report["sockets"])
print(json.dumps(report), flush=True)
os._exit(0)  # as a task of Airflow ends
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process of its own saw of the sessions it opened."""
    folder = tmp_path_factory.mktemp("tmp")
    result = subprocess.run(
        [sys.executable, "-c", SESSIONS],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


def test_settings_reach_spark_and_no_command_line(report: dict[str, Any]) -> None:
    """Secrets never in argv: `spark.conf` may hold them, and the process list is everybody's."""
    assert report["secret"] and report["heap"] == ["-Xmx512m"]
    assert report["shown"] == []
    assert report["left"] == [] and report["environment"] is None


def test_what_the_protocol_relies_on_is_set(report: dict[str, Any]) -> None:
    settings = {name: report[name] for name in ("master", "loopback", "ansi", "adaptive")}
    assert settings == {"master": "local[1,3]", "loopback": "127.0.0.1", "ansi": "true", "adaptive": "false"}


def test_workers_are_forked_with_their_imports_done_and_never_walk_them_again(report: dict[str, Any]) -> None:
    assert report["ready workers"] == [True]


def test_workers_are_reached_by_this_user_alone_and_nothing_of_it_is_left(report: dict[str, Any]) -> None:
    """The JVM, whose output the fixture has read to its end, takes the sockets with it."""
    assert report["rights"] == 0o700 and report["names"]
    assert not Path(report["sockets"]).exists()


def test_a_start_that_spark_refuses_is_reported_in_its_words_and_the_next_one_succeeds(report: dict[str, Any]) -> None:
    """Java's error lives in the JVM, which is ended: what it says is read before."""
    assert "local[1,3]" in report["not started"]
    assert "nonsense" in report["not started"]
    wording.matches("EnvironmentUnusable", report["not started"], replace={r"(?<=\]: ).*(?=\. Nothing)": "{why}"})


def test_a_cluster_whose_master_does_not_answer_is_refused_at_once(report: dict[str, Any]) -> None:
    """Nothing is started: Spark would try for a minute, and then say that it is stopped."""
    assert len(report["unanswered"]) == 2
    for master, (message, started) in report["unanswered"].items():
        assert f" {master}: " in message
        assert not started


def test_a_master_that_has_run_spark_of_this_process_is_lost_and_not_a_wrong_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Restarts try again until it is back; for a process that never ran on it the address may be wrong."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setattr(session, "_opened", {"spark.master": master})
    monkeypatch.setattr(session, "_running", lambda settings: None)  # it has ended
    with wording.raises(SparkLost) as lost:
        open_session("one", SparkSpec(master=master))
    assert master in str(lost.value)
    assert is_curable(lost.value)
    with wording.raises(EnvironmentUnusable) as unknown:
        open_session("one", SparkSpec(master="spark://localhost:1"))
    assert not is_curable(unknown.value)


def test_a_start_that_fails_by_settings_that_one_before_had_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a master that goes away while Spark registers with it: no setting is to be corrected."""
    settings = {"spark.master": "spark://there:7077", "spark.driver.memory": "1g"}
    monkeypatch.setattr(session, "_opened", dict(settings))
    again = session._not_started(settings, "it is stopped")
    assert is_curable(again)
    wording.describes(again)
    other = session._not_started({**settings, "spark.driver.memory": "nonsense"}, "it is stopped")
    assert not is_curable(other)
    wording.describes(other)


def test_another_job_of_the_process_has_its_own_settings_or_is_refused(report: dict[str, Any]) -> None:
    """What can change is changed and taken back; a refusal names what cannot, not its value, and changes nothing."""
    assert report["shuffles"] == ["7", "9", "200", "200"]
    wording.matches("EnvironmentUnusable", report["refusal"])
    assert "spark.hadoop.fs.s3a.secret.key" in report["refusal"] and "an0ther" not in report["refusal"]
