"""The law of one process function: the running count of rows per key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from milepost.operators.process.spec import ProcessOperator
from milepost_testkit.models.data.batch import Claim, Place, differing

MODULE = "counting"
"""Module of the function, next to the spec."""
CODE = """\
class Counting:
    state = {"n": "int64"}
    output = {"k": "string", "n": "int64"}

    def on_rows(self, key, rows, state, ctx):
        state["n"] = (state["n"] or 0) + len(rows)
        yield {"k": key, "n": state["n"]}
"""


def counting_operator(uid: str, source: str) -> dict[str, Any]:
    """Return the spec of this law's operator, over a source of the laws' rows."""
    return {"uid": uid, "kind": "process", "inputs": [source], "key": ["k"], "function": f"{MODULE}:Counting"}


@dataclass(frozen=True)
class ProcessLaw:
    """Each epoch emits one row per key with new rows, with the count of all rows so far."""

    spec: ProcessOperator

    def late(self, place: Place) -> str | None:
        return None

    def batch(self, place: Place) -> str:
        each = f"SELECT upto, __epoch, k, count(*) AS came FROM ({place.present}) GROUP BY ALL"
        return f"SELECT upto, k, sum(came) OVER (PARTITION BY upto, k ORDER BY __epoch)::BIGINT AS n FROM ({each})"

    def claims(self, place: Place) -> Iterator[Claim]:
        yield Claim(
            "each epoch counts on from where the last one was", differing(place.appended("k, n"), self.batch(place))
        )
