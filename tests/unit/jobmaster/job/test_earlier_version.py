"""Formats of an earlier Milepost are refused by name. They are never read, ignored or changed."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.codec.records import decode, from_json
from milepost.epoch.metadata import decode_metadata
from milepost.epoch.plan import decode_input_record
from milepost.errors import StateCorrupt
from milepost.jobmaster.job.measurements import decode_post_commit_times
from milepost.jobmaster.job.savepoint_document import decode_document
from milepost.protocol.log.entry_codec import decode_entry
from milepost.state.cache.cache import StateCache
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.handles import RunHandle
from milepost.state.runs.identity import StateIdentity
from milepost.state.runs.runs import decode_run
from milepost.tables.records.table_garbage import list_from_bytes
from milepost.tables.records.table_heads import TableHead
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.sparkless.saved_job import stored
from milepost_testkit.rows.key_hashes import KEYED

EARLIER = Path(__file__).parent / "golden" / "earlier"
KEYS = KeySpec(("k",), ("k",), KEYED)
COMMANDS = (
    "run", "status", "list", "history", "show 2", "read table", "state latest", "diff 1 2", "verify 2", "fsck", "gc",
    "start", "resume", "abort", "cancel --yes", "rollback --to 1 --yes",
    "backfill --from 2013-03-01 --to 2013-03-02 --yes", "savepoint list", "savepoint create",
)  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The folder of a job that an earlier Milepost ran."""
    return Path(shutil.copytree(EARLIER, tmp_path / "job"))


def spec_with(job: Path, **places: str) -> Path:
    """The job's spec, with other places for what it stores."""
    path = job / "config" / "small.yaml"
    text = path.read_text()
    for old, new in {"../store": places.get("store"), "../lake/table": places.get("table")}.items():
        text = text.replace(old, new or old)
    path.write_text(text)
    return path


@pytest.mark.long
def test_every_command_refuses_its_manifest_by_name_and_changes_nothing(job: Path) -> None:
    spec, before = spec_with(job), stored(job)
    for command in COMMANDS:
        verb, *options = command.split()
        words = [verb, options.pop(0)] if verb == "savepoint" else [verb]
        assert_clear_error(milepost(*words, spec, *options), 7, golden=verb)
    assert stored(job) == before


def test_its_table_is_no_empty_one_for_a_job_made_anew(job: Path) -> None:
    spec, before = spec_with(job, store="../anew"), stored(job / "lake")
    assert_clear_error(milepost("run", spec), 7, golden="run")
    assert stored(job / "lake") == before


def test_no_job_starts_from_its_savepoint(job: Path) -> None:
    (savepoint,) = (job / "store" / "small" / "savepoints" / "before").iterdir()
    spec, before = spec_with(job, store="../anew", table="../lake/anew"), stored(job / "store")
    assert_clear_error(milepost("start", spec, "--from", f"file://{savepoint}"), 7, golden="start")
    assert stored(job / "store") == before and not (job / "anew" / "small" / "manifest").exists()


READERS: dict[str, Callable[[bytes, str], object]] = {
    "store/small/manifest/*.json": decode_entry,
    "tombstone.json": decode_entry,
    "store/small/inputs/*.json": lambda body, _: decode_input_record(body),
    "store/small/chk-*/*/_metadata": decode_metadata,
    "store/small/chk-*/*/metrics/*.json": decode_post_commit_times,
    "store/small/savepoints/*/*/savepoint.json": decode_document,
    "lake/table/_heads/*.json": lambda body, key: decode(TableHead, body, key),
    "lake/table/_garbage/*.json": lambda body, key: list_from_bytes(key, body),
}


@pytest.mark.parametrize("kind", READERS)
def test_no_kind_of_object_is_read(kind: str) -> None:
    found = sorted(EARLIER.glob(kind))
    assert found
    for path in found:
        with wording.raises(StateCorrupt):
            READERS[kind](path.read_bytes(), str(path.relative_to(EARLIER)))


def test_state_is_read_neither_from_the_store_nor_from_a_node() -> None:
    (metadata,) = EARLIER.glob("store/small/chk-*1/*/_metadata")
    operator = json.loads(metadata.read_bytes())["operators"]["latest"]
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(operator["state_schema"])))
    run = from_json(RunHandle, operator["handles"][0]["runs"][0], "run")
    with wording.raises(StateCorrupt):
        decode_run((EARLIER / "store" / "small" / run.key).read_bytes(), run, range(64), schema, KEYS, 128)
    identity = StateIdentity.of("latest", KEYS, schema, range(64), 128)
    assert StateCache(EARLIER / "node-cache").load(identity, run) is None
