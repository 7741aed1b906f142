"""How long a person waits for a page of 50 jobs with 10,000 epochs each, in a new API server and in a warm one.

Each job has a window, two sinks, a quality rule, 20 retained checkpoints and the stored figures of every epoch. The
pages are those that Airflow's API server mounts, with Airflow's own database and checks of permissions, in a process
of its own. They are read from a local disk, and from an S3 server behind a delay.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from bench.machine import OthersMeter
from bench.rounds import Say
from milepost_testkit.proxies.delaying_proxy import DelayingProxy
from milepost_testkit.servers.s3_servers import Seaweed
from scripts.processes import PYTHON_PATH

DELAY_MS, BOUND_S, LATER = 20, 1.0, 5
STORES = ("local", "s3")
REAL_EPOCHS, RETAINED, STEP_MS = 3, 20, 300_000
_ENDPOINT = "MILEPOST_BENCH_ENDPOINT"
_JOB = "/jobs/job00__epoch"
PAGES = {
    "all jobs": "/jobs",
    "all tables": "/tables",
    "overview": _JOB,
    "checkpoints": f"{_JOB}/checkpoints",
    "charts": f"{_JOB}/charts",
    "charts of 240 epochs": f"{_JOB}/charts?epochs=240",
    "summary": f"{_JOB}/summary",
    "rewind points": f"{_JOB}/rewind",
    "log": f"{_JOB}/log",
    "table": f"{_JOB}/tables/receipts",
}
"""Name of a page -> its address. Each is the first of its process in one measurement."""

SPEC = """\
name: {name}
storage: {root}/store
{store}sources:
  sales: {{format: csv, path: "{root}/landing/{name}/*.csv", settle: 0s, event_time: at,
    limits_per_epoch: {{max_files: 1}}, schema: {{id: int64, shop: string, amount: int64, at: "timestamp[us, UTC]"}}}}
operators:
  - {{uid: per_minute, kind: window, inputs: [sales], key: [shop], window: {{tumbling: 1m}},
     aggregates: {{n: count(*), total: sum(amount)}}}}
sinks:
  - {{name: per_minute, input: per_minute, format: parquet, path: "{root}/lake/{name}/per_minute", mode: append}}
  - {{name: receipts, input: sales, format: parquet, path: "{root}/lake/{name}/receipts", mode: append}}
quality:
  - sink: receipts
    expectations:
      - {{type: expect_column_values_to_be_between, column: amount, min_value: 0, max_value: 500, severity: critical}}
