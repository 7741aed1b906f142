"""Forward the JVM's stderr to this process's, without the incubator warning.

Spark loads an incubator module into every JVM, which then prints a warning that no log configuration can suppress.
Every other line, including the output of Python workers, is forwarded unchanged.
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
    """Yield a file descriptor for a process that is started within the block. Its lines are forwarded to stderr.

    The forwarding thread ends when the last process that holds the descriptor ends.
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
