"""`make law`: check the laws on random graphs and histories, reproducible by seed."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import hypothesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost.jobmaster import CheckpointReport
from milepost.sinks.formats.postgres import row_changes
from milepost.sources.contract import SourceObject
from milepost_testkit.law.cuts import Asked, hold_uncut
from milepost_testkit.law.examples import (
    AWAY,
    EMPTIED,
    FEED,
    Example,
    JobExample,
    cuts_epochs,
    examples,
    job_examples,
)
from milepost_testkit.law.job import LawJob
from milepost_testkit.law.landings import WHOLE
from milepost_testkit.law.plane import Checkpoint, EpochOptions, Plane
from milepost_testkit.law.rows import rows_table
from milepost_testkit.law.served import SERVED
from milepost_testkit.models.data.oracle import Broken, Watermarks, check
from milepost_testkit.rows.key_hashes import KEYED, WEAK
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.servers.postgres_server import PostgresServer, new_directory

_E = TypeVar("_E")
_TOLD_EVERY = 500
EXAMPLES_PER_JOB = 20
"""A whole job with its master takes as long as a few examples of its nodes alone."""


def hold(example: Example, folder: Path) -> Counter[str]:
    """Run an example, and check the law of every node. Returns the covered cases. Raises Broken."""
    plane = Plane(example.spec, folder, WEAK if example.weak else KEYED)
    head, asked, met = _played(example, plane)
    if met["in flight"] or met["idle"]:
        met.update(hold_uncut(plane, head, asked))
    whole = {one.number: one.lineage for one in plane.checkpoints if not one.in_flight}
    ended = frozenset(plane.ended)
    check(example.spec, plane.graph, plane.captured, plane.schemas, whole, ended=ended)
    watermarks = Watermarks(example.spec, plane.graph, plane.captured, ended)
    met["fired apart"] += any(
        len({*one}) > 1 for began in plane.captured.begins.values() for one in began.fired.values()
    )
    met["came back behind"] += watermarks.came_back_behind(head.lineage)
    for checkpoint in plane.checkpoints:
        if checkpoint.in_flight or not watermarks.is_even(checkpoint.lineage):
            continue
        for uid, state in checkpoint.states.items():
            reached = watermarks.of_node(uid, checkpoint.lineage)
            if set(state.firing) != {reached}:
                raise Broken(
                    f"operator {uid}: with nothing in flight it fired to {state.firing}, its input is {reached}"
                )
    met["late"] += any(node.endswith(".late") for node in plane.captured.pieces)
    return met


def _played(example: Example, plane: Plane) -> tuple[Checkpoint, dict[int, Asked], Counter[str]]:
    """Run the epochs of an example. Returns the last checkpoint (nothing in flight), the requests, the cases."""
    met: Counter[str] = Counter()
    history = [Checkpoint()]
    waiting: dict[str, tuple[SourceObject, ...]] = {}
    asked: dict[int, Asked] = {}
    for number, step in enumerate(example.steps):
        base = history[max(0, len(history) - 1 - step.back)]
        del history[max(1, len(history) - step.back) :]
        for source, numbers in zip(sorted(example.spec.streams), step.rows, strict=True):
            parts = [rows for rows in (numbers[::2], numbers[1::2]) if rows]
            waiting[source] = waiting.get(source, ()) + tuple(
                plane.put(source, f"{number}-{part}.parquet", rows_table(rows, len(base.lineage), example.domain))
                for part, rows in enumerate(parts)
            )
        checkpoint = plane.epoch(base, waiting, step.options)
        asked[checkpoint.number] = Asked(waiting, step.options)
        met["rolled back"] += bool(step.back)
        met["vetoed"] += step.vetoed
        met["in flight"] += bool(checkpoint.in_flight)
        met["idle"] += bool(step.options.idle)
        met["rescaled in flight"] += bool(base.in_flight) and base.parallelism != step.options.parallelism
        if not step.vetoed:
            history.append(checkpoint)
            waiting = {}
    last = EpochOptions(parallelism=2, last=example.ends)
    met["rescaled in flight"] += bool(history[-1].in_flight) and history[-1].parallelism != last.parallelism
    head = plane.epoch(history[-1], waiting, last)
    return head, asked | {head.number: Asked(waiting, last)}, met


def hold_job(example: JobExample, folder: Path) -> Counter[str]:
    """Run an example with its job master, and check the laws of its nodes and tables after each action."""
    with patch.object(row_changes, "TOGETHER_BYTES", 1):  # as tables of large files
        return _played_by_master(example, LawJob.create(folder, example.document))


def _played_by_master(example: JobExample, job: LawJob) -> Counter[str]:
    sources, returns = list(example.document["sources"]), 0
    met: Counter[str] = Counter()
    landings = example.landings or ((WHOLE, 0),) * len(example.acts)
    for number, (act, back, parallelism, rows) in enumerate(example.acts):
        for source, numbers in zip(sources, rows, strict=True):
            if numbers:
                job.land(source, rows_table(numbers, number, example.domain))
        job.set_parallelism(parallelism)
        if number >= returns or act == "backfill":  # refused if the spec lacks a source that it must read again
            job.bring_back()
        met[landings[number][0]] += job.append(*landings[number])
        if act == "rollback":
            job.rollback(back)
        elif act == "backfill":
            met["replayed to the same"] += _backfilled(job, back, parallelism)
        elif act == EMPTIED:
            job.empty_and_realign(SERVED)
        else:
            if act == AWAY and job.away is None:
                job.drop(FEED)
                returns = number + back
            job.run(cut_short=act == "cut short")
        job.check()
        met[act] += 1
        met["in flight"] += bool(job.in_flight)
    job.bring_back()
    met["jobs that land"] += job.append(WHOLE, 0)
    while isinstance(job.run(), CheckpointReport):
        job.check()
    job.check_read(job.lineage, whole=True)
    return met


def _backfilled(job: LawJob, back: int, ranges: int) -> bool:
    """Backfill a job. Returns whether the same epochs ran, so that its tables are unchanged.

    Raises: AssertionError.
    """
    was = job.tables()
    job.backfill(back, ranges_per_epoch=ranges)
    if cuts_epochs(job.document) or ranges > 1:
        return False
    for name, table in was.items():
        assert_same_rows(job.master.reports.read(name), table, f"table {name}, processed again range by range")
    return bool(was)


def hold_examples(count: int, seed: int | None) -> Counter[str]:
    """Check `count` random examples. Returns the covered cases. Raises Broken, with the smallest example."""
    return _hold_each(examples(), hold, count, seed)


def hold_job_examples(count: int, seed: int | None) -> Counter[str]:
    """Check `count` random jobs, some of them with a table in their own Postgres.

    Returns the covered cases. Raises AssertionError, with the smallest example.
    """
    server = PostgresServer(new_directory())
    try:
        server.start()
        with patch.dict(os.environ, PG_DSN=server.new_database().dsn):
            return _hold_each(job_examples(feed=True, served=True, landed=True), hold_job, count, seed)
    finally:
        server.remove()


def _hold_each(
    drawn: st.SearchStrategy[_E], hold_one: Callable[[_E, Path], Counter[str]], count: int, seed: int | None
) -> Counter[str]:
    met: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp(prefix="milepost-law-"))

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(drawn)
    def holds(example: _E) -> None:
        try:
            met.update(hold_one(example, folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        met["examples"] += 1
        if not met["examples"] % _TOLD_EVERY:
            print(f"{met['examples']:,} examples", flush=True)

    (holds if seed is None else hypothesis.seed(seed)(holds))()
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=5_000)
    parser.add_argument("--seed", type=int, required=True)
    chosen = parser.parse_args()
    counts = {"examples": chosen.examples, "jobs": max(1, chosen.examples // EXAMPLES_PER_JOB)}
    for what, hold_all in (("examples", hold_examples), ("jobs", hold_job_examples)):
        began, cpu = time.monotonic(), time.process_time()
        met = hold_all(counts[what], chosen.seed)
        spent, used = time.monotonic() - began, time.process_time() - cpu
        each_ms = 1000 * used / met["examples"]
        kinds = ", ".join(f"{met[name]:,} {name}" for name in sorted(met) if name != "examples")
        print(f"seed {chosen.seed}: {met['examples']:,} {what} in {spent:.0f} s, {each_ms:.0f} ms of CPU each: {kinds}")


if __name__ == "__main__":
    main()
