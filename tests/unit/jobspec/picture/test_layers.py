"""Boxes of a layout never overlap, and each is right of its inputs."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from milepost.jobspec.picture.layers import BETWEEN_BOXES, BETWEEN_LAYERS, place_boxes
from milepost_testkit import profiles

SIZES = st.tuples(st.integers(40, 260), st.integers(20, 120))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, tuple[int, int]], list[tuple[str, str]]]:
    count = draw(st.integers(1, 14))
    sizes = {f"b{at}": draw(SIZES) for at in range(count)}
    pairs = [(f"b{first}", f"b{second}") for first, second in combinations(range(count), 2)]
    links = draw(st.lists(st.sampled_from(pairs), max_size=24)) if pairs else []
    return sizes, links


@given(graph=graphs())
def test_boxes_do_not_overlap_and_links_go_right(
    graph: tuple[dict[str, tuple[int, int]], list[tuple[str, str]]],
) -> None:
    sizes, links = graph
    layout = place_boxes(sizes, links)
    assert list(layout.corners) == list(sizes) and len(layout.routes) == len(links)
    for box, other in combinations(sizes, 2):
        (x, y), (to_x, to_y) = layout.corners[box], layout.corners[other]
        is_beside = x + sizes[box][0] <= to_x or to_x + sizes[other][0] <= x
        is_apart = (
            y + sizes[box][1] + BETWEEN_BOXES <= to_y + 1e-6 or to_y + sizes[other][1] + BETWEEN_BOXES <= y + 1e-6
        )
        assert is_beside or is_apart, (box, other)
    for (source, target), route in zip(links, layout.routes, strict=True):
        xs = [x for x, _ in route]
        assert xs == sorted(xs) and xs[-1] - xs[0] >= BETWEEN_LAYERS
        assert route[0][0] == layout.corners[source][0] + sizes[source][0]
        assert route[-1][0] == layout.corners[target][0]
    for name, (x, y) in layout.corners.items():
        assert x >= 0 and y >= 0
        assert x + sizes[name][0] <= layout.width and y + sizes[name][1] <= layout.height + 1e-6


@profiles.examples(share=0.5)
@given(graph=graphs())
def test_a_link_does_not_cross_boxes_of_the_layers_it_passes(
    graph: tuple[dict[str, tuple[int, int]], list[tuple[str, str]]],
) -> None:
    sizes, links = graph
    layout = place_boxes(sizes, links)
    for route in layout.routes:
        for (from_x, from_y), (to_x, to_y) in zip(route[1:-1:2], route[2:-1:2], strict=True):
            assert from_y == to_y
            for name, (x, y) in layout.corners.items():
                crosses = from_x < x + sizes[name][0] and x < to_x
                assert not (crosses and y < from_y < y + sizes[name][1]), name


def test_equal_graphs_have_equal_layouts() -> None:
    sizes = dict.fromkeys("abcdef", (50, 30))
    links = [("a", "c"), ("b", "c"), ("a", "d"), ("c", "f"), ("a", "f"), ("e", "f")]
    assert place_boxes(sizes, links) == place_boxes(dict(sizes), list(links))
