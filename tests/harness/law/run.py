"""`make law`: the law over random graphs and histories; each seed is the same in every run."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, given, settings

from milepost.dataflow.sources.contract import SourceObject
from milepost.jobmaster.jobmaster import CheckpointReport
from tests.harness.law.examples import Example, JobExample, examples, rows_table
from tests.harness.law.job import LawJob
from tests.harness.law.oracle import Broken, Watermarks, check
from tests.harness.law.plane import Checkpoint, EpochOptions, Plane
from tests.harness.tasks.key_hashes import KEYED, WEAK

_TOLD_EVERY = 500


def hold(example: Example, folder: Path) -> Counter[str]:
    """Run an example, and hold every node to its law. Returns what it met. Raises Broken."""
    plane = Plane(example.spec, folder, WEAK if example.weak else KEYED)
    met: Counter[str] = Counter()
    history = [Checkpoint()]
    waiting: dict[str, tuple[SourceObject, ...]] = {}
    for number, step in enumerate(example.steps):
        base = history[max(0, len(history) - 1 - step.back)]
        del history[max(1, len(history) - step.back) :]
        for source, numbers in zip(sorted(example.spec.streams), step.rows, strict=True):
            parts = [rows for rows in (numbers[::2], numbers[1::2]) if rows]
            waiting[source] = waiting.get(source, ()) + tuple(
                plane.put(source, f"{number}-{part}.parquet", rows_table(rows, len(base.lineage)))
                for part, rows in enumerate(parts)
            )
        checkpoint = plane.epoch(base, waiting, step.options)
        met["rolled back"] += bool(step.back)
        met["vetoed"] += step.vetoed
        met["in flight"] += bool(checkpoint.in_flight)
        if not step.vetoed:
            history.append(checkpoint)
            waiting = {}
    last = EpochOptions(parallelism=2, last=example.ends)
    history.append(plane.epoch(history[-1], waiting, last))
    whole = {one.number: one.lineage for one in plane.checkpoints if not one.in_flight}
    ended = frozenset({history[-1].number} if example.ends else ())
    check(example.spec, plane.graph, plane.captured, plane.schemas, whole, ended=ended)
    watermarks = Watermarks(example.spec, plane.graph, plane.captured, ended)
    for checkpoint in plane.checkpoints:
        for uid, state in checkpoint.states.items():
            reached = watermarks.of_node(uid, checkpoint.lineage)
            if not checkpoint.in_flight and set(state.firing) != {reached}:
                raise Broken(
                    f"operator {uid}: with nothing in flight it fired to {state.firing}, its input is {reached}"
                )
    met["late"] += any(node.endswith(".late") for node in plane.captured.pieces)
    return met


def hold_job(example: JobExample, folder: Path) -> Counter[str]:
    """Run an example by its master, and hold its nodes and tables to their law after each act."""
    job = LawJob.create(folder, example.document)
    met: Counter[str] = Counter()
    for number, (act, back, parallelism, rows) in enumerate(example.acts):
        for source, numbers in zip(example.document["sources"], rows, strict=True):
            if numbers:
                job.land(source, rows_table(numbers, number))
        job.set_parallelism(parallelism)
        if act == "rollback":
            job.rollback(back)
        elif act == "backfill":
            job.backfill(back, ranges_per_epoch=parallelism)
        else:
            job.run(cut_short=act == "cut short")
        job.check()
        met[act] += 1
    while isinstance(job.run(), CheckpointReport):
        job.check()
    return met


def hold_examples(count: int, seed: int | None) -> Counter[str]:
    """Hold so many random examples to the law. Returns what they met. Raises Broken, with the least example."""
    met: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp(prefix="milepost-law-"))

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(examples())
    def holds(example: Example) -> None:
        try:
            met.update(hold(example, folder))
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
    began, cpu = time.monotonic(), time.process_time()
    met = hold_examples(chosen.examples, chosen.seed)
    spent, used = time.monotonic() - began, time.process_time() - cpu
    each_ms = 1000 * used / met["examples"]
    kinds = ", ".join(f"{met[name]:,} {name}" for name in sorted(met) if name != "examples")
    print(f"seed {chosen.seed}: {met['examples']:,} examples in {spent:.0f} s, {each_ms:.0f} ms of CPU each: {kinds}")


if __name__ == "__main__":
    main()
