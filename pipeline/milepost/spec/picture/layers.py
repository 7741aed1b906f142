"""Layers place boxes and their links from left to right: each box right of what it reads, few links crossing.

A link that passes layers has a bend in each of them. The order within a layer is by the mean place of the neighbours,
back and forth a few times. Ties keep the order in which boxes were given, so one graph has one picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS = 6
BETWEEN_LAYERS = 56
BETWEEN_BOXES = 18
_BEND_HEIGHT = 8
"""Of the place that a link takes in a layer that it passes."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where everything is, in units of the picture; the origin is above and left of all.

    Attributes:
        corners: of each box, its upper left one. routes: of each link, in order, where it leaves, bends and arrives.
    """

    corners: Mapping[str, Point]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def placed(sizes: Mapping[str, tuple[int, int]], links: Sequence[tuple[str, str]]) -> Placed:
    """Place boxes.

    Args:
        sizes: width and height of each box; a box comes after those that it reads.
        links: from a box to one that comes after it.
    """
    layer_of = dict.fromkeys(sizes, 0)
    for name in sizes:
        layer_of[name] = max((layer_of[source] + 1 for source, target in links if target == name), default=0)
    places: dict[str, tuple[int, int]] = dict(sizes)
    chains = [_chain(number, link, layer_of, places) for number, link in enumerate(links)]
    layers = [[name for name in places if layer_of[name] == layer] for layer in range(max(layer_of.values()) + 1)]
    steps = [step for chain in chains for step in pairwise(chain)]
    before = {name: [source for source, target in steps if target == name] for name in places}
    after = {name: [target for source, target in steps if source == name] for name in places}
    tops = {name: top for layer in layers for name, top in _stacked(layer, places).items()}
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _settle(layer, before if sweep % 2 == 0 else after, places, tops)
    highest = min(tops.values())
    corners: dict[str, Point] = {}
    x = 0.0
    for layer in layers:
        corners |= {name: (x, tops[name] - highest) for name in layer}
        widest = max(places[name][0] for name in layer)
        places |= {name: (widest, _BEND_HEIGHT) for name in layer if name not in sizes}  # past the boxes beside it
        x += widest + BETWEEN_LAYERS
    height = max(corners[name][1] + places[name][1] for name in places)
    routes = tuple(_route(chain, corners, places) for chain in chains)
    return Placed({name: corners[name] for name in sizes}, routes, x - BETWEEN_LAYERS, height)


def _chain(
    number: int, link: tuple[str, str], layer_of: dict[str, int], places: dict[str, tuple[int, int]]
) -> list[str]:
    """Return what a link passes, its bends added to the places."""
    source, target = link
    bends = []
    for layer in range(layer_of[source] + 1, layer_of[target]):
        bend = f"\0{number} {layer}"  # no box has such a name
        places[bend], layer_of[bend] = (0, _BEND_HEIGHT), layer
        bends.append(bend)
    return [source, *bends, target]


def _stacked(layer: Sequence[str], places: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    tops: dict[str, float] = {}
    y = 0.0
    for name in layer:
        tops[name] = y
        y += places[name][1] + BETWEEN_BOXES
    return tops


def _settle(
    layer: list[str],
    neighbours: Mapping[str, Sequence[str]],
    places: Mapping[str, tuple[int, int]],
    tops: dict[str, float],
) -> None:
    """Order a layer by where its boxes' neighbours are, and bring each as near to them as the others let it."""

    def wanted(name: str) -> float:
        near = neighbours[name]
        if not near:
            return tops[name]
        middle = sum(tops[other] + places[other][1] / 2 for other in near) / len(near)
        return middle - places[name][1] / 2

    middles = {name: wanted(name) + places[name][1] / 2 for name in layer}
    layer.sort(key=lambda name: middles[name])
    wishes = {name: middles[name] - places[name][1] / 2 for name in layer}
    # Pushed down by those above, each is at most so far below its wish; half of the most is given back to all.
    pushed: dict[str, float] = {}
    floor = float("-inf")
    for name in layer:
        pushed[name] = max(wishes[name], floor)
        floor = pushed[name] + places[name][1] + BETWEEN_BOXES
    back = max((pushed[name] - wishes[name] for name in layer), default=0.0) / 2
    tops |= {name: pushed[name] - back for name in layer}


def _route(
    chain: Sequence[str], corners: Mapping[str, Point], places: Mapping[str, tuple[int, int]]
) -> tuple[Point, ...]:
    """Return the points of a link: right of its source, along each layer that it passes, left of its target."""
    centres = [(corners[name][0], corners[name][1] + places[name][1] / 2) for name in chain]
    ends = [(x + places[name][0], y) for name, (x, y) in zip(chain, centres, strict=True)]
    passed = [point for at in range(1, len(chain) - 1) for point in (centres[at], ends[at])]
    return (ends[0], *passed, centres[-1])