checkpointing: {{retained: {{last: {retained}}}}}
"""


def measure_pages(store: str, jobs: int, epochs: int, rounds: int, folder: Path, say: Say) -> dict[str, Any]:
    """Make the jobs in a store, then load each page as the first of a new process, and again. Returns the record.

    Raises: subprocess.CalledProcessError: a page was not answered.
    """
    shutil.rmtree(folder / store, ignore_errors=True)
    found = dict[str, list[dict[str, Any]]]()
    with _stored(store, folder / store) as environment:
        _child("make", folder / store, environment, str(jobs), str(epochs))
        say(f"pages: {jobs} jobs of {epochs} epochs are in the store {store}")
        others = OthersMeter()
        for number in range(rounds):
            for name, address in PAGES.items():
                found.setdefault(name, []).append(_child("load", folder / store, environment, address))
            say(f"pages: {store}, round {number + 1} of {rounds}")
        return {"jobs": jobs, "epochs": epochs, "pages": found, "other_busy_cores": others.cores()}


@contextmanager
def _stored(store: str, folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of the processes that read the store."""
    folder.mkdir(parents=True)
    own = {"AIRFLOW_HOME": str(folder / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    environment = {**os.environ, **own, "PYTHONPATH": PYTHON_PATH, "AIRFLOW__API_AUTH__JWT_SECRET": "0" * 64}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if store == "local":
        yield environment
        return
    server = Seaweed(folder / "server")
    server.start()
    try:
        bucket = server.new_bucket()
        with DelayingProxy(server.port, DELAY_MS / 1000) as proxy:
            own = {"MILEPOST_BENCH_BUCKET": bucket, _ENDPOINT: proxy.endpoint_url}
            yield environment | server.environment() | own
    finally:
        server.stop(kill=True)


def _child(what: str, folder: Path, environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "bench.studies.page_times", what, str(folder), *arguments]
    cache = {"MILEPOST_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(words, env=environment | cache, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def summary_of(loads: list[dict[str, Any]]) -> dict[str, float]:
    """Return the medians of a page: of its first loads, and of all later ones."""
    later = [one for load in loads for one in load["later"]]
    return {
        f"{when}_{figure}": median(one[figure] for one in those)
        for when, those in (("first", [load["first"] for load in loads]), ("later", later))
        for figure in ("wall_s", "cpu_s")
    }


def render_pages(document: dict[str, Any]) -> str:
    """Return the report."""
    lines = [
        "# What a page takes",
        "",
        "Pages of many jobs in Airflow's API server, by `python -m bench pages`. *First* is the first page of a new",
        "server, with what it imports and without any cache. *Later* are the same pages again. Medians. The target is",
        f"{BOUND_S:g} s of waiting for each. The store `s3` answers each request after {DELAY_MS} ms.",
    ]
    for store, record in document["pages"].items():
        lines += [
            "",
            f"## {store}",
            "",
            f"{record['jobs']} jobs of {record['epochs']:,} epochs each, at commit {record['commit']}. Other processes",
            f"kept {record['other_busy_cores']:.2f} of {record['machine']['cores']} cores busy.",
            "",
            "| page | first s | CPU s | | later s | CPU s | |",
            "|---|---:|---:|---|---:|---:|---|",
        ]
        for name, loads in record["pages"].items():
            found = summary_of(loads)
            cells = [
                f"{found[f'{when}_wall_s']:.2f} | {found[f'{when}_cpu_s']:.2f} | "
                + ("met" if found[f"{when}_wall_s"] <= BOUND_S else "**missed**")
                for when in ("first", "later")
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _make(folder: Path, jobs: int, epochs: int) -> dict[str, Any]:
    """Make the jobs, and Airflow's database with their DAGs."""
    import pytest

    from milepost.airflow.dags.dag_factory import job_dags
    from milepost_testkit.airflow.page_client import page_client

    bucket = os.environ.get("MILEPOST_BENCH_BUCKET")
    root = folder.absolute().as_uri() if bucket is None else f"s3://{bucket}"
    store = "" if bucket is None else f'store: {{endpoint_url: "${{env:{_ENDPOINT}}}", region: us-east-1}}\n'
    (folder / "config").mkdir()
    (folder / "airflow").mkdir(exist_ok=True)
    days: dict[str, bytes] = {}
    for number in range(jobs):
        name = f"job{number:02}"
        spec = folder / "config" / f"{name}.yaml"
        spec.write_text(SPEC.format(name=name, root=root, store=store, retained=RETAINED), encoding="utf-8")
        _run_epochs(spec, f"{root}/landing/{name}", epochs, days)
    with pytest.MonkeyPatch.context() as patch:
        page_client(patch, *job_dags(folder / "config").values())
        from airflow import settings

        database = settings.NonScopedSession.kw["bind"].url.database
        shutil.copy(database, folder / "airflow.db")
    return {}


def _run_epochs(spec: Path, landing: str, epochs: int, days: dict[str, bytes]) -> None:
    """Run a few epochs, and let the job look as if it had run many. days: figures by key; {}: made and added."""
    from milepost.jobmaster import JobMaster, Session
    from milepost.jobmaster.job.context import JobContext
    from milepost.jobspec.load.load import load_job
    from milepost.protocol.records import FIGURES_PREFIX
    from milepost.storage.open import open_store
    from milepost_testkit.jobs.sparkless.long_history import prolong_history
    from milepost_testkit.jobs.stored_figures import epoch_rows, store_rows
    from milepost_testkit.runners.sparkless_runner import SparklessRunner

    loaded = load_job(spec)
    store, end = open_store(loaded.store_config(landing)), datetime.now(UTC).replace(second=0, microsecond=0)
    for number in range(REAL_EPOCHS):
        minute = end - timedelta(minutes=REAL_EPOCHS - number)
        rows = [f"{row},{'north' if row % 2 else 'south'},{row % 90},{minute:%Y-%m-%dT%H:%M:%S}Z" for row in range(300)]
        store.put(f"{number:04}.csv", ("id,shop,amount,at\n" + "\n".join(rows) + "\n").encode())
        JobMaster(loaded).epochs.run(Session.cli(), SparklessRunner())
    context = JobContext(loaded)
    prolong_history(context, epochs, RETAINED)
    # The few epochs that ran have other figures now.
    context.store.delete([stat.key for stat in context.store.list(FIGURES_PREFIX)])
    if not days:
        store_rows(context, epoch_rows(epochs, context.store.clock_ms() - 60_000, STEP_MS, version=1))
        days |= {stat.key: context.store.get(stat.key) for stat in context.store.list(FIGURES_PREFIX)}
    for key, body in days.items():
        context.store.put(key, body)


def _load(folder: Path, address: str) -> dict[str, Any]:
    """Load a page in this process, as a server that has just started; then again."""
    database = folder / f"airflow-{os.getpid()}.db"
    shutil.copy(folder / "airflow.db", database)
    os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{database}"
    from milepost.airflow.page.jobs import job_reader
    from milepost.airflow.page.pages import pages
    from milepost_testkit.airflow.page_client import PageClient, login_of

    job_reader.TIMEOUT_S = 300.0  # a page that shows less after a timeout would look quick
    client = PageClient(pages, login_of("user"))
    client.logged_out().get("/runbook/failed")  # the server itself is up
    first, *later = [_timed(client, address) for _ in range(1 + LATER)]
    database.unlink()
    return {"first": first, "later": later}


def _timed(client: Any, address: str) -> dict[str, float]:
    started, used = time.perf_counter(), time.process_time()
    answer = client.get(address)
    if answer.status_code != 200:
        raise RuntimeError(f"{address}: status {answer.status_code}: {answer.text[:2000]}")
    return {"wall_s": time.perf_counter() - started, "cpu_s": time.process_time() - used, "bytes": len(answer.content)}


def main(what: str, folder: str, *arguments: str) -> None:
    done = _make(Path(folder), *map(int, arguments)) if what == "make" else _load(Path(folder), *arguments)
    print(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
