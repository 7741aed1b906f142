"""Format `dlt`: a dlt resource is landed without a destination, and its state is the position."""

from __future__ import annotations

import json
import multiprocessing
import random
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from milepost.errors import InvalidRequest, SourceUnreachable
from milepost.jobmaster.landing.lander import Lander, Landing
from milepost.language import parse_type
from milepost.sources.landed import LandedSource, Reached, open_dlt_source
from milepost.storage.log import SourceLog
from milepost_testkit.processes.processes import wait_until
from milepost_testkit.stores.memory_store import MemoryStore
from scripts.processes import ROOT

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs" / "how-to" / "land-with-dlt.md").read_text("utf-8")
TYPES = {"id": parse_type("int64"), "v": parse_type("string")}
IDENTITY = {"format": "dlt", "resource": "feeds:rows"}

NUMBERS = """\
import json
from pathlib import Path

import dlt

@dlt.resource(name="rows", write_disposition="append")
def rows(id=dlt.sources.incremental("id", initial_value=-1)):
    yield [row for row in json.loads(Path(FILE).read_text()) if row["id"] >= id.last_value]
"""


DISPOSITION = 'import dlt\n@dlt.resource(write_disposition="{}")\ndef rows():\n    yield []\n'
SEVERAL_TABLES = """\
import dlt
@dlt.resource
def rows():
    for name in "ab":
        yield dlt.mark.with_table_name([{"id": 1}], name)
"""
LARGE_STATE = """\
import dlt
@dlt.resource
def rows():
    dlt.current.resource_state()["x"] = "y" * 1_000_001
    yield []
"""


