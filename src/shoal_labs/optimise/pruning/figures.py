"""The figure of the part: accuracy, speed and size over sparsity, side by side."""

from functools import partial

import numpy as np

from shoal.report.canvas import Drawing
from shoal.report.curves import Dash, Line, Panel, Style, draw_apart
from shoal.report.finished_runs import Array
from shoal_labs.optimise.pruning.measure import Pruned, PruningMeasurements
from shoal_labs.optimise.pruning.plan import KINDS
from shoal_labs.page.pictures import Draw
from shoal_labs.words import Words

LOOKS: dict[str, tuple[str, Dash, str]] = {
    "weights": ("blue", "solid", "o"),
    "channels": ("vermilion", "dashed", "s"),
}


def figures(measured: PruningMeasurements) -> dict[str, Draw]:
    """The figure by its name."""
    return {"pruning": partial(pruning_figure, measured)}


def pruning_figure(measured: PruningMeasurements, words: Words, font: str | None) -> Drawing:
    """Each kind of pruning from the whole network on, all fine-tuned alike."""

    def accuracy(kind: str) -> Line:
        whole = 100 * np.array(measured.tuned[kind])
        values = np.stack([whole, *(100 * np.array(each.accuracies) for each in measured.of_kind(kind))])
        return Line(_style(kind, words), _x(kind), values.mean(1), values.min(1), values.max(1))

    def line(kind: str, values: list[float]) -> Line:
        return Line(_style(kind, words), _x(kind), np.array(values))

    def size(each: Pruned) -> float:
        return each.num_bytes / 1024

    panels = [
        (words("figure.accuracy"), [accuracy(kind) for kind in KINDS]),
        (
            words("figure.speedup"),
            [
                line(kind, [1.0, *(measured.speedup(each).value for each in measured.of_kind(kind))])
                for kind in KINDS
            ],
        ),
        (
            words("figure.size"),
            [line(kind, [measured.num_bytes / 1024, *map(size, measured.of_kind(kind))]) for kind in KINDS],
        ),
    ]
    return draw_apart(
        [
            Panel(
                "",
                words("figure.sparsity"),
                label,
                lines,
                log_x=False,
                log_y=False,
                from_zero=label == words("figure.size"),
            )
            for label, lines in panels
        ],
        font=font,
    )


def _x(kind: str) -> Array:
    return 100 * np.array([0.0, *KINDS[kind]])


def _style(kind: str, words: Words) -> Style:
    colour, dash, marker = LOOKS[kind]
    return Style(words(f"pruned.{kind}"), colour, dash, marker)
