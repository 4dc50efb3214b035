"""Positions for the nodes of a graph: in layers, with all arrows pointing down.

Phase 1, layers: a node is below everything it depends on; a source is just above its first reader.
Phase 2, bends: an arrow that passes a layer gets a position there, so that it runs between nodes.
Phase 3, order: sort each layer by the positions of its neighbours, downwards and upwards in turn; this removes most
crossings. Phase 4, positions: move nodes towards the median of their neighbours as far as the layer allows.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

Edge = tuple[Hashable, Hashable]
Point = tuple[float, float]

GAP_ACROSS = 18.0
GAP_DOWN = 34.0
SWEEPS = 12


@final
@dataclass(frozen=True)
class NodeLayout:
    """Centres of nodes, bends of arrows from start to end, and the size of the whole."""

    centres: dict[Hashable, Point]
    bends: dict[Edge, list[Point]]
    width: float
    height: float


def lay_out(
    sizes: Mapping[Hashable, tuple[float, float]], edges: Sequence[Edge], below: Sequence[Edge] = ()
) -> NodeLayout:
    """Place nodes of given (width, height); nodes come before their readers.

    `below` are pairs without an arrow of which the second must be below the first.
    """
    level = _levels(list(sizes), edges, below)
    layers, links, routes = _with_bends(sizes, edges, level)
    above, under = _neighbours(links)
    _sort_layers(layers, above, under)
    width_of = {node: sizes[node][0] if node in sizes else 8.0 for layer in layers for node in layer}
    across = _across(layers, above, under, width_of)
    left = min((across[node] - width_of[node] / 2 for node in across), default=0.0)
    right = max((across[node] + width_of[node] / 2 for node in across), default=0.0)
    down = _down(layers, sizes)
    point = {node: (across[node] - left, down[node]) for node in across}
    height = max((down[node] + sizes[node][1] / 2 for node in sizes), default=0.0)
    bends = {edge: [point[node] for node in route] for edge, route in routes.items()}
    return NodeLayout({node: point[node] for node in sizes}, bends, right - left, height)


def _neighbours(
    edges: Sequence[Edge],
) -> tuple[dict[Hashable, list[Hashable]], dict[Hashable, list[Hashable]]]:
    """The starts of the edges to each node, and the ends of the edges from each node."""
    starts: dict[Hashable, list[Hashable]] = {}
    ends: dict[Hashable, list[Hashable]] = {}
    for start, end in edges:
        starts.setdefault(end, []).append(start)
        ends.setdefault(start, []).append(end)
    return starts, ends


def _levels(nodes: list[Hashable], edges: Sequence[Edge], below: Sequence[Edge]) -> dict[Hashable, int]:
    level = dict.fromkeys(nodes, 0)
    sources_of, readers_of = _neighbours(edges)
    over, _ = _neighbours(below)
    for node in nodes:
        level[node] = max((level[n] + 1 for n in (*sources_of.get(node, ()), *over.get(node, ()))), default=0)
    for node in nodes:
        if node not in sources_of and node in readers_of:
            level[node] = min(level[reader] for reader in readers_of[node]) - 1
    lowest = min(level.values(), default=0)
    return {node: depth - lowest for node, depth in level.items()}


def _with_bends(
    sizes: Mapping[Hashable, tuple[float, float]], edges: Sequence[Edge], level: dict[Hashable, int]
) -> tuple[list[list[Hashable]], list[Edge], dict[Edge, list[Hashable]]]:
    layers: list[list[Hashable]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for node in sizes:
        layers[level[node]].append(node)
    links: list[Edge] = []
    routes: dict[Edge, list[Hashable]] = {}
    for start, end in dict.fromkeys(edges):
        route: list[Hashable] = [start]
        for depth in range(level[start] + 1, level[end]):
            bend = ("bend", start, end, depth)
            layers[depth].append(bend)
            route.append(bend)
        route.append(end)
        links += list(pairwise(route))
        routes[start, end] = route
    return layers, links, routes


def _sort_layers(
    layers: list[list[Hashable]],
    above: dict[Hashable, list[Hashable]],
    under: dict[Hashable, list[Hashable]],
) -> None:
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else under
        order = range(1, len(layers)) if downwards else range(len(layers) - 2, -1, -1)
        for depth in order:
            other = layers[depth - 1 if downwards else depth + 1]
            rank = {node: position for position, node in enumerate(other)}
            current = {node: position for position, node in enumerate(layers[depth])}

            def middle(
                node: Hashable, rank: dict[Hashable, int] = rank, current: dict[Hashable, int] = current
            ) -> float:
                places = [rank[n] for n in neighbours.get(node, ()) if n in rank]  # noqa: B023 (used at once)
                return sum(places) / len(places) if places else current[node]

            layers[depth].sort(key=middle)


def _across(
    layers: list[list[Hashable]],
    above: dict[Hashable, list[Hashable]],
    under: dict[Hashable, list[Hashable]],
    width_of: dict[Hashable, float],
) -> dict[Hashable, float]:
    across: dict[Hashable, float] = {}
    for layer in layers:
        edge = -sum(width_of[node] + GAP_ACROSS for node in layer) / 2
        for node in layer:
            across[node] = edge + width_of[node] / 2
            edge += width_of[node] + GAP_ACROSS
    for sweep in range(2 * SWEEPS):
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            wanted: list[float] = []
            for node in layer:
                places = sorted(across[n] for n in (*above.get(node, ()), *under.get(node, ())))
                half = len(places) // 2
                middle = (places[half] + places[-half - 1]) / 2 if places else across[node]
                wanted.append(middle)
            across |= dict(zip(layer, _apart(layer, wanted, width_of), strict=True))
    return across


def _apart(layer: list[Hashable], wanted: list[float], width_of: dict[Hashable, float]) -> list[float]:
    """Positions in order, as close to `wanted` as the widths allow: blocks that collide move to their mean."""
    offset = 0.0
    offsets: list[float] = []
    for position, node in enumerate(layer):
        if position:
            offset += (width_of[layer[position - 1]] + width_of[node]) / 2 + GAP_ACROSS
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []  # (mean of wanted − offset, how many)
    for place, shift in zip(wanted, offsets, strict=True):
        blocks.append((place - shift, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, n), (b, m) = blocks[-2:]
            blocks[-2:] = [((a * n + b * m) / (n + m), n + m)]
    starts = [mean for mean, count in blocks for _ in range(count)]
    return [start + shift for start, shift in zip(starts, offsets, strict=True)]


def _down(
    layers: list[list[Hashable]], sizes: Mapping[Hashable, tuple[float, float]]
) -> dict[Hashable, float]:
    down: dict[Hashable, float] = {}
    edge = 0.0
    for layer in layers:
        height = max((sizes[node][1] for node in layer if node in sizes), default=0.0)
        for node in layer:
            down[node] = edge + height / 2
        edge += height + GAP_DOWN
    return down