class Feed:
    """A module `feeds` with the resource `rows`, which reads the rows of a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = folder / "rows.json"
        self.rows.write_text("[]")
        self.write(NUMBERS)

    def write(self, code: str) -> None:
        (self.folder / "feeds.py").write_text(code.replace("FILE", repr(str(self.rows))))

    def produce(self, *rows: dict[str, Any]) -> None:
        self.rows.write_text(json.dumps(json.loads(self.rows.read_text()) + list(rows)))

    def open(self, types: Any = None) -> LandedSource:
        return open_dlt_source("feed", IDENTITY, "feeds:rows", self.folder, types or TYPES)

    def read(self, position: Any, types: Any = None) -> tuple[list[dict[str, Any]], Any]:
        source = self.open(types)
        pull = source.next_pull(position)
        assert pull is not None
        *batches, reached = source.read(pull.splits[0])
        assert isinstance(reached, Reached)
        return [row for batch in batches for row in batch.to_pylist()], reached.position  # type: ignore[union-attr]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path)


def test_a_landing_reads_from_the_state_of_the_one_before(feed: Feed) -> None:
    feed.produce({"id": 1, "v": "a"}, {"id": 2, "v": "b"})
    rows, position = feed.read({})
    assert rows == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    assert feed.read(position) == ([], position)
    feed.produce({"id": 3, "v": "c"})
    assert feed.read(position)[0] == [{"id": 3, "v": "c"}]


@pytest.mark.deep
def test_the_same_position_gives_the_same_rows_and_the_same_end(feed: Feed) -> None:
    feed.produce(*({"id": 5, "v": str(n)} for n in range(20)))
    assert feed.read({}) == feed.read({})


@pytest.mark.deep
def test_columns_are_those_of_the_schema(feed: Feed) -> None:
    feed.produce({"id": 1, "v": None, "more": 3, "nested": {"a": [1]}})
    types = {**TYPES, "nested": parse_type("string")}
    assert feed.read({}, types)[0] == [{"id": 1, "v": None, "nested": '{"a":[1]}'}]


@pytest.mark.deep
def test_a_value_of_another_type_fails_the_landing(feed: Feed) -> None:
    feed.produce({"id": 1, "v": 5}, {"id": 2, "v": "b"})
    with pytest.raises(InvalidRequest, match=r"row .*does not fit .*: column v: dlt expected bigint, got text"):
        feed.read({}, {**TYPES, "v": TYPES["id"]})


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        pytest.param(DISPOSITION.format("replace"), "got 'replace'", id="replace"),
        ("other = 5\n", "to be or return a dlt resource, got NoneType"),
    ],
)
def test_what_cannot_be_landed_is_refused_with_the_reason(feed: Feed, code: str, problem: str) -> None:
    feed.write(code)
    with pytest.raises(InvalidRequest, match=problem):
        feed.read({})


@pytest.mark.deep
@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (
            'import dlt\n@dlt.resource(write_disposition="merge")\ndef rows():\n    yield []\n',
            "primary_key or merge_key",
        ),
        ("rows = 5\n", "to be or return a dlt resource, got int"),
        ("import dlt\n1 / 0\n", r"ZeroDivisionError.*feeds\.py, line 2"),
        (DISPOSITION.replace('write_disposition="{}"', "table_name=lambda row: row['v']"), "must be fixed"),
        (SEVERAL_TABLES, "rows of one table, got a, b"),
        (
            "import dlt\n@dlt.source\ndef rows():\n    return [dlt.resource([1], name=n) for n in 'ab']\n",
            "got the resources a, b",
        ),
        (LARGE_STATE, "more than the 1,000,000 of a position"),
    ],
)
def test_more_that_cannot_be_landed_is_refused_with_the_reason(feed: Feed, code: str, problem: str) -> None:
    feed.write(code)
    with pytest.raises(InvalidRequest, match=problem):
        feed.read({})


def test_an_error_of_the_resource_names_the_line_and_hides_secrets(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCES__TOKEN", "s3cr3t-value")
    feed.write(
        "import dlt\n@dlt.resource\ndef rows(token: str = dlt.secrets.value):\n    raise OSError(f'401 for {token}')\n"
    )
    with pytest.raises(SourceUnreachable, match=r"OSError: 401 for \*\*\* \(.*feeds\.py, line 4\)"):
        feed.read({})


def test_a_secret_never_becomes_part_of_a_position(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCES__TOKEN", "s3cr3t-value")
    feed.write(
        "import dlt\n@dlt.resource\ndef rows(token: str = dlt.secrets.value):\n"
        "    dlt.current.resource_state()['at'] = f'x{token}'\n    yield [{'id': 1}]\n"
    )
    with pytest.raises(InvalidRequest, match="value of the secret") as refused:
        feed.read({})
    assert "s3cr3t-value" not in refused.value.full_message()


@pytest.mark.parametrize(
    ("settings", "landed"),
    [({}, []), pytest.param({"PROVIDERS__ENABLE_AIRFLOW_SECRETS": "true"}, [1], marks=pytest.mark.deep)],
    ids=["by default", "if the environment says so"],
)
def test_settings_are_requested_from_airflow_only_if_the_environment_says_so(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], landed: list[int]
) -> None:
    for name, value in {**settings, "AIRFLOW_VAR_DLT_SECRETS_TOML": "[sources]\nfirst = 1"}.items():
        monkeypatch.setenv(name, value)
    feed.write("import dlt\n@dlt.resource\ndef rows(first: int = dlt.config.value):\n    yield [{'id': first}]\n")
    if landed:
        assert [row["id"] for row in feed.read({})[0]] == landed
    else:
        with pytest.raises(InvalidRequest, match="no value of its settings first: neither SOURCES__FEEDS__ROWS__FIRST"):
            feed.read({})


def test_nothing_is_written_outside_of_a_folder_that_is_removed(
    feed: Feed, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, temporary = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    feed.produce({"id": 1, "v": "a"})
    feed.read({})
    assert not list(home.iterdir()) and not list(temporary.iterdir())
    assert {path.name for path in feed.folder.iterdir()} - {"__pycache__"} == {"feeds.py", "rows.json"}


@pytest.mark.deep
def test_under_kills_and_lost_replies_each_row_is_landed_once(feed: Feed) -> None:
    """A landing that stops anywhere is followed by one that reads from the newest record."""
    chance, store = random.Random(7), MemoryStore("memory://landed")
    log = SourceLog(store, "feed")
    produced = 0

    class Killed(Exception):
        pass

    class Interrupted(SourceLog):
        fate = ""

        def append(self, record: Any) -> Any:
            if self.fate == "before":
                raise Killed
            stored = super().append(record)
            if self.fate == "after" and record.sequence > 1:
                raise Killed
            return stored

    def land(fate: str) -> Landing | None:
        interrupted = Interrupted(store, "feed")
        interrupted.fate = fate
        try:
            return Lander(interrupted, feed.open(), "job").land()
        except Killed:
            return None

    for _ in range(3):
        count = chance.randrange(1, 4)
        feed.produce(*({"id": produced + n, "v": "x"} for n in range(count)))
        produced += count
        land(chance.choice(["before", "after", ""]))
    land("")
    newest = log.newest()
    assert newest is not None
    assert newest.record.total_rows == produced
    assert feed.read(newest.record.end)[0] == []


WAITING = """\
import os
import time
from pathlib import Path

