"""List the expensive test functions of `make test` that others cover: each jump between lines is taken without them.

    python -m scripts.suite.covered run FOLDER -- -p scripts.suite.recorder --record-costs COSTS --ring test tests
    python -m scripts.suite.redundant FOLDER COSTS

Such a function may be marked `deep`, if what it claims about an order of steps or about rows may wait for
`make test-all`. A jump in a room of `TWICE` needs two functions, where two take it now. Functions below `CHEAP_S`, of
the folders `STAY`, and with a word of `FAULTS` in their name are never listed.
"""

from __future__ import annotations

import argparse
import heapq
import json
import re
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scripts.suite.covered import WHOLE, function_of

Jumps = npt.NDArray[np.int64]
"""Numbers of jumps between lines, each once."""

CHEAP_S = 0.25
"""CPU seconds below which a function is never worth moving, with coverage measured."""

TWICE = re.compile(r"/milepost/(protocol|epoch|state|storage)/")
STAY = (
    "tests/model/",
    "tests/conformance/protocol/",
    "tests/compatibility/",
    "tests/chaos/",
    "tests/e2e/",
    "tests/integration/docs/",
    "tests/unit/operators/test_law",
)
FAULTS = re.compile(r"crash|kill|lost_reply|reply_(is|that_is)_lost|dies|race|fenced|never_lands|stalled|any_write")


def redundant(
    jumps: Mapping[str, Jumps], seconds: Mapping[str, float], movable: Collection[str], need: npt.NDArray[np.int64]
) -> list[str]:
    """Return which of the movable functions the others make redundant, the most expensive first.

    All other functions stay. Of the movable ones, the one with the most needed jumps per second is added until no jump
    is needed.

    Args:
        jumps: function -> the jumps that it takes.
        seconds: function -> its CPU time.
        need: by how many functions each jump must be taken, by the number of the jump.

    >>> jumps = {name: np.array(taken) for name, taken in {"a": [0], "b": [0, 1], "c": [1, 2], "d": [2]}.items()}
    >>> redundant(jumps, {"a": 1.0, "b": 1.0, "c": 9.0, "d": 1.0}, ["b", "c", "d"], np.ones(3, np.int64))
    ['c']
    """
    left = need.copy()
    for name in jumps.keys() - set(movable):
        left[jumps[name]] -= 1
    queue = [(-_rate(jumps[name], left, seconds[name]), name) for name in movable]
    heapq.heapify(queue)
    added = set()
    while queue:
        _, name = heapq.heappop(queue)
        rate = _rate(jumps[name], left, seconds[name])
        if rate == 0:
            continue
        if queue and -rate > queue[0][0]:  # others were added since, so that another one has more that is needed
            heapq.heappush(queue, (-rate, name))
            continue
        added.add(name)
        left[jumps[name]] -= 1
    return sorted(set(movable) - added, key=lambda name: (-seconds[name], name))


def _rate(taken: Jumps, left: npt.NDArray[np.int64], seconds: float) -> float:
    return float(np.count_nonzero(left[taken] > 0)) / max(seconds, 0.01)


def read_jumps(folder: Path) -> tuple[dict[str, Jumps], npt.NDArray[np.int64]]:
    """Return the jumps of each test function, and by how many functions each jump must be taken.

    A jump that no test takes, at import for example, needs none.
    """
    numbers: dict[tuple[int, int, int], int] = {}
    found: defaultdict[str, set[int]] = defaultdict(set)
    with closing(sqlite3.connect(folder / WHOLE)) as data:
        files = dict(data.execute("SELECT id, path FROM file"))
        functions = {
            number: function_of(context) for number, context in data.execute("SELECT id, context FROM context")
        }
        for file, context, start, end in data.execute("SELECT file_id, context_id, fromno, tono FROM arc"):
            found[functions[context]].add(numbers.setdefault((file, start, end), len(numbers)))
    found.pop("", None)
    jumps = {name: np.fromiter(taken, np.int64, len(taken)) for name, taken in found.items()}
    takers = np.zeros(len(numbers), np.int64)
    for taken in jumps.values():
        takers[taken] += 1
    most = np.array([2 if TWICE.search(files[file]) else 1 for file, _, _ in numbers], np.int64)
    return jumps, np.minimum(takers, most)


def is_movable(function: str, seconds: float) -> bool:
    """Return whether a function may leave `make test` at all."""
    return seconds >= CHEAP_S and not function.startswith(STAY) and not FAULTS.search(function)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.suite.redundant", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of `python -m scripts.suite.covered run`")
    parser.add_argument("costs", type=Path, help="what scripts.suite.recorder wrote")
    given = parser.parse_args(words)
    seconds: Counter[str] = Counter()
    for nodeid, test in json.loads(given.costs.read_text(encoding="utf-8"))["tests"].items():
        seconds[nodeid.partition("[")[0]] += test["cpu"]
    jumps, need = read_jumps(given.folder)
    listed = redundant(jumps, seconds, [name for name in jumps if is_movable(name, seconds[name])], need)
    for name in listed:
        print(f"{seconds[name]:6.1f} s  {name}")
    share = sum(seconds[name] for name in listed) / max(seconds.total(), 0.01)
    print(f"{len(listed)} of {len(seconds)} functions, {share:.0%} of the CPU time")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
