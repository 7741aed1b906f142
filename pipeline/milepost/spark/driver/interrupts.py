"""Handle Ctrl-C while the driver waits for Spark."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

CLEAN_UP_S = 5.0
"""Further Ctrl-Cs are ignored for this long after the first."""


@contextmanager
def one_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt for the first Ctrl-C only, until the interrupted code has had time to clean up.

    Ctrl-C at 0.0 s raises, at 0.3 s and 4.9 s it is ignored, at 5.0 s it raises again.

    After a KeyboardInterrupt, py4j drops the connection on which the interrupted call still waits for its answer. A
    second KeyboardInterrupt in the middle of that leaves the connection in use. The next call to the JVM, such as the
    one that cancels the epoch's job, would wait there until the job ends.

    The block changes nothing outside the main thread, or if the process has a handler other than Python's default.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupted_s = -math.inf

    def interrupt(*_: object) -> None:
        nonlocal interrupted_s
        now_s = time.monotonic()
        if now_s - interrupted_s >= CLEAN_UP_S:
            interrupted_s = now_s
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
