"""This version continues what earlier versions stored. docs/contributing/release.md says what a failure means."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import CheckpointError
from milepost_testkit.compatibility.archive import unpack
from milepost_testkit.compatibility.continuing import continue_job
from milepost_testkit.compatibility.kinds import kinds_of, known_kinds
from milepost_testkit.compatibility.making import JOBS
from milepost_testkit.compatibility.stored_job import ARCHIVES, FIXTURE, StoredJob
from milepost_testkit.servers.postgres_server import Database

FIXTURES = sorted(ARCHIVES.glob("*.tar.xz"))
PAGE = "docs/contributing/release.md, *Stored formats*"
BROKEN = f"this version cannot continue it. Read the older form, too: {PAGE}"
FORGOTTEN = f"no fixture has them. Write one of this version: {PAGE}"
LONG = {"kinds", "operated", "migrated", "sources", "landed", "heir"}
"""Jobs that take seconds to continue: `make test-all` does."""

NOT_IN_A_FIXTURE = {
    "field BadInput.read": "is in acknowledgements of tasks only",
    "field TriggerCounts.bad": "is in acknowledgements of tasks only",
    "field TriggerCounts.planned_ms": "is in acknowledgements of tasks only",
    "field TriggerCounts.rows": "is in acknowledgements of tasks only",
    "field CatalogAddress.options": "catalogs with options are servers",
    "field CheckpointsSubsumed.garbage": "the keys of each subsumption are in a list, because there are many",
    "field CheckpointMetadata.requests": "a store in a folder has no requests",
    "field LandedRange.behind": "only topics have partitions",
    "field LogRecord.behind": "only topics have partitions",
    "field SourceSnapshot.partitions": "only topics have partitions",
    "field SourceBacklog.age_ms": "only topics know the age of what they have",
    "field ExpectationResult.exception": "no expectation fails in the library",
    "field Refusal.exception": "no expectation fails in the library",
    "value VerdictStatus.error": "no expectation fails in the library",
    "key chk-<id>/t<token>/metrics/<level>-<subtask>-a<attempt>*.json": "Spark's workers write them",
}
"""Kinds that no fixture has, and why."""


@pytest.fixture(scope="module", params=FIXTURES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def fixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jobs of one version, in a folder where they never were. Each test changes one of them."""
    folder = tmp_path_factory.mktemp(request.param.name.removesuffix(".tar.xz"))
    unpack(request.param, folder)
    return folder


def test_the_fixtures_have_every_kind_of_stored_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FIXTURE, str(tmp_path))
    monkeypatch.setenv("PG_DSN", "postgresql://not.used/here")
    stored: set[str] = set()
    for archive in FIXTURES:
        unpack(archive, tmp_path / archive.name)
        for folder in sorted((tmp_path / archive.name).iterdir()):
            try:
                stored |= kinds_of(StoredJob(folder))
            except CheckpointError as error:
                pytest.fail(f"job {folder.name} of {archive.name}: {BROKEN}\n{type(error).__name__}: {error}")
    missing = known_kinds() - stored
    assert missing <= NOT_IN_A_FIXTURE.keys(), f"{sorted(missing - NOT_IN_A_FIXTURE.keys())}: {FORGOTTEN}"
    assert missing == NOT_IN_A_FIXTURE.keys(), f"{sorted(NOT_IN_A_FIXTURE.keys() - missing)}: a fixture has them"


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.deep if name in LONG else ()) for name in JOBS])
def test_a_job_continues_as_if_it_had_been_this_version_all_along(
    fixture: Path, name: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FIXTURE, str(fixture))
    if not (fixture / name).exists():
        return  # a job that this version did not have
    try:
        continue_job(StoredJob(fixture / name))
    except (CheckpointError, AssertionError) as error:
        pytest.fail(f"job {name} of {fixture.name}: {BROKEN}\n{type(error).__name__}: {error}")
