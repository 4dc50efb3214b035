"""A graph as Graphviz DOT, Mermaid, or a self-contained SVG.

Forward is blue, backward orange. Dashed arrows lead from forward to backward: values that must be kept for backward.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import final

from shoal.autograd.drawing.layout import Point, lay_out
from shoal.autograd.static.graph import Graph, Operation, Value

FORWARD, BACKWARD, SOURCE, RESULT = "forward", "backward", "source", "result"

COLOURS: dict[str, tuple[str, str]] = {
    FORWARD: ("#dbeafe", "#1d4ed8"),
    BACKWARD: ("#ffedd5", "#c2410c"),
    SOURCE: ("#f1f5f9", "#475569"),
    RESULT: ("#dcfce7", "#15803d"),
}
"""Fill and line of each kind of node."""

BOX_HEIGHT = 40.0
MOST_SLOPE = 0.4  # of an arrow beside boxes: over half a box's height, less than the gap between two


@final
@dataclass(frozen=True)
class Node:
    """A box: an operation, a source of values, or a result."""

    title: str
    subtitle: str
    kind: str
    detail: str = ""
    is_constant: bool = False


@final
@dataclass(frozen=True)
class Picture:
    """Nodes by key, in topological order, and the arrows."""

    nodes: dict[Hashable, Node]
    edges: tuple[tuple[Hashable, Hashable], ...]


def picture(graph: Graph) -> Picture:
    """The nodes and arrows of a graph: every operation, the sources it reads, and the results."""
    nodes: dict[Hashable, Node] = {}
    edges: list[tuple[Hashable, Hashable]] = []
    maker: dict[Value, Hashable] = {}

    def source(value: Value) -> Hashable:
        if value not in maker:
            maker[value] = ("source", len(nodes))
            title = value.name or _number(value) or value.kind
            constant = value.kind == "constant"
            nodes[maker[value]] = Node(
                title, _shape(value), SOURCE, f"{value.kind} {_shape(value)}", constant
            )
        return maker[value]

    for index, operation in enumerate(graph.operations):
        starts = [source(value) for value in operation.values]
        key = ("operation", index)
        nodes[key] = _operation_node(operation)
        edges += [(start, key) for start in starts]
        maker |= dict.fromkeys(operation.outputs, key)
    for number, value in enumerate(graph.outputs):
        key = ("output", number)
        start = source(value)
        title = value.name or ("result" if len(graph.outputs) == 1 else f"result {number}")
        nodes[key] = Node(title, _shape(value), RESULT)
        edges.append((start, key))
    for number, (parameter, value) in enumerate(graph.deliveries):
        key = ("gradient", number)
        start = source(value)
        nodes[key] = Node(f"∂ {parameter.name or 'parameter'}", _shape(value), RESULT, "added to .grad")
        edges.append((start, key))
    return Picture(nodes, tuple(dict.fromkeys(edges)))


def _operation_node(operation: Operation) -> Node:
    numbers = [f"{operand:g}" for operand in operation.inputs if not isinstance(operand, Value)]
    kind = BACKWARD if operation.is_backward else FORWARD
    options = ", ".join(f"{key}={value}" for key, value in operation.attributes.items())
    return Node(" ".join([operation.name, *numbers]), _shape(operation.outputs[0]), kind, options)


def _number(value: Value) -> str:
    """The number of a constant whose elements are all equal."""
    tensor = value.tensor
    if (
        value.kind != "constant"
        or tensor is None
        or tensor.numel() == 0
        or bool((tensor != tensor.flatten()[0]).any())
    ):
        return ""
    return f"{tensor.flatten()[0].item():g}"


def _shape(value: Value) -> str:
    return "×".join(map(str, value.shape)) or "scalar"


def dot(graph: Graph) -> str:
    """Graphviz DOT, for `dot -Tpdf`.

    >>> import torch
    >>> from shoal.autograd.static.graph import trace
    >>> print(dot(trace(lambda x: x * 2.0, [torch.ones(3)])).splitlines()[2])
      n0 [label="input0\\n3", fillcolor="#f1f5f9", color="#475569"];
    """
    drawn = picture(graph)
    number = {key: f"n{position}" for position, key in enumerate(drawn.nodes)}
    lines = ["digraph computation {", '  node [shape=box, style="rounded,filled", fontname="sans-serif"];']
    for key, node in drawn.nodes.items():
        fill, line = COLOURS[node.kind]
        label = f"{node.title}\\n{node.subtitle}".replace('"', "'")
        lines.append(f'  {number[key]} [label="{label}", fillcolor="{fill}", color="{line}"];')
    for start, end in drawn.edges:
        style = ' [style=dashed, color="#c2410c"]' if _is_kept(drawn, start, end) else ""
        lines.append(f"  {number[start]} -> {number[end]}{style};")
    return "\n".join([*lines, "}"]) + "\n"


def mermaid(graph: Graph) -> str:
    """Mermaid, which Markdown viewers draw."""
    drawn = picture(graph)
    number = {key: f"n{position}" for position, key in enumerate(drawn.nodes)}
    lines = ["flowchart TD"]
    for key, node in drawn.nodes.items():
        label = f"{node.title}<br/>{node.subtitle}".replace('"', "'")
        lines.append(f'  {number[key]}["{label}"]:::{node.kind}')
    for start, end in drawn.edges:
        arrow = "-.->" if _is_kept(drawn, start, end) else "-->"
        lines.append(f"  {number[start]} {arrow} {number[end]}")
    lines += [f"  classDef {kind} fill:{fill},stroke:{line}" for kind, (fill, line) in COLOURS.items()]
    return "\n".join(lines) + "\n"


def svg(graph: Graph, title: str = "") -> str:
    """A self-contained picture: no external fonts, scripts or styles."""
    drawn = picture(graph)
    sizes: dict[Hashable, tuple[float, float]] = {
        key: (max(_text_width(node.title, 13), _text_width(node.subtitle, 11)) + 24, BOX_HEIGHT)
        for key, node in drawn.nodes.items()
    }
    layout = lay_out(sizes, drawn.edges, _backward_below_forward(drawn))
    margin, head = 20.0, 56.0
    width, height = max(layout.width + 2 * margin, 460.0), layout.height + head + margin
    shift = (width - layout.width) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        *_arrow_heads(),
        *_legend(title, margin),
        f'<g transform="translate({shift:.1f} {head:.1f})">',
    ]
    for (start, end), bends in layout.bends.items():
        parts.append(_arrow(drawn, start, end, bends, sizes))
    for key, node in drawn.nodes.items():
        parts.append(_box(node, layout.centres[key], sizes[key]))
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _backward_below_forward(drawn: Picture) -> list[tuple[Hashable, Hashable]]:
    """Pairs that place all backward operations below the last forward one, the order in which they run."""
    forward = [key for key, node in drawn.nodes.items() if node.kind == FORWARD]
    return [(forward[-1], key) for key, node in drawn.nodes.items() if node.kind == BACKWARD and forward]


def _is_kept(drawn: Picture, start: Hashable, end: Hashable) -> bool:
    first, second = drawn.nodes[start], drawn.nodes[end]
    return first.kind != BACKWARD and not first.is_constant and second.kind == BACKWARD


def _text_width(text: str, size: float) -> float:
    return len(text) * size * 0.58


def _arrow_heads() -> list[str]:
    shape = '<path d="M0 0 L8 4 L0 8 z"'
    heads = [
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'{shape} fill="{colour}"/></marker>'
        for name, colour in (("grey", "#64748b"), ("orange", "#c2410c"))
    ]
    return ["<defs>", *heads, "</defs>"]


def _legend(title: str, margin: float) -> list[str]:
    parts = [
        f'<text x="{margin}" y="20" font-size="14" font-weight="bold" fill="#0f172a">{escape(title)}</text>'
    ]
    across = margin
    for kind, (fill, line) in COLOURS.items():
        parts.append(
            f'<rect x="{across}" y="28" width="12" height="12" rx="3" fill="{fill}" stroke="{line}"/>'
        )
        parts.append(f'<text x="{across + 17}" y="38" font-size="11" fill="#334155">{kind}</text>')
        across += 30 + _text_width(kind, 11)
    dashes = (
        f'<line x1="{across}" y1="34" x2="{across + 22}" y2="34" stroke="#c2410c" stroke-dasharray="4 3"/>'
    )
    return [
        *parts,
        dashes,
        f'<text x="{across + 27}" y="38" font-size="11" fill="#334155">kept for backward</text>',
    ]


def _arrow(
    drawn: Picture,
    start: Hashable,
    end: Hashable,
    bends: list[Point],
    sizes: dict[Hashable, tuple[float, float]],
) -> str:
    (x0, y0), *_, (x1, y1) = bends
    places = [(x0, y0 + sizes[start][1] / 2, 0.0)]
    for (ax, ay), (x, y), (bx, by) in zip(bends, bends[1:], bends[2:], strict=False):
        slope = _slope((x - ax) / (y - ay), (bx - x) / (by - y))
        # Nearly straight through the row: it moves sideways only between rows of boxes.
        places += [(x + slope * step, y + step, slope) for step in (-BOX_HEIGHT / 2, BOX_HEIGHT / 2)]
    places.append((x1, y1 - sizes[end][1] / 2 - 1, 0.0))
    path = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    for (ax, ay, a_slope), (bx, by, b_slope) in pairwise(places):
        reach = (by - ay) / (2 if 0.0 in (a_slope, b_slope) else 3)
        path += f" C{ax + a_slope * reach:.1f} {ay + reach:.1f}"
        path += f" {bx - b_slope * reach:.1f} {by - reach:.1f} {bx:.1f} {by:.1f}"
    kept = _is_kept(drawn, start, end)
    colour, head = ("#c2410c", "orange") if drawn.nodes[end].kind == BACKWARD else ("#64748b", "grey")
    dash = ' stroke-dasharray="4 3"' if kept else ""
    return f'<path d="{path}" fill="none" stroke="{colour}"{dash} marker-end="url(#{head})"/>'


def _slope(before: float, after: float) -> float:
    """Horizontal per vertical distance where an arrow passes a row: the steeper side's, 0 where it turns back."""
    if before * after <= 0:
        return 0.0
    steepest = min(abs(before), abs(after), MOST_SLOPE)
    return steepest if before > 0 else -steepest


def _box(node: Node, centre: Point, size: tuple[float, float]) -> str:
    (x, y), (width, height) = centre, size
    fill, line = COLOURS[node.kind]
    hover = f"<title>{escape(node.detail)}</title>" if node.detail else ""
    frame = (
        f'x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" rx="7"'
    )
    return (
        f'<g text-anchor="middle">{hover}<rect {frame} fill="{fill}" stroke="{line}"/>'
        f'<text x="{x:.1f}" y="{y - 3:.1f}" font-size="13" fill="#0f172a">{escape(node.title)}</text>'
        f'<text x="{x:.1f}" y="{y + 12:.1f}" font-size="11" fill="#475569">{escape(node.subtitle)}</text></g>'
    )
