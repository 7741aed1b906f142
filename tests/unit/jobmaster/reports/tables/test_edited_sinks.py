"""A table is read as recorded, whatever the spec says now."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Two epochs. Only to be copied."""
    return CountedJob.with_epochs(tmp_path_factory.mktemp("counted") / "job", 2)


EDITS = {
    "a key that its rows do not have": ("key: [k], aggregates", "key: [v], aggregates"),
    "another key": ("key: [k], aggregates", "key: [k, v], aggregates"),
    "another mode": ("mode: upsert", "mode: changelog"),
    "another path": ("lake/table", "lake/elsewhere"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_read_and_diff_show_what_a_checkpoint_has(edit: tuple[str, str], counted: CountedJob, tmp_path: Path) -> None:
    job = counted.copy_to(tmp_path / "job")
    commands = (
        ("read", job.spec_path, "table"),
        ("read", job.spec_path, "table", "--at", "1"),
        ("diff", job.spec_path, "1", "2", "--sink", "table"),
        ("diff", job.spec_path, "1", "2"),
        ("rollback", job.spec_path, "--to", "1", "--dry-run"),
    )
    before = [milepost(*command) for command in commands]
    job.edit(*edit)
    assert milepost("lint", job.spec_path).exit_code == 2
    for command, shown in zip(commands[:4], before, strict=False):
        assert milepost(*command) == shown, command
    assert "unexpected-error" not in milepost(*commands[4]).stderr
    assert before[0].exit_code == 0 and len(before[0].stdout.splitlines()) == 7
