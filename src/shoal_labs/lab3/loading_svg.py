"""How samples reach a worker: data set, sampler, loader and training loop, and what each gives to the next."""

from collections.abc import Sequence

from shoal.explain.picture import LARGE, SMALL, svg_box, svg_of, svg_text
from shoal.explain.timeline_svg import WIDTH
from shoal.report.svg import GRAPH
from shoal_labs.words import Words

WIDE, HIGH = 150, 56
"""Of a box, in pixels."""
PLACES = {"Dataset": (10, 12), "Sampler": (320, 12), "DataLoader": (165, 150), "loop": (165, 268)}
"""Left upper corners."""
METHODS = {
    "Dataset": "__len__, __getitem__",
    "Sampler": "__iter__, __len__, set_epoch",
    "DataLoader": "batch_size",
}
LOOKS = {"Dataset": "source", "Sampler": "backward", "DataLoader": "forward", "loop": "result"}
ARROWS: dict[str, tuple[Sequence[tuple[int, int]], tuple[int, int], str]] = {
    "count": ([(160, 40), (320, 40)], (240, 32), "middle"),
    "order": ([(395, 68), (395, 178), (315, 178)], (388, 124), "end"),
    "asks": ([(165, 194), (40, 194), (40, 68)], (48, 212), "start"),
    "samples": ([(120, 68), (120, 166), (165, 166)], (128, 124), "start"),
    "batches": ([(240, 206), (240, 268)], (248, 241), "start"),
}
"""Corners of the line, where its word is, and which end of the word."""


def loading_svg(words: Words) -> str:
    """The drawing, in the words given."""
    parts: list[str] = []
    for name, (corners, (x, y), anchor) in ARROWS.items():
        parts += [
            _arrow(corners),
            svg_text(words(f"loading.{name}"), x, y, GRAPH["legend"], _anchored(anchor)),
        ]
    for name, (x, y) in PLACES.items():
        look, middle = LOOKS[name], x + WIDE / 2
        label = words("loading.loop") if name == "loop" else name
        parts += [
            svg_box(x, y, WIDE, HIGH, GRAPH[look], GRAPH[f"{look}-line"]),
            svg_text(label, middle, y + 24, GRAPH["title"], _anchored("middle", LARGE)),
            svg_text(
                METHODS.get(name) or words("loading.use"),
                middle,
                y + 43,
                GRAPH["legend"],
                _anchored("middle", SMALL),
            ),
        ]
    return svg_of(WIDTH, 334, parts)


def _anchored(anchor: str, size: int = 12) -> str:
    return f'font-size="{size}" text-anchor="{anchor}"'


def _arrow(corners: Sequence[tuple[int, int]]) -> str:
    """A line along the corners, with a head at the last."""
    (x, y), (end_x, end_y) = corners[-2:]
    along = ((end_x > x) - (end_x < x), (end_y > y) - (end_y < y))
    back = (end_x - 8 * along[0], end_y - 8 * along[1])
    side = (4 * along[1], 4 * along[0])
    line = " ".join(f"{x},{y}" for x, y in [*corners[:-1], back])
    head = f"{end_x},{end_y} {back[0] + side[0]},{back[1] + side[1]} {back[0] - side[0]},{back[1] - side[1]}"
    colour = GRAPH["arrow"]
    return (
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        f'<polygon points="{head}" fill="{colour}"/>'
    )
