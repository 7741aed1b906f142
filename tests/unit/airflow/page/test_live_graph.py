"""The live graph draws the known figures of a job's data flow, with any names and any size."""

from __future__ import annotations

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from milepost.airflow.page.drawings.live_graph import live_graph
from milepost.airflow.page.drawings.sparkline import sparkline, sparkline_svg
from milepost.jobmaster import DataFlow, EpochProgress, FlowEdge, FlowEpoch, FlowNode, FlowTable, Stage
from milepost.protocol.records import Run

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</text><script>alert(1)</script>"&\x00\x1b[31m' + "w" * 200


def node(name: str, kind: str = "filter", **figures: object) -> FlowNode:
    unknown = dict.fromkeys(
        ("rows_in", "rows_out", "late_rows", "dropped_rows", "bad_records", "time_share", "state_bytes")
    )
    return FlowNode(name=name, kind=kind, mode="append", **(unknown | figures))  # type: ignore[arg-type]


def table(name: str, **figures: object) -> FlowTable:
    unknown = dict.fromkeys(("rows", "written_rows", "rules", "rules_met", "shows"))
    return FlowTable(name=name, format="parquet", mode="append", **(unknown | figures))  # type: ignore[arg-type]


def flow(nodes: list[FlowNode], tables: list[FlowTable], edges: list[FlowEdge], *, newest: bool = True) -> DataFlow:
    epoch = FlowEpoch(7, 7, "2026-01-01T00:00:00+00:00") if newest else None
    return DataFlow(epoch, 30 * newest, tuple(nodes), tuple(tables), tuple(edges), (), (), ())


def edge(source: str, to: str, *rows: int | None, sink: bool = False, part: str = "") -> FlowEdge:
    return FlowEdge(source, part, source + part, to, sink, "append", rows)


def drawn(shown: DataFlow, url: str = "") -> Element:
    return ElementTree.fromstring(live_graph(shown, lambda sink: url))


def texts(svg: Element, css: str | None = None) -> list[str]:
    found = (one for one in svg.iter(f"{SVG}text") if css is None or one.get("class") == css)
    return [str(one.text) for one in found]


def test_each_edge_has_its_rows_and_each_node_its_figures() -> None:
    shown = flow(
        [
            node("rows", "source", rows_out=58_500, bad_records=2),
            node("hours", "window", time_share=0.825, state_bytes=1_500, late_rows=41, dropped_rows=5, loses=(0, 5)),
        ],
        [table("hourly", rows=1_234, rules=3, rules_met=2, shows=7), table("late", rows=36)],
        [
            edge("rows", "hours", 10, 58_500),
            edge("hours", "hourly", 3, None, sink=True),
            edge("hours", "late", 0, 36, sink=True, part=".late"),
        ],
    )
    svg = drawn(shown, "/jobs/x/tables/hourly")
    assert texts(svg, "rows") == ["58,500", "?", "36", "5"]
    assert {"82% of task time", "state 1.5 kB", "1,234 rows"} <= {*texts(svg)}
    assert texts(svg, "warn") == ["▲ 2 unreadable", "▲ 41 late", "▲ 2 of 3 rules met", "▲ not the newest epoch"]
    assert len([one for one in svg.iter(f"{SVG}path") if one.get("class") == "spark"]) == 4
    assert [one.get("class") for one in svg.iter(f"{SVG}path") if "side" in str(one.get("class"))] == [
        "line side",
        "line side lost",
    ]
    described = str(svg.findtext(f"{SVG}desc"))
    for sentence in (
        "rows to hours: 58,500 rows in the newest epoch, at most 58,500 in 2 epochs.",
        "hours to hourly: no figures of the newest epoch.",
        "hours to dropped: 5 rows in the newest epoch",
    ):
        assert sentence in described
    assert [one.get("href") for one in svg.iter(f"{SVG}a")] == ["/jobs/x/tables/hourly"] * 2


