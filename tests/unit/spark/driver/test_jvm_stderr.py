"""What a JVM writes to stderr reaches ours as it is, but for the line that every one begins with."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from milepost.spark.driver.engines.jvm_stderr import NOISE, forwarded_stderr


def test_all_but_the_first_warning_arrives_also_what_has_no_end_of_line(capfd: pytest.CaptureFixture[str]) -> None:
    words = f"{NOISE.decode()}\nOutOfMemoryError\n\n{NOISE.decode()} and more\nlast"
    before = set(threading.enumerate())
    with forwarded_stderr() as stderr:
        code = f"import sys; sys.stderr.write({words!r})"
        process = subprocess.Popen([sys.executable, "-c", code], stderr=stderr)
    (forwarding,) = set(threading.enumerate()) - before
    assert process.wait(60) == 0
    forwarding.join(60)
    assert not forwarding.is_alive()
    assert capfd.readouterr().err == f"OutOfMemoryError\n\n{NOISE.decode()} and more\nlast"
