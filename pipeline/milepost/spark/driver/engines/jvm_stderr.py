"""The JVM's stderr reaches ours, without the line that it begins with.

Spark asks every JVM for a module that is still incubating, and the JVM says so before it reads any configuration of a
log. All else that it prints, and what workers print through it, goes on as it comes, line by line.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NOISE = b"WARNING: Using incubator modules: jdk.incubator.vector"
_STDERR = 2


@contextmanager
def forwarded_stderr() -> Iterator[int]:
    """Yield a file descriptor for a process that is started within the block; what it writes there goes to stderr.

    The thread that passes it on ends when the last process that has the descriptor does.
    """
    reading, writing = os.pipe()
    threading.Thread(target=_forward, args=(reading,), name="jvm-stderr", daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)


def _forward(reading: int) -> None:
    with open(reading, "rb") as lines:
        for line in lines:
            if line.rstrip() != NOISE:
                _write(line)


def _write(line: bytes) -> None:
    while line:
        line = line[os.write(_STDERR, line) :]
