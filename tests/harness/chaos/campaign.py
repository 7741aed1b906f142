"""`make chaos`: random jobs, input, faults and commands of people, with a plain model beside them."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.harness.chaos.chaos_job import ChaosJob
from tests.harness.chaos.commands import Act, Command, Ended
from tests.harness.law.examples import JobExample, job_examples, rows_table
from tests.harness.servers.proxies.faulty_proxy import FaultyProxy
from tests.harness.servers.s3_servers import S3Server, Seaweed

STEPS = 14
"""Commands of one job, in turn or side by side, before it is thrown away."""
_RATES = (0.0, 0.03, 0.1, 0.2)
_FORMATS = ("parquet", "delta", "parquet")
_ACTS = {
    Act.EPOCH: 10,
    Act.ROLLBACK: 3,
    Act.BACKFILL: 2,
    Act.SAVEPOINT: 1,
    Act.DISPOSE: 1,
    Act.CANCEL: 1,
    Act.CANCEL_SAVED: 1,
    Act.START: 2,
    Act.ABORT: 1,
    Act.GC: 1,
    Act.FSCK: 1,
}
_KILLED, _FROZEN, _BESIDE, _QUIET = 0.2, 0.08, 0.25, 0.35
_SETTLED_BY = (Act.EPOCH, Act.START, Act.RESUME, Act.SETTLE)
_ENOUGH = 60
"""Epochs and mends after which a job that is left in peace has nothing to do."""


class Broken(AssertionError):
    """Something was lost, doubled, or left in a state that nothing leads out of."""


@dataclass
class Told:
    """What a campaign met.

    Attributes:
        faults: by what they are; those of the storage by kind. ends: how commands ended. quiet: points at which
            everything equalled the model's.
    """

    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    quiet: int = 0
    jobs: int = 0

    @property
    def count(self) -> int:
        return sum(self.faults.values())


def campaign(
    seed: int, minutes: float, server: S3Server, folder: Path, jobs: int | None = None, *, tells_steps: bool = False
) -> Told:
    """Run random jobs until the time is over, or so many of them.

    Raises: Broken: with the seed, the job and all that was done to it.
    """
    told, random, ends_s = Told(), Random(seed), time.monotonic() + 60 * minutes
    bucket = server.new_bucket()
    examples = _examples(seed)
    while time.monotonic() < ends_s and (jobs is None or told.jobs < jobs):
        number = told.jobs
        with FaultyProxy(server.port, random.randrange(1 << 30)) as proxy:
            steps: list[str] = []
            try:
                _play(
                    next(examples),
                    Random(random.randrange(1 << 30)),
                    proxy,
                    server,
                    folder / f"job{number}",
                    bucket,
                    told,
                    steps,
                )
            except AssertionError as error:
                done = "\n  ".join(steps)
                raise Broken(
                    f"seed {seed}, job {number} in {folder / f'job{number}'}: {error}\nwhat was done:\n  {done}"
                ) from error
            finally:
                told.faults.update({fault.name.lower(): count for fault, count in proxy.met.items()})
        told.jobs += 1
        if tells_steps:
            print("\n".join(steps), file=sys.stderr)
        print(f"{told.jobs} jobs, {told.count} faults, {told.quiet} quiet points", file=sys.stderr, flush=True)
    return told


def _play(
    example: JobExample,
    random: Random,
    proxy: FaultyProxy,
    server: S3Server,
    folder: Path,
    bucket: str,
    told: Told,
    steps: list[str],
) -> None:
    formats = [random.choice(_FORMATS) for _ in example.document["sinks"]]
    job = ChaosJob.create(folder, example.document, server.client, bucket, proxy.endpoint_url, formats)
    rows = [step[3] for step in example.acts]
    for number in range(STEPS):
        for source, numbers in zip(example.document["sources"], rows[number % len(rows)], strict=False):
            if numbers:
                job.land(source, rows_table(numbers, number))
        if random.random() < 0.3:
            job.set_parallelism(random.choice((1, 2, 3)))
        proxy.rate = random.choice(_RATES)
        _disturb(job, random, told, steps)
        if random.random() < _QUIET or number == STEPS - 1:
            proxy.rate = 0.0
            _settle(job, told, steps)
            told.quiet += 1


def _disturb(job: ChaosJob, random: Random, told: Told, steps: list[str]) -> None:
    """Let one command, or some side by side, meet what they meet; each ends."""
    count = 2 if random.random() < _BESIDE else 1
    running = [job.begin(_command(job, random)) for _ in range(count)]
    frozen = None
    for one in running:
        if random.random() < _KILLED and not one.wait(random.random() * 2):
            one.kill()
            told.faults["killed"] += 1
            steps.append(f"killed {one.command}")
        elif frozen is None and random.random() < _FROZEN and not one.wait(random.random()):
            frozen = one
            frozen.freeze()
            told.faults["frozen"] += 1
            steps.append(f"froze {one.command}")
    if frozen is not None:
        other = job.begin(Command(Act.EPOCH))
        _judge(other.ended(), told, steps)
        frozen.wake()
    for one in running:
        _judge(one.ended(), told, steps)


def _command(job: ChaosJob, random: Random) -> Command:
    act = random.choices(list(_ACTS), list(_ACTS.values()))[0]
    if act is Act.SAVEPOINT:
        job.saved.append(len(job.saved))
    number = random.choice(job.saved) if job.saved else 0
    return Command(act, random.choice((1, 2, 3)), job.saved[-1] if act is Act.SAVEPOINT else number)


def _judge(ended: Ended, told: Told, steps: list[str]) -> None:
    kind = ended.error.partition(":")[0] if ended.error else "well"
    told.ends[f"{ended.command.act.value}: {kind if ended.typed else 'NOT TYPED'}"] += 1
    steps.append(f"{ended.command} ({ended.took_s:.1f} s): {ended.error or ended.said}")
    assert ended.typed, f"`{ended.command}` ended with an error that is none of ours:\n{ended.error}"


def _settle(job: ChaosJob, told: Told, steps: list[str]) -> None:
    """Let the job do what is left to do in peace, by what its own messages say is to be done; hold it to the model."""
    mend = iter(_SETTLED_BY)
    act = next(mend)
    for _ in range(_ENOUGH):
        ended = job.begin(Command(act)).ended()
        _judge(ended, told, steps)
        if ended.error is not None:
            act = next(mend, None)
            assert act is not None, f"in peace nothing leads on: {ended.error}"
            continue
        if act is Act.EPOCH and ended.said == "NothingToDo":
            job.check()
            steps.append("equals the model")
            return
        mend, act = iter(_SETTLED_BY[1:]), Act.EPOCH
    raise AssertionError(f"after {_ENOUGH} commands in peace there still is something to do")


def _examples(seed: int) -> Iterator[JobExample]:
    """Yield random jobs with their input, the same for a seed."""
    found: list[JobExample] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=500, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(job_examples(max_acts=6))
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
    parser.add_argument("--steps", action="store_true", help="tell each step of each job")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="milepost-chaos-"))
    server = Seaweed(folder / "server")
    server.start()
    os.environ |= server.environment()
    try:
        told = campaign(chosen.seed, chosen.minutes, server, folder, chosen.jobs, tells_steps=chosen.steps)
    except Broken as broken:
        sys.exit(str(broken))
    finally:
        server.stop(kill=True)
    for title, counts in (("faults", told.faults), ("ends", told.ends)):
        print(title)
        for name, count in sorted(counts.items()):
            print(f"  {count:6,} {name}")
    met = f"{told.jobs} jobs, {told.count:,} faults, {told.quiet} quiet points"
    print(f"seed {chosen.seed}: {met}; nothing was lost, nothing doubled")


if __name__ == "__main__":
    main()