import dlt


@dlt.resource(write_disposition="append")
def rows():
    Path(FILE).with_name("pid").write_text(str(os.getpid()))
    time.sleep(600)
    yield []
"""


def read_for_ever(folder: Path) -> None:
    Feed(folder).write(WAITING)
    feed = open_dlt_source("feed", IDENTITY, "feeds:rows", folder, TYPES)
    pull = feed.next_pull({})
    assert pull is not None
    list(feed.read(pull.splits[0]))


@pytest.mark.deep
def test_the_process_of_a_killed_landing_ends_too(tmp_path: Path) -> None:
    landing = multiprocessing.get_context("spawn").Process(target=read_for_ever, args=(tmp_path,))
    landing.start()
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and pid.read_text() != "", seconds=60, what="the resource to begin")
    resource = psutil.Process(int(pid.read_text()))
    landing.kill()
    landing.join()
    resource.wait(timeout=30)
    assert not resource.is_running()


class _Orders(BaseHTTPRequestHandler):
    """Two orders per page, by `since`."""

    orders: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        query = {key: value[0] for key, value in parse_qs(urlsplit(self.path).query).items()}
        found = [order for order in self.orders if order["updated_at"] >= query["since"]]
        first = int(query.get("page", 0)) * 2
        more = f"http://{self.headers['Host']}/?since={query['since']}&page={first // 2 + 1}"
        body = json.dumps({"orders": found[first : first + 2], "next": more if len(found) > first + 2 else None})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None:
        """Do not print requests."""


@pytest.fixture
def shop() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Orders)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.deep
def test_the_example_of_the_page_lands_the_pages_of_an_api(
    tmp_path: Path, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from milepost.jobmaster import JobMaster, Session
    from milepost.jobspec.load import load_job
    from milepost_testkit.runners.sparkless_runner import SparklessRunner

    (python,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (spec,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "shop.py").write_text(python)
    (folder / "shop.yaml").write_text(spec)
    monkeypatch.setenv("SOURCES__SHOP__ORDERS__URL", shop)
    times = [f"2026-03-0{day}T00:00:00Z" for day in (1, 2, 2, 3, 4)]
    _Orders.orders = [{"id": n, "updated_at": at, "total": n * 1.5} for n, at in enumerate(times)]

    def master() -> JobMaster:
        return JobMaster(load_job(str(folder / "shop.yaml")))

    for last in (5, 6):
        report = master().landings.land()
        assert not report.failed, report.failed
        master().epochs.run(Session.cli(), SparklessRunner())
        assert sorted(row["id"] for row in master().reports.read("orders").to_pylist()) == list(range(last))
        _Orders.orders.append({"id": 5, "updated_at": "2026-03-05T00:00:00Z", "total": 9.0, "note": "last"})
