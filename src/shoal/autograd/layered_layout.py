"""Positions for the nodes of a graph: in layers, with all arrows pointing down.

Phase 1, layers: a node is below everything it depends on; a source is just above its first reader.
Phase 2, bends: an arrow that passes a layer gets a position there, so that it runs between nodes.
Phase 3, order: sort each layer by the positions of its neighbours, downwards and upwards in turn; this removes most
crossings. Phase 4, positions: move nodes towards the median of their neighbours as far as the layer allows.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import final

Edge = tuple[Hashable, Hashable]
Neighbours = dict[Hashable, list[Hashable]]
Point = tuple[float, float]

NODE_HEIGHT = 40.0
GAP_ACROSS = 18.0
GAP_DOWN = 34.0
BEND_WIDTH = 8.0
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
    width_of: Mapping[Hashable, float], edges: Sequence[Edge], below: Sequence[Edge] = ()
) -> NodeLayout:
    """Place nodes of given widths; nodes come before their readers.

    `below` are pairs without an arrow of which the second must be below the first.
    """
    nodes = list(width_of)
    level = _levels(nodes, edges, below)
    layers: list[list[Hashable]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for node in nodes:
        layers[level[node]].append(node)
    routes: dict[Edge, list[Hashable]] = {}
    for start, end in dict.fromkeys(edges):
        between = range(level[start] + 1, level[end])
        bends: list[Hashable] = [("bend", start, end, depth) for depth in between]
        for depth, bend in zip(between, bends, strict=True):
            layers[depth].append(bend)
        routes[start, end] = [start, *bends, end]
    above, under = _neighbours([link for route in routes.values() for link in pairwise(route)])
    _sort_layers(layers, above, under)
    widths = {node: width_of.get(node, BEND_WIDTH) for layer in layers for node in layer}
    across = _across(layers, above, under, widths)
    left = min((across[node] - widths[node] / 2 for node in across), default=0.0)
    right = max((across[node] + widths[node] / 2 for node in across), default=0.0)
    point = {
        node: (across[node] - left, depth * (NODE_HEIGHT + GAP_DOWN) + NODE_HEIGHT / 2)
        for depth, layer in enumerate(layers)
        for node in layer
    }
    height = max((point[node][1] + NODE_HEIGHT / 2 for node in nodes), default=0.0)
    through = {edge: [point[node] for node in route] for edge, route in routes.items()}
    return NodeLayout({node: point[node] for node in nodes}, through, right - left, height)


def _neighbours(edges: Sequence[Edge]) -> tuple[Neighbours, Neighbours]:
    """The starts of the edges to each node, and the ends of the edges from each node."""
    starts: Neighbours = {}
    ends: Neighbours = {}
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


def _sort_layers(layers: list[list[Hashable]], above: Neighbours, under: Neighbours) -> None:
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else under
        for depth in range(1, len(layers)) if downwards else range(len(layers) - 2, -1, -1):
            beside = layers[depth - 1 if downwards else depth + 1]
            rank = {node: position for position, node in enumerate(beside)}
            middle: dict[Hashable, float] = {}
            for position, node in enumerate(layers[depth]):
                places = [rank[n] for n in neighbours.get(node, ()) if n in rank]
                middle[node] = sum(places) / len(places) if places else position
            layers[depth].sort(key=middle.__getitem__)


def _across(
    layers: list[list[Hashable]], above: Neighbours, under: Neighbours, widths: dict[Hashable, float]
) -> dict[Hashable, float]:
    across: dict[Hashable, float] = {}
    for layer in layers:
        edge = -sum(widths[node] + GAP_ACROSS for node in layer) / 2
        for node in layer:
            across[node] = edge + widths[node] / 2
            edge += widths[node] + GAP_ACROSS
    for sweep in range(2 * SWEEPS):
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            around = {node: [*above.get(node, ()), *under.get(node, ())] for node in layer}
            wanted = [
                median(across[n] for n in around[node]) if around[node] else across[node] for node in layer
            ]
            across |= dict(zip(layer, _apart(layer, wanted, widths), strict=True))
    return across


def _apart(layer: list[Hashable], wanted: list[float], widths: dict[Hashable, float]) -> list[float]:
    """Positions in order, as close to `wanted` as the widths allow: blocks that collide move to their mean."""
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + GAP_ACROSS)
    blocks: list[tuple[float, int]] = []  # (mean of wanted − offset, how many)
    for place, offset in zip(wanted, offsets, strict=True):
        blocks.append((place - offset, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, n), (b, m) = blocks[-2:]
            blocks[-2:] = [((a * n + b * m) / (n + m), n + m)]
    starts = [mean for mean, count in blocks for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]
