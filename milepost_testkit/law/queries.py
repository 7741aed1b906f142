"""The laws of SQL: each table equals DuckDB's answer to its query, also after an edit with its verdict."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from milepost.epoch import EpochRunner
from milepost.errors import InvalidRequest
from milepost.jobmaster import CheckpointReport, Session
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.models.data.random_sql import Draws, random_query, random_statements

QUERIES_PER_JOB = 8
"""An epoch of eight queries takes little longer than one of a single query."""


def hold_queries(seed: int, folder: Path, runner: EpochRunner, count: int = QUERIES_PER_JOB) -> Counter[str]:
    """Run a job of random queries, and compare each table after each epoch. Returns the covered cases."""
    queries = {f"v{number}": random_query(Draws(seed * count + number)) for number in range(count)}
    job = SqlJob(folder, _sql_of(queries))
    for _ in range(2):
        job.run(runner)
        for name, query in queries.items():
            job.check(name, query)
    return Counter({"queries": count})


def hold_edit(seed: int, folder: Path, runner: EpochRunner) -> Counter[str]:
    """Edit a job of random statements, and follow the verdict. Returns the covered cases.

    After a refill the tables equal the new queries, and a rollback leads back to the former ones. What is refused
    equals them after a backfill.
    """
    draws = Draws(seed)
    before = random_statements(draws)
    after = random_statements(draws.edited(seed))
    job = SqlJob(folder, _sql_of(before))
    job.run(runner)
    first = job.run(runner).checkpoint_id
    _check(job, before)
    job.write(_sql_of(after))
    verdict = _verdict(job)
    if verdict == "another table":
        return Counter({verdict: 1})
    if verdict == "backfill":
        back_fill(job.master, runner, from_checkpoint=0)
    else:
        refilled = job.master.epochs.run(Session.cli(), runner)
        assert isinstance(refilled, CheckpointReport) == (verdict == "refill")
    _check(job, after)
    job.run(runner)
    _check(job, after)
    if verdict == "refill" and seed % 3 == 0:
        _check_rollback(job, first, before, runner)
    return Counter({verdict: 1})


def _verdict(job: SqlJob) -> str:
    """Return what an edit does: unchanged, refill, backfill, or another table, whose columns or key would change."""
    report = job.master.reports.compatibility()
    verdicts = {row["verdict"] for row in report if row["outcome"] == "refused"}
    if any("sink name" in verdict and "backfill" not in verdict for verdict in verdicts):
        return "another table"
    if verdicts:
        return "backfill"
    return "refill" if any(row["outcome"] in ("refilled", "new") for row in report) else "unchanged"


def _check_rollback(job: SqlJob, to: int, before: dict[str, str], runner: EpochRunner) -> None:
    from milepost_testkit.jobs.rollbacks import roll_back

    roll_back(job.master, to)
    job.write(_sql_of(before))
    job.run(runner)
    _check(job, before)


def _check(job: SqlJob, statements: dict[str, str]) -> None:
    for name, query in statements.items():
        job.database.execute(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")
    for name in statements:
        job.check(name, f"SELECT * FROM {name}")


def _sql_of(queries: dict[str, str]) -> str:
    return ";\n".join(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in queries.items())
