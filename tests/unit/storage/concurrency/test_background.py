"""Background requests: the caller continues, and gets the answer or the error when it waits for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event, current_thread

from milepost.errors import NotFound
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.concurrency.background import prefetch, run_in_background
from milepost.storage.open import open_store
from milepost_testkit import wording


def test_a_caller_need_not_wait_for_a_background_request() -> None:
    """A store that is away does not keep a process that has its work done."""
    code = (
        "from threading import Event\n"
        "from milepost.storage.concurrency.background import run_in_background\n"
        "run_in_background(lambda: Event().wait(120), 'asks')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_error_is_raised_where_the_answer_is_waited_for() -> None:
    def refused() -> bytes:
        raise NotFound("there is no such object")

    assert run_in_background(lambda: b"x", "asks").result() == b"x"
    answer = run_in_background(refused, "asks")
    with wording.raises(NotFound):
        answer.result()


def test_a_bucket_is_read_concurrently_and_a_directory_on_demand(tmp_path: Path) -> None:
    bucket, directory = open_store(StoreConfig("s3://bucket/jobs")), open_store(StoreConfig(f"file://{tmp_path}"))
    asked = Event()

    def ask() -> str:
        asked.set()
        return current_thread().name

    later = prefetch(directory, ask, "asks")
    assert not asked.is_set() and later() == current_thread().name
    asked.clear()
    beside = prefetch(bucket, ask, "asks")
    assert asked.wait(60) and beside() == "asks"
