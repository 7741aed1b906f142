"""What a standalone master says of its cores is told in words."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.spark.driver.engines.standalone import core_holders, is_standalone

OURS = {
    "id": "app-2",
    "name": "milepost-small",
    "cores": 0,
    "user": "ann",
    "submitdate": "Fri Nov 27 09:00 2026",
}
OTHERS = {"id": "app-1", "name": "report", "cores": 3, "user": "bob", "submitdate": "Thu Nov 26 21:00 2026"}
REPORT = "3 by report (app-1, of bob, since Thu Nov 26 21:00 2026)"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            {"cores": 4, "coresused": 3, "aliveworkers": 2, "activeapps": [OTHERS, OURS]},
            f"3 of the 4 cores of its 2 workers are taken: {REPORT}",
        ),
        (
            {"cores": 4, "coresused": 0, "aliveworkers": 1, "activeapps": [OURS]},
            "0 of the 4 cores of its 1 worker are taken",
        ),
        (
            {"cores": 0, "coresused": 0, "aliveworkers": 0, "activeapps": [OURS]},
            "0 of the 0 cores of its 0 workers are taken",
        ),
        (
            {"cores": 4, "coresused": 4, "aliveworkers": 1, "activeapps": [OTHERS, OURS | {"cores": 1}]},
            f"4 of the 4 cores of its 1 worker are taken: {REPORT}, 1 by this run, whose executors have not begun",
        ),
    ],
    ids=["somebody has them", "nobody has them", "there are none", "it has some itself"],
)
def test_who_has_the_cores_of_a_cluster_is_told_with_how_many_there_are(state: dict[str, Any], said: str) -> None:
    assert core_holders(state, OURS["id"]) == said


@pytest.mark.parametrize(
    ("master", "standalone"), [("spark://a:7077,b:7077", True), ("local[2]", False), ("k8s://https://a:6443", False)]
)
def test_a_standalone_cluster_is_known_by_its_master(master: str, standalone: bool) -> None:
    assert is_standalone(master) is standalone
