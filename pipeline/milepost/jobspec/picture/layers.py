"""Lay out boxes and links from left to right, with few crossings.

This is the layered method of Sugiyama. A link that spans several layers gets a bend in each layer in between. Each
layer is ordered by the mean position of its neighbours, in alternating sweeps. Ties keep the given order, so a graph
always has the same layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS = 6
BETWEEN_LAYERS = 56
BETWEEN_BOXES = 18
_BEND_HEIGHT = 8
"""Height that a link takes in a layer that it passes."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions in units of the picture, with the origin at the top left.

    Attributes:
        corners: box -> its top left corner.
        routes: per link, in order, its points: start, bends and end.
    """

    corners: Mapping[str, Point]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def place_boxes(
    sizes: Mapping[str, tuple[int, int]], links: Sequence[tuple[str, str]], between: int = BETWEEN_LAYERS
) -> Layout:
    """Return the layout of boxes and links.

    Args:
        sizes: width and height of each box, in topological order.
        links: (source, target), where the target comes after the source.
        between: distance of two layers.
    """
    # Links a->b, b->c, a->c: a, b and c are in layers 0, 1 and 2, and a->c gets a bend next to b in layer 1.
    layer_of = dict.fromkeys(sizes, 0)
    for name in sizes:
        layer_of[name] = max((layer_of[source] + 1 for source, target in links if target == name), default=0)
    all_sizes: dict[str, tuple[int, int]] = dict(sizes)
    chains = [_chain(number, link, layer_of, all_sizes) for number, link in enumerate(links)]
    layers = [[name for name in all_sizes if layer_of[name] == layer] for layer in range(max(layer_of.values()) + 1)]
    steps = [step for chain in chains for step in pairwise(chain)]
    sources = {name: [source for source, target in steps if target == name] for name in all_sizes}
    targets = {name: [target for source, target in steps if source == name] for name in all_sizes}
    tops = {name: top for layer in layers for name, top in _stacked(layer, all_sizes).items()}
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _arrange(layer, sources if sweep % 2 == 0 else targets, all_sizes, tops)
    highest = min(tops.values())
    corners: dict[str, Point] = {}
    x = 0.0
    for layer in layers:
        corners |= {name: (x, tops[name] - highest) for name in layer}
        widest = max(all_sizes[name][0] for name in layer)
        all_sizes |= {name: (widest, _BEND_HEIGHT) for name in layer if name not in sizes}  # a bend spans its layer
        x += widest + between
    height = max(corners[name][1] + all_sizes[name][1] for name in all_sizes)
    routes = tuple(_route(chain, corners, all_sizes) for chain in chains)
    return Layout({name: corners[name] for name in sizes}, routes, x - between, height)


def _chain(
    number: int, link: tuple[str, str], layer_of: dict[str, int], all_sizes: dict[str, tuple[int, int]]
) -> list[str]:
    """Return source, bends and target of a link, and add the bends to the sizes."""
    source, target = link
    bends = []
    for layer in range(layer_of[source] + 1, layer_of[target]):
        bend = f"\0{number} {layer}"  # no box has such a name
        all_sizes[bend], layer_of[bend] = (0, _BEND_HEIGHT), layer
        bends.append(bend)
    return [source, *bends, target]


def _stacked(layer: Sequence[str], all_sizes: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    tops: dict[str, float] = {}
    y = 0.0
    for name in layer:
        tops[name] = y
        y += all_sizes[name][1] + BETWEEN_BOXES
    return tops


def _arrange(
    layer: list[str],
    neighbours: Mapping[str, Sequence[str]],
    all_sizes: Mapping[str, tuple[int, int]],
    tops: dict[str, float],
) -> None:
    """Order a layer by the mean position of the neighbours, and move each box as close to it as the others allow."""

    def ideal_top(name: str) -> float:
        near = neighbours[name]
        if not near:
            return tops[name]
        middle = sum(tops[other] + all_sizes[other][1] / 2 for other in near) / len(near)
        return middle - all_sizes[name][1] / 2

    middles = {name: ideal_top(name) + all_sizes[name][1] / 2 for name in layer}
    layer.sort(key=lambda name: middles[name])
    ideal = {name: middles[name] - all_sizes[name][1] / 2 for name in layer}
    # Boxes are pushed down by those above them. Then all move up by half of the largest shift, to share the error:
    # heights 20, distance 18, ideal tops 0 and 10 -> pushed 0 and 38 (shift 28) -> final -14 and 24.
    pushed: dict[str, float] = {}
    floor = float("-inf")
    for name in layer:
        pushed[name] = max(ideal[name], floor)
        floor = pushed[name] + all_sizes[name][1] + BETWEEN_BOXES
    correction = max((pushed[name] - ideal[name] for name in layer), default=0.0) / 2
    tops |= {name: pushed[name] - correction for name in layer}


def _route(
    chain: Sequence[str], corners: Mapping[str, Point], all_sizes: Mapping[str, tuple[int, int]]
) -> tuple[Point, ...]:
    """Return the points of a link: the right edge of its source, its bends, and the left edge of its target."""
    left = [(corners[name][0], corners[name][1] + all_sizes[name][1] / 2) for name in chain]
    right = [(x + all_sizes[name][0], y) for name, (x, y) in zip(chain, left, strict=True)]
    bends = [point for index in range(1, len(chain) - 1) for point in (left[index], right[index])]
    return (right[0], *bends, left[-1])
