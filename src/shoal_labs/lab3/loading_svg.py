"""How samples reach a worker: data set, sampler, loader and training loop, and what each gives to the next."""

from collections.abc import Sequence

from shoal.kit.figures import GRAPH, LARGE, SMALL, svg_box, svg_of, svg_text
from shoal_labs.words import Words

WIDTH, HEIGHT = 318, 326
"""In pixels: a phone shows it whole."""
WIDE, HIGH = 124, 56
"""Of a box."""
PLACES = {"Dataset": (1, 4), "Sampler": (193, 4), "DataLoader": (97, 142), "loop": (97, 260)}
"""Left upper corners."""
METHODS = {"Dataset": "__len__, __getitem__", "Sampler": "__iter__, __len__", "DataLoader": "batch_size"}
LOOKS = {"Dataset": "source", "Sampler": "backward", "DataLoader": "forward", "loop": "result"}
ARROWS: dict[str, tuple[Sequence[tuple[int, int]], tuple[int, int], str]] = {
    "count": ([(125, 32), (193, 32)], (158, 24), "middle"),
    "order": ([(255, 60), (255, 170), (221, 170)], (249, 124), "end"),
    "asks": ([(97, 186), (20, 186), (20, 60)], (24, 204), "start"),
    "samples": ([(64, 60), (64, 158), (97, 158)], (70, 92), "start"),
    "batches": ([(159, 198), (159, 260)], (166, 233), "start"),
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
    return svg_of(WIDTH, HEIGHT, parts)


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
