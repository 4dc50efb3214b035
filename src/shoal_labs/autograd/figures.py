"""The lab's figures: the graph of the worked example, the time of sharing, the time of each order."""

from functools import partial

import numpy as np

from shoal.kit.figures import Dash, Drawing, Line, Panel, Style, draw
from shoal_labs.autograd.experiment import RIVALS, AutogradMeasurements, Chain, Tapes
from shoal_labs.page.pictures import Draw, Svg
from shoal_labs.timing.contest import Contest
from shoal_labs.words import Words

LEGEND = {
    "forward": "figure.forward",
    "backward": "figure.backward",
    "source": "figure.source",
    "result": "figure.result",
    "kept for backward": "figure.kept",
    "scalar": "figure.scalar",
}
"""The words of the drawing's legend and of its boxes, and their keys."""
LOOKS: dict[str, tuple[str, Dash, str]] = {
    "plain": ("blue", "solid", "o"),
    "sharing": ("vermilion", "dashed", "s"),
    "written": ("blue", "solid", "o"),
    "by_hand": ("green", "dash-dotted", "^"),
    "compiled": ("vermilion", "dashed", "s"),
}
WIDTH_IN = 6.4


def figures(measured: AutogradMeasurements) -> dict[str, Draw]:
    """The figures by name."""
    return {
        "graph": Svg(partial(graph_svg, measured.course.svg)),
        "caching": partial(caching_figure, measured.caching.recurring),
        "chain": partial(chain_figure, measured.chains),
    }


def graph_svg(svg: str, words: Words) -> str:
    """The drawing with its legend and its shapes in the words given."""
    for english, key in LEGEND.items():
        svg = svg.replace(f">{english}</text>", f">{words(key)}</text>")
    return svg


def caching_figure(recurring: tuple[Tapes, ...], words: Words, font: str | None) -> Drawing:
    """Time against the number of recurrences, on a plain and on a sharing tape."""
    counts = [tapes.count for tapes in recurring]
    contests = [tapes.time for tapes in recurring]
    lines = [_line(name, counts, contests, words) for name in ("plain", "sharing")]
    panel = Panel("", words("figure.recurrences"), words("figure.time"), lines)
    return draw([panel], font=font, width_in=WIDTH_IN)


def chain_figure(chains: tuple[Chain, ...], words: Words, font: str | None) -> Drawing:
    """Time against the size of the matrices, in the written order, in the best one, and compiled."""
    sizes = [chain.size for chain in chains]
    contests = [chain.time for chain in chains]
    lines = [_line(name, sizes, contests, words) for name in RIVALS]
    panel = Panel("", words("figure.size"), words("figure.time"), lines)
    return draw([panel], font=font, width_in=WIDTH_IN)


def _line(name: str, places: list[int], contests: list[Contest], words: Words) -> Line:
    colour, dash, marker = LOOKS[name]
    quartiles = [1e3 * np.percentile(contest.seconds[name], [25, 50, 75]) for contest in contests]
    low, middle, high = np.array(quartiles).T
    style = Style(words(f"rival.{name}"), colour, dash, marker)
    return Line(style, np.array(places, dtype=np.float64), middle, low=low, high=high)
