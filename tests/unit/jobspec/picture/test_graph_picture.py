"""The picture of a graph is reproducible, accessible and safe against hostile names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from milepost.jobspec.load.lint import lint_report
from milepost.jobspec.load.load import from_text, load_job
from milepost.jobspec.picture.drawing import PALETTES, graph_picture
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.specs.examples import EXAMPLES

SVG = "{http://www.w3.org/2000/svg}"


ALL_KEYS = REPOSITORY / "config" / "examples" / "all_keys.yaml"


def report(spec: Path = ALL_KEYS) -> dict[str, Any]:
    return lint_report(load_job(spec))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.deep
def test_it_shows_mode_event_time_holdback_bound_and_dropped_rows_of_each_node() -> None:
    lines = texts(graph_picture(report()))
    for text in (
        "upsert(carrier)",
        "time time_hour, holds back 2h",
        "▲ grows with distinct carrier",
        "● until window_end",
        "● left: until event time + 30m",
        "late.unique: dropped",
        "reads overtaken.late.unique.2",
    ):
        assert text in lines


def test_sizes_are_shown_where_the_report_has_them() -> None:
    graph_report = report(EXAMPLES / "join.yaml")
    graph_report["nodes"][-1]["state"][0]["size"] = {
        "checkpoint_id": 3,
        "rows": 1234,
        "bytes": 56_700,
        "rows_per_day": None,
    }
    assert "  1,234 rows, 56.7 kB" in texts(graph_picture(graph_report))


@pytest.mark.deep
def test_each_link_has_the_style_of_its_mode_and_a_title() -> None:
    paths = ElementTree.fromstring(graph_picture(report())).iter(f"{SVG}path")
    styles = {title.text: path.get("class") for path in paths if (title := path.find(f"{SVG}title")) is not None}
    assert styles["clean to unique: append, time time_hour"] == "exchanged"
    assert styles["carriers to by_carrier: upsert(carrier), key carrier"] == "updates"
    assert styles["hourly.late to late_flights: append, time time_hour"] == "side"
    assert styles["moments to moments: append"] is None


def test_the_picture_has_a_text_description() -> None:
    root = ElementTree.fromstring(graph_picture(report(EXAMPLES / "join.yaml")))
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert root.get("role") == "img" and title is not None and description is not None and description.text is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert "paid (join) reads orders, payments; emits append; state paid.left: rows of orders" in description.text
    assert "Sink late_payments" in description.text


def test_names_are_escaped() -> None:
    text = (EXAMPLES / "join.yaml").read_text(encoding="utf-8")
    graph_report = lint_report(from_text(text, Path("/jobs/config/paid.yaml")))
    hostile = '</text><script>alert("1")</script>\x00\u202e&'
    former = graph_report["nodes"][0]["uid"]
    graph_report["job"] = graph_report["nodes"][0]["uid"] = hostile
    for edge in graph_report["edges"]:
        edge["from"] = hostile if edge["from"] == former else edge["from"]
    svg = graph_picture(graph_report)
    assert "<script" not in svg and "\x00" not in svg
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "desc", "style", "rect", "g", "path", "text"
    }  # fmt: skip


def test_it_loads_nothing_from_a_server() -> None:
    svg = graph_picture(report()).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "http" not in svg and "url(" not in svg and "@import" not in svg and "href" not in svg


@pytest.mark.deep
def test_equal_reports_give_equal_pictures_for_any_hash_seed() -> None:
    code = (
        "from milepost.jobspec.load.lint import lint_report; from milepost.jobspec.load.load import load_job;"
        "from milepost.jobspec.picture.drawing import graph_picture; import sys;"
        "print(graph_picture(lint_report(load_job(sys.argv[1]))), end='')"
    )
    words = [sys.executable, "-c", code, str(ALL_KEYS)]
    environ = {"PYTHONPATH": str(REPOSITORY / "pipeline"), "PYTHONHASHSEED": "7"}
    process = subprocess.run(words, capture_output=True, text=True, check=True, env=environ)
    assert process.stdout == graph_picture(report())


@pytest.mark.parametrize("palette", PALETTES)
@pytest.mark.parametrize("ink", ["text", "soft", "good", "grows"])
def test_text_has_enough_contrast(palette: str, ink: str) -> None:
    """WCAG 2.2, 1.4.3: at least 4.5 to 1."""
    inks = PALETTES[palette]
    for ground in ("ground", "box"):
        lighter, darker = sorted((_luminance(inks[ink]), _luminance(inks[ground])), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5


@pytest.mark.parametrize("palette", PALETTES)
def test_lines_have_enough_contrast(palette: str) -> None:
    """WCAG 2.2, 1.4.11: at least 3 to 1."""
    inks = PALETTES[palette]
    lighter, darker = sorted((_luminance(inks["line"]), _luminance(inks["ground"])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 3


def _luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
