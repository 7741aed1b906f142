"""The benchmark of a small driver: its limit is held, and what its report says of figures."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from bench.studies.driver import ACTS, render_driver
from bench.studies.limited import Used, run_limited

HOLDS = """
import subprocess, sys
held = bytearray(b"x") * (60 << 20)
print(len(held))
if len(sys.argv) > 1:
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""
"""Fills 60 MB, and starts what does the same while it has them."""
UNTIL_ENDED = "held = bytearray(b'x') * (60 << 20)\nwhile True: pass"


def limited(folder: Path, limit_mb: int, *arguments: str) -> Used:
    command = [sys.executable, "-c", HOLDS, *arguments]
    return run_limited(command, limit_mb, None, folder / "printed.txt", os.environ)


def test_a_tree_beyond_its_limit_is_ended_whole(tmp_path: Path) -> None:
    used = limited(tmp_path, 100, UNTIL_ENDED)
    assert used.ended_by == "the watcher"
    assert used.code != 0
    assert used.peak_mb > 100


def test_a_tree_within_its_limit_is_let_alone(tmp_path: Path) -> None:
    used = limited(tmp_path, 1_000)
    assert (used.ended_by, used.code) == ("", 0)
    assert (tmp_path / "printed.txt").read_text() == f"{60 << 20}\n"


def test_the_report_has_each_act_by_number_of_keys() -> None:
    text = render_driver({"driver": {"50000000": record(50_000_000, 700.0), "5000000": record(5_000_000, 650.0)}})
    assert "| | command | 5 M keys | 50 M keys |" in text
    both = "650 MB (python 400, java 250), 9 s | 700 MB (python 400, java 250), 9 s"
    assert f"| 1 epoch landed | `milepost run JOB --until-caught-up` | {both} |" in text
    assert "* 5,000,000 keys: at commit abc; the kernel held the limit as well; " in text


def record(keys: int, peak_mb: float) -> dict[str, Any]:
    used = {"peak_mb": peak_mb, "by_name_mb": {"python": 400.0, "java": 250.0, "bash": 0.6}, "cpu_s": 9.0}
    acts = [{"words": words, "landed": epochs} | used for epochs, words in ACTS]
    return {"keys": keys, "held_by_kernel": True, "other_busy_cores": 1.5, "commit": "abc", "acts": acts}
