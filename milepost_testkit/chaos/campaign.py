"""`make chaos`: random jobs, input, faults and commands, compared with a plain model."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from milepost_testkit.chaos.chaos_job import ChaosJob
from milepost_testkit.chaos.places import Places
from milepost_testkit.chaos.play import LENGTH, Play, Tally
from milepost_testkit.chaos.sparks import Spark, cluster_of_jobs, connection, spark_server
from milepost_testkit.law.examples import JobExample, job_examples
from milepost_testkit.models.data.kinds.lookups import STATIC
from milepost_testkit.proxies.faulty_proxy import FaultyProxy
from milepost_testkit.servers.postgres_server import PostgresServer, new_directory
from milepost_testkit.servers.s3_servers import S3Server, Seaweed

EXAMPLES = 500
"""Jobs that a campaign without an end draws before it begins; one of N jobs draws fewer."""


class Broken(AssertionError):
    """Rows were lost or duplicated, or the job is stuck in a state."""


@dataclass
class Steps:
    """The log of what was done to one job. aloud: also print each step immediately."""

    aloud: bool
    done: list[str] = field(default_factory=list)

    def append(self, step: str) -> None:
        self.done.append(step)
        if self.aloud:
            print(step, file=sys.stderr, flush=True)

    def __str__(self) -> str:
        return "\n  ".join(self.done)


@dataclass
class Servers:
    """The servers of a campaign, in a folder. Spark servers start with the first job that runs on them."""

    folder: Path
    s3: S3Server
    postgres: PostgresServer
    stack: ExitStack

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator[Servers]:
        """Run the servers during the block. Processes that begin in it have the credentials in their environment."""
        # A Postgres server may run as another user, who must have access to its folder.
        postgres = PostgresServer(new_directory())
        s3 = Seaweed(folder / "server")
        with ExitStack() as stack:
            stack.callback(postgres.remove)
            stack.callback(s3.stop, kill=True)
            s3.start()
            postgres.start()
            os.environ |= s3.environment()
            yield cls(folder, s3, postgres, stack)

    @cached_property
    def server(self) -> Spark:
        return self.stack.enter_context(spark_server(self.folder / "spark"))

    @cached_property
    def cluster(self) -> Spark:
        return self.stack.enter_context(cluster_of_jobs(self.folder / "cluster"))

    def spark_of(self, number: int, every: int) -> Spark | None:
        """Return the Spark of a job: server and cluster in turn for every `every`-th job, None for the others."""
        if not every or number % every != every - 1:
            return None
        return self.cluster if number // every % 2 else self.server

    @cached_property
    def bucket(self) -> str:
        return self.s3.new_bucket()

    def places(self, name: str) -> Places:
        """Return the locations for a job's tables."""
        return Places.create(f"s3://{self.bucket}/{name}", self.folder / name, self.postgres)


def campaign(
    seed: int,
    minutes: float,
    servers: Servers,
    jobs: int | None = None,
    spark_every: int = 0,
    length: int = LENGTH,
    *,
    tells_steps: bool = False,
) -> Tally:
    """Run random jobs until the time is over, or `jobs` of them.

    Args:
        spark_every: every N-th job runs on Spark; 0 for none. length: number of commands per job.
    Raises: Broken: with the seed, the job and everything that was done to it.
    """
    tally, random, ends_s = Tally(), Random(seed), time.monotonic() + 60 * minutes
    examples = _examples(seed, EXAMPLES if jobs is None else min(EXAMPLES, 20 * jobs))
    while time.monotonic() < ends_s and (jobs is None or tally.jobs < jobs):
        number, name, steps = tally.jobs, f"job{tally.jobs}", Steps(tells_steps)
        chances = Random(random.randrange(1 << 30))
        spark = servers.spark_of(number, spark_every)
        example = next(one for one in examples if spark is None or STATIC not in one.document["sources"])
        with FaultyProxy(servers.s3.port, random.randrange(1 << 30)) as proxy:
            try:
                job = ChaosJob.create(
                    servers.folder / name,
                    example.document,
                    servers.places(name),
                    servers.s3.client,
                    {"endpoint_url": proxy.endpoint_url}
                    if spark is None
                    else connection(proxy.endpoint_url, servers.s3),
                    chances,
                    None if spark is None else spark.section,
                )
                Play(job, example, chances, proxy, servers.places, tally, steps.append, spark, length).run()
            except AssertionError as error:
                where = f"seed {seed}, job {number} in {servers.folder / name}"
                raise Broken(f"{where}: {error}\nwhat was done:\n  {steps}") from error
            finally:
                tally.faults.update({fault.name.lower(): count for fault, count in proxy.met.items()})
        tally.jobs += 1
        if spark is not None:
            tally.on_spark[spark.name] += 1
        print(f"{tally.jobs} jobs, {tally.count} faults, {tally.quiet} quiet points", file=sys.stderr, flush=True)
    return tally


def _examples(seed: int, count: int) -> Iterator[JobExample]:
    """Yield random jobs with their input endlessly, the same for equal seed and count."""
    found: list[JobExample] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(job_examples(max_acts=6, static=True))
    def draw(example: JobExample) -> None:
        found.append(example)

    draw()
    Random(seed).shuffle(found)
    while True:
        yield from found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--jobs", type=int, help="no more than so many")
    parser.add_argument("--spark-every", type=int, default=6, help="one of so many jobs runs on Spark; 0: none")
    parser.add_argument("--length", type=int, default=LENGTH, help="commands of each job")
    parser.add_argument("--steps", action="store_true", help="tell each step of each job")
    chosen = parser.parse_args()
    with Servers.started(Path(tempfile.mkdtemp(prefix="milepost-chaos-"))) as servers:
        try:
            tally = campaign(
                chosen.seed,
                chosen.minutes,
                servers,
                chosen.jobs,
                chosen.spark_every,
                chosen.length,
                tells_steps=chosen.steps,
            )
        except Broken as broken:
            sys.exit(str(broken))
    for title, counts in (("faults", tally.faults), ("people", tally.people), ("ends", tally.ends)):
        print(title)
        for name, count in sorted(counts.items()):
            print(f"  {count:6,} {name}")
    print(f"{tally.objects:,} stored objects were looked at, each of which is needed")
    on_spark = "".join(f", {count} on {name}" for name, count in tally.on_spark.items())
    met = f"{tally.jobs} jobs{on_spark}, {tally.count:,} faults, {tally.quiet} quiet points"
    print(f"seed {chosen.seed}: {met}; nothing was lost, nothing doubled")


if __name__ == "__main__":
    main()
