"""The cores that a standalone master reports are formatted as text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from milepost.spark.driver.engines.standalone import core_holders, is_standalone
from milepost_testkit import wording

OURS = {
    "id": "app-2",
    "name": "milepost-small",
    "cores": 0,
    "user": "ann",
    "submitdate": "Fri Nov 27 09:00 2026",
}
OTHERS = {"id": "app-1", "name": "report", "cores": 3, "user": "bob", "submitdate": "Thu Nov 26 21:00 2026"}
REPORT = ("report", "app-1", "bob", "Thu Nov 26 21:00 2026")


@pytest.mark.parametrize(
    ("state", "numbers", "named"),
    [
        (
            {"cores": 4, "coresused": 3, "aliveworkers": 2, "activeapps": [OTHERS, OURS]},
            [3, 4, 2, 3],
            REPORT,
        ),
        (
            {"cores": 4, "coresused": 0, "aliveworkers": 1, "activeapps": [OURS]},
            [0, 4, 1],
            (),
        ),
        (
            {"cores": 0, "coresused": 0, "aliveworkers": 0, "activeapps": [OURS]},
            [0, 0, 0],
            (),
        ),
        (
            {"cores": 4, "coresused": 4, "aliveworkers": 1, "activeapps": [OTHERS, OURS | {"cores": 1}]},
            [4, 4, 1, 3, 1],
            REPORT,
        ),
    ],
    ids=["somebody has them", "nobody has them", "there are none", "it has some itself"],
)
def test_the_applications_that_hold_a_clusters_cores_are_reported_with_their_number(
    state: dict[str, Any], numbers: list[int], named: tuple[str, ...]
) -> None:
    said = core_holders(state, OURS["id"])
    assert all(one in said for one in named)
    without = re.sub(r"\(.*\)", "", said)
    assert sorted(map(int, re.findall(r"\b\d+\b", without))) == sorted(numbers)
    wording.matches("cores", said)


@pytest.mark.parametrize(
    ("master", "standalone"), [("spark://a:7077,b:7077", True), ("local[2]", False), ("k8s://https://a:6443", False)]
)
def test_a_standalone_cluster_is_known_by_its_master(master: str, standalone: bool) -> None:
    assert is_standalone(master) is standalone
