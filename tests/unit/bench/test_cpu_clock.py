"""CPU time is counted once and is not lost when a process ends, no matter which parent was to wait for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from bench.cpu_clock import CpuClock

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
BURN = "burnt = time.process_time() + 0.3\nwhile time.process_time() < burnt: pass\n"
PARENT = f"""
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.{{disposition}})
def step(): print("at", flush=True); sys.stdin.readline()
step()
ready, tell = os.pipe()
end, let = os.pipe()
if os.fork() == 0:
    {BURN.replace(chr(10), chr(10) + "    ")}
    os.write(tell, b"."); os.close(let); os.read(end, 1)
    os._exit(0)
os.close(end)
os.read(ready, 1); step()
os.close(let)
try: os.wait()
except ChildProcessError: pass
step()
"""


@contextmanager
def parent(disposition: str) -> Iterator[psutil.Popen]:
    """A process that at its first step has no child, at the second one that used 0.3 s, at the third none again."""
    code = PARENT.format(disposition=disposition)
    with psutil.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as one:
        yield one
        one.communicate("\n\n\n")


@pytest.mark.parametrize("disposition", ["SIG_DFL", "SIG_IGN"])
def test_what_a_child_used_stays_counted_once_when_it_has_ended(disposition: str) -> None:
    with parent(disposition) as process:
        clock = CpuClock(process)
        process.stdout.readline()
        before = clock.read()
        process.stdin.write("\n")
        process.stdout.readline()
        lived = clock.read() - before
        process.stdin.write("\n")
        process.stdout.readline()
        ended = clock.read() - before
    # The kernel counts in ticks, and rounds what a living process used otherwise than what an ended one did.
    assert 0.25 < lived < 0.6
    assert lived - 3 * TICK_S < ended < lived + 0.2


def test_the_kernel_itself_forgets_a_child_whose_parent_ignores_its_end() -> None:
    """Why the clock is needed: else it would be counted twice."""
    with parent("SIG_IGN") as process:
        for _ in range(2):
            process.stdout.readline()
            process.stdin.write("\n")
        process.stdout.readline()
        assert process.cpu_times().children_user < 0.1
