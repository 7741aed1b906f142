"""The complete output of every command in one life of a job, compared with the golden file of the command."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from milepost.epoch.plan import EpochPlan
from milepost.errors import StoreUnavailable
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

EDIT = {
    "retained: {last: 1}": "retained: {last: 3}",
    "mode: upsert}\n": "mode: upsert}\nquality:\n"
    "  - {sink: table, expectations: [{type: expect_column_values_to_be_between, column: k, max_value: 90}]}\n",
}
MASKS = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?", "<time>"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uuid>"),
    (r"\b[0-9a-f]{12,}\b", "<hash>"),
    (r"\b\d+(\.\d+)? ?(ms|s|min|h|B|kB|MB)\b", "<measured>"),
    (r'("?\w+_ms"?): \d+', r"\1: <measured>"),
    (r'("(host|pid|machine)"): [^,\n]+', r"\1: <machine>"),
    (r"(?m)^( +\d+ +\d+ +\d+ +\d+ .*)$", "  <a task's times>"),
    (r"(?m)^([a-z]+) +\d+ +(?:\d+\.\d|-)( +█*)?$", r"\1 <measured>"),
    (r"(?m)^  on  .*$", "  on  <machine>"),
    (r'"table": \d+', '"table": <measured>'),
    (r"-{2,}", "--"),
    (r" {2,}", "  "),
    (r"(?m) +$", ""),
)


class Terminal:
    """A person at the terminal: what each command has printed so far."""

    def __init__(self, job: SparklessJob) -> None:
        self._job = job
        self.printed: dict[str, str] = defaultdict(str)

    def __call__(self, words: str) -> None:
        verb, *options = words.split()
        outcome = milepost(*[verb, self._job.folder / "config" / "small.yaml", *options])
        text = f"$ milepost {verb} small {' '.join(options)}".rstrip() + f"\n{outcome.stdout}{outcome.stderr}"
        self.printed[verb] += self._masked(text.rstrip("\n")) + f"\n[exit {outcome.exit_code}]\n\n"

    def _masked(self, text: str) -> str:
        text = text.replace(str(self._job.folder), "<folder>")
        for pattern, mask in MASKS:
            text = re.sub(pattern, mask, text)
        return text


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """All output of the commands in a job's life: landed, run, failed, vetoed, rolled back, ended, started again."""
    patch = pytest.MonkeyPatch()
    patch.setenv("COLUMNS", "80")
    job = SparklessJob.create(tmp_path_factory.mktemp("texts"), EDIT)
    terminal, runner, session = Terminal(job), SparklessRunner(), Session.cli()

    def lost(plan: EpochPlan) -> None:
        raise StoreUnavailable("the store is away", hint="bring it back")

    def each(*commands: str) -> None:
        for words in commands:
            terminal(words)

    each("lint", "status", "list", "history", "read table", "show 1", "gc", "resume", "rollback --to 1 --yes")
    for number, rows in enumerate(("0,a\n1,a\n", "0,b\n2,b\n", "0,c\n3,c\n")):
        job.land(f"{number}.csv", "k,v\n" + rows)
    for _ in range(2):
        job.master.epochs.run(session, runner)
    each(
        "status",
        "list",
        "history --limit 3",
        "read table",
        "read table --at 1",
        "state latest",
        "show 2",
        "show --spec",
        "diff 1 2",
    )
    each(
        "diff 2 2", "diff 1 9", "read nowhere", "state nothing", "show 9", "verify", "verify 2", "fsck", "gc --dry-run"
    )
    with pytest.raises(StoreUnavailable):
        job.master.epochs.run(session, SparklessRunner(before=lost))
    each("status", "list --status aborted", "list --status all", "show 3", "resume", "resume", "abort")
    job.master.epochs.run(session, runner)
    each(
        "rollback --to 9 --yes",
        "rollback --to 2 --dry-run",
        "rollback --to 2",
        "rollback --to 2 --yes",
        "status",
        "list",
    )
    each(
        "rollback --to 2 --yes",
        "backfill --from 2024-01-01 --to 2024-01-02 --dry-run",
        "backfill --from x --to y --yes",
    )
    each("cancel", "cancel --yes", "cancel --yes", "status", "start", "start", "status", "history --limit 2")
    there = "migrate-table table --to delta --path ../lake/open"
    each(
        "migrate-table table --to delta --path ../lake/table --yes",
        "migrate-table table --to iceberg --path ../lake/open --yes",
        f"{there} --table a.b",
        f"{there} --dry-run",
        f"{there} --dry-run --json",
        there,
        f"{there} --yes",
        f"{there} --yes",
        "lint",
        "rollback --to 2 --dry-run",
    )
    yield dict(terminal.printed)
    patch.undo()


@pytest.mark.long
def test_every_command_prints_its_golden_output(printed: dict[str, str]) -> None:
    for command, text in printed.items():
        wording.matches(command, text)
