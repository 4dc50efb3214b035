"""A graph as Graphviz DOT, Mermaid, or a self-contained SVG.

Forward is blue, backward orange. Dashed arrows lead from forward to backward: values that must be kept for backward.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import final

from shoal.autograd.layered_layout import NODE_HEIGHT, Point, lay_out
from shoal.autograd.static.graph import Graph, Value

FORWARD, BACKWARD, SOURCE, RESULT = "forward", "backward", "source", "result"

COLOURS: dict[str, tuple[str, str]] = {
    FORWARD: ("#dbeafe", "#1d4ed8"),
    BACKWARD: ("#ffedd5", "#c2410c"),
    SOURCE: ("#f1f5f9", "#475569"),
    RESULT: ("#dcfce7", "#15803d"),
}
"""Fill and line of each kind of node."""

MARGIN, HEAD, LEAST_WIDTH = 20.0, 56.0, 460.0
MOST_SLOPE = 0.4  # of an arrow beside boxes: over half a box's height, less than the gap between two


@final
@dataclass(frozen=True)
class Box:
    """An operation, a source of values, or a result."""

    title: str
    subtitle: str
    kind: str
    detail: str = ""
    is_constant: bool = False


@final
@dataclass
class Picture:
    """Boxes by name, in topological order, and the arrows between them."""

    nodes: dict[str, Box] = field(default_factory=dict[str, Box])
    edges: dict[tuple[str, str], bool] = field(default_factory=dict[tuple[str, str], bool])
    """Whether the value on an arrow must be kept for backward."""

    def add(self, box: Box, *starts: str) -> str:
        """Add a box with arrows from others; returns its name."""
        name = f"n{len(self.nodes)}"
        self.nodes[name] = box
        for start in starts:
            first = self.nodes[start]
            self.edges[start, name] = (
                first.kind != BACKWARD and not first.is_constant and box.kind == BACKWARD
            )
        return name


def picture(graph: Graph) -> Picture:
    """The boxes and arrows of a graph: every operation, the sources it reads, and the results."""
    drawn = Picture()
    maker: dict[Value, str] = {}

    def source(value: Value) -> str:
        if value not in maker:
            constant = value.kind == "constant"
            title = value.name or _number(value) or value.kind
            shape = _shape(value)
            maker[value] = drawn.add(Box(title, shape, SOURCE, f"{value.kind} {shape}", constant))
        return maker[value]

    for operation in graph.operations:
        starts = [source(value) for value in operation.values]
        numbers = [f"{operand:g}" for operand in operation.inputs if not isinstance(operand, Value)]
        title = " ".join([operation.name, *numbers])
        options = ", ".join(f"{key}={value}" for key, value in operation.attributes.items())
        kind = BACKWARD if operation.is_backward else FORWARD
        name = drawn.add(Box(title, _shape(operation.outputs[0]), kind, options), *starts)
        maker |= dict.fromkeys(operation.outputs, name)
    for number, value in enumerate(graph.outputs):
        start = source(value)
        title = value.name or ("result" if len(graph.outputs) == 1 else f"result {number}")
        drawn.add(Box(title, _shape(value), RESULT), start)
    for parameter, value in graph.deliveries:
        start = source(value)
        title = f"∂ {parameter.name or 'parameter'}"
        drawn.add(Box(title, _shape(value), RESULT, "added to .grad"), start)
    return drawn


def _number(value: Value) -> str:
    """The number of a constant whose elements are all equal."""
    tensor = value.tensor
    if value.kind != "constant" or tensor is None or tensor.numel() == 0:
        return ""
    first = tensor.flatten()[0]
    return "" if bool((tensor != first).any()) else f"{first.item():g}"


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
    lines = ["digraph computation {", '  node [shape=box, style="rounded,filled", fontname="sans-serif"];']
    for name, box in drawn.nodes.items():
        fill, line = COLOURS[box.kind]
        label = f"{box.title}\\n{box.subtitle}".replace('"', "'")
        lines.append(f'  {name} [label="{label}", fillcolor="{fill}", color="{line}"];')
    for (start, end), kept in drawn.edges.items():
        style = f' [style=dashed, color="{COLOURS[BACKWARD][1]}"]' if kept else ""
        lines.append(f"  {start} -> {end}{style};")
    return "\n".join([*lines, "}"]) + "\n"


def mermaid(graph: Graph) -> str:
    """Mermaid, which Markdown viewers draw."""
    drawn = picture(graph)
    lines = ["flowchart TD"]
    for name, box in drawn.nodes.items():
        label = f"{box.title}<br/>{box.subtitle}".replace('"', "'")
        lines.append(f'  {name}["{label}"]:::{box.kind}')
    lines += [f"  {start} {'-.->' if kept else '-->'} {end}" for (start, end), kept in drawn.edges.items()]
    lines += [f"  classDef {kind} fill:{fill},stroke:{line}" for kind, (fill, line) in COLOURS.items()]
    return "\n".join(lines) + "\n"


def svg(graph: Graph, title: str = "") -> str:
    """A self-contained picture: no external fonts, scripts or styles."""
    drawn = picture(graph)
    widths: dict[Hashable, float] = {
        name: max(_text_width(box.title, 13), _text_width(box.subtitle, 11)) + 24
        for name, box in drawn.nodes.items()
    }
    # All backward operations are below the last forward one: the order in which they run.
    forward = [name for name, box in drawn.nodes.items() if box.kind == FORWARD]
    backward = [name for name, box in drawn.nodes.items() if box.kind == BACKWARD and forward]
    layout = lay_out(widths, list(drawn.edges), [(forward[-1], name) for name in backward])
    width, height = max(layout.width + 2 * MARGIN, LEAST_WIDTH), layout.height + HEAD + MARGIN
    arrow_heads = [
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
        for name, colour in (("grey", "#64748b"), ("orange", "#c2410c"))
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        *("<defs>", *arrow_heads, "</defs>"),
        *_legend(title),
        f'<g transform="translate({(width - layout.width) / 2:.1f} {HEAD:.1f})">',
    ]
    for (start, end), kept in drawn.edges.items():
        parts.append(_arrow(layout.bends[start, end], kept, drawn.nodes[end].kind == BACKWARD))
    for name, box in drawn.nodes.items():
        parts.append(_box(box, layout.centres[name], widths[name]))
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _text_width(text: str, size: float) -> float:
    return len(text) * size * 0.58


def _legend(title: str) -> list[str]:
    across = MARGIN
    parts = [
        f'<text x="{across}" y="20" font-size="14" font-weight="bold" fill="#0f172a">{escape(title)}</text>'
    ]
    for kind, (fill, line) in COLOURS.items():
        parts += [
            f'<rect x="{across}" y="28" width="12" height="12" rx="3" fill="{fill}" stroke="{line}"/>',
            f'<text x="{across + 17}" y="38" font-size="11" fill="#334155">{kind}</text>',
        ]
        across += 30 + _text_width(kind, 11)
    return [
        *parts,
        f'<line x1="{across}" y1="34" x2="{across + 22}" y2="34" stroke="#c2410c" stroke-dasharray="4 3"/>',
        f'<text x="{across + 27}" y="38" font-size="11" fill="#334155">kept for backward</text>',
    ]


def _arrow(bends: list[Point], kept: bool, is_backward: bool) -> str:
    (x0, y0), *_, (x1, y1) = bends
    places = [(x0, y0 + NODE_HEIGHT / 2, 0.0)]
    for (ax, ay), (x, y), (bx, by) in zip(bends, bends[1:], bends[2:], strict=False):
        slope = _slope((x - ax) / (y - ay), (bx - x) / (by - y))
        # Nearly straight through the row: it moves sideways only between rows of boxes.
        places += [(x + slope * step, y + step, slope) for step in (-NODE_HEIGHT / 2, NODE_HEIGHT / 2)]
    places.append((x1, y1 - NODE_HEIGHT / 2 - 1, 0.0))
    path = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    for (ax, ay, a_slope), (bx, by, b_slope) in pairwise(places):
        reach = (by - ay) / (2 if 0.0 in (a_slope, b_slope) else 3)
        path += f" C{ax + a_slope * reach:.1f} {ay + reach:.1f}"
        path += f" {bx - b_slope * reach:.1f} {by - reach:.1f} {bx:.1f} {by:.1f}"
    colour, head = ("#c2410c", "orange") if is_backward else ("#64748b", "grey")
    dash = ' stroke-dasharray="4 3"' if kept else ""
    return f'<path d="{path}" fill="none" stroke="{colour}"{dash} marker-end="url(#{head})"/>'


def _slope(before: float, after: float) -> float:
    """Horizontal per vertical distance where an arrow passes a row: the less steep side's, 0 where it turns back."""
    if before * after <= 0:
        return 0.0
    least = min(abs(before), abs(after), MOST_SLOPE)
    return least if before > 0 else -least


def _box(box: Box, centre: Point, width: float) -> str:
    (x, y), (fill, line) = centre, COLOURS[box.kind]
    hover = f"<title>{escape(box.detail)}</title>" if box.detail else ""
    frame = (
        f'x="{x - width / 2:.1f}" y="{y - NODE_HEIGHT / 2:.1f}" '
        f'width="{width:.1f}" height="{NODE_HEIGHT:.1f}" rx="7"'
    )
    return (
        f'<g text-anchor="middle">{hover}<rect {frame} fill="{fill}" stroke="{line}"/>'
        f'<text x="{x:.1f}" y="{y - 3:.1f}" font-size="13" fill="#0f172a">{escape(box.title)}</text>'
        f'<text x="{x:.1f}" y="{y + 12:.1f}" font-size="11" fill="#475569">{escape(box.subtitle)}</text></g>'
    )