def test_the_nodes_of_a_running_epoch_are_lit_and_while_it_is_published_its_tables() -> None:
    """An operator and a table may have one name."""
    shown = flow([node("rows", "source"), node("table")], [table("table")], [edge("rows", "table", 1)])
    for stage, lit in ((Stage.PROCESSING, ["operator"]), (Stage.PUBLISHING, ["sink"]), (Stage.STARTING, [])):
        progress = EpochProgress(
            checkpoint_id=8, epoch=8, timeline="main", stage=stage, began="", elapsed_ms=0, usual_ms=None,
            usual_epochs=0, tries=1, heartbeat_ms=None, tasks_done=0, tasks=0, nodes=("table",) if lit else (),
            stored=(), run=Run(),
        )  # fmt: skip
        svg = ElementTree.fromstring(live_graph(shown, lambda sink: "", progress))
        classes = [str(one.get("class")).split() for one in svg.iter(f"{SVG}g")]
        assert [one[1] for one in classes if "running" in one] == lit, stage


def test_hostile_names_are_text() -> None:
    shown = flow(
        [node(HOSTILE, "source", loses=(1,)), node(HOSTILE + "2")],
        [table(HOSTILE)],
        [edge(HOSTILE, HOSTILE + "2", 1), edge(HOSTILE + "2", HOSTILE, 1, sink=True)],
    )
    text = live_graph(shown, lambda sink: f'/"><b>{sink[:3]}')
    assert "<script" not in text and "<b>" not in text and "\x00" not in text and "\x1b" not in text
    assert max(map(len, texts(ElementTree.fromstring(text)))) <= 26


def test_a_job_of_one_node_and_one_without_figures_are_drawn() -> None:
    assert len([*drawn(flow([node("a", "source")], [], [])).iter(f"{SVG}rect")]) == 1
    svg = drawn(flow([node("a", "source")], [table("t")], [edge("a", "t", sink=True)], newest=False))
    assert texts(svg) == ["a", "source", "t", "parquet, append"]


@pytest.mark.deep
def test_no_box_or_label_of_a_graph_of_sixty_nodes_covers_another() -> None:
    names = [f"operator_{number}" for number in range(60)]
    sources = {at: sorted({max(0, at - 1 - step) for step in (0, at % 7, at % 11)}) for at in range(1, 60)}
    edges = [edge(names[one], names[at], 1, 2) for at, those in sources.items() for one in those]
    svg = drawn(flow([node(name) for name in names], [], edges))
    corners = [place(one) for one in svg.iter(f"{SVG}g") if str(one.get("class")).startswith("node")]
    sizes = [(float(str(one.get("width"))), float(str(one.get("height")))) for one in boxes(svg)]
    areas = [(x, y, x + width, y + height) for (x, y), (width, height) in zip(corners, sizes, strict=True)]
    assert len(areas) == 60 and not any(overlap(one, other) for at, one in enumerate(areas) for other in areas[:at])
    labels = [place(one) for one in svg.iter(f"{SVG}g") if one.get("class") == "label"]
    assert len(labels) == len(edges)
    near = [(x, y) for at, (x, y) in enumerate(labels) for a, b in labels[:at] if abs(x - a) < 1 and abs(y - b) < 33]
    assert near == []


def boxes(svg: Element) -> list[Element]:
    return [one for one in svg.iter(f"{SVG}rect") if one.get("class") == "box"]


def place(group: Element) -> tuple[float, float]:
    x, y = re.findall(r"-?[\d.]+", str(group.get("transform")))
    return float(x), float(y)


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ((0, 5, 10), ["M0.0 14.0L36.0 7.0L72.0 0.0"]),
        ((1, None, 1), ["M0.0 0.0L2.0 0.0", "M72.0 0.0L74.0 0.0"]),
        ((3,), ["M0.0 0.0L2.0 0.0"]),
        ((0, 0), ["M0.0 14.0L72.0 14.0"]),
    ],
)
def test_a_sparkline_leaves_a_gap_where_a_value_is_unknown(values: tuple[float | None, ...], lines: list[str]) -> None:
    parent = Element("g")
    sparkline(parent, values)
    assert [one.get("d") for one in parent if one.get("class") == "spark"] == lines
    areas = [one.get("d") or "" for one in parent if one.get("class") == "spark-area"]
    assert all(area.startswith(line) and area.endswith(" 14.0Z") for area, line in zip(areas, lines, strict=True))
    assert sparkline_svg((None, None), "rows") == "" and "<b>" not in sparkline_svg(values, "<b>")
