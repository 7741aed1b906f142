"""Other processes' use of a machine is distinguished from that of our own servers and workers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from bench.machine import OthersMeter, others_s
from milepost_testkit.processes.processes import wait_until

BURNS_S, BURNT_S = 0.6, 0.5
"""What a process burns, and what the kernel surely counts of it: it counts in ticks."""

BURNS = f"""
import subprocess, sys, time
def burn():
    while time.process_time() < {BURNS_S}: pass
"""
BURNS_ITSELF = BURNS + "burn()\ntime.sleep(600)\n"
HAS_ANOTHER_BURN = BURNS + "subprocess.run([sys.executable, '-c', sys.argv[1] + 'burn()', ''])\ntime.sleep(600)\n"
LEAVES = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)
"""


@contextmanager
def left(code: str) -> Iterator[psutil.Process]:
    """A process whose parent has ended: it descends from us no more."""
    parent = [sys.executable, "-c", LEAVES, code, BURNS]
    process = psutil.Process(int(subprocess.run(parent, capture_output=True, text=True, check=True).stdout))
    try:
        yield process
    finally:
        process.kill()


def used_s(process: psutil.Process) -> float:
    """What a process and the children it waited for count with, among others."""
    return others_s().get((process.pid, process.create_time()), 0.0)


def test_what_another_process_used_counts() -> None:
    meter, started = OthersMeter(), time.monotonic()
    with left(BURNS_ITSELF) as other:
        wait_until(lambda: used_s(other) >= BURNT_S, seconds=60, what="it burns")
        cores = meter.cores()
    assert cores >= BURNT_S / (time.monotonic() - started)


def test_a_command_that_another_process_waited_for_counts() -> None:
    with left(HAS_ANOTHER_BURN) as other:
        wait_until(lambda: used_s(other) >= BURNT_S, seconds=60, what="its child burns, and ends")
        assert not other.children()


def test_what_our_own_processes_and_theirs_use_does_not_count() -> None:
    ours = psutil.Process()
    with subprocess.Popen([sys.executable, "-c", HAS_ANOTHER_BURN, BURNS]) as child:
        try:
            tree = psutil.Process(child.pid)
            wait_until(lambda: sum(tree.cpu_times()[2:4]) >= BURNT_S, seconds=60, what="a grandchild burns, and ends")
            assert not {(one.pid, one.create_time()) for one in (ours, tree)} & others_s().keys()
        finally:
            child.kill()
