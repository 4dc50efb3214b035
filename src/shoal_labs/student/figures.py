"""All losses of a student's code in one figure, each beside the same training done right."""

from collections.abc import Sequence
from functools import partial
from itertools import cycle

import numpy as np

from shoal.kit.figures import Drawing, Line, Panel, Style, draw, seeds_line
from shoal_labs.page.pictures import Draw
from shoal_labs.student.content import unit_of_loss
from shoal_labs.student.part import FEW, LAST, StudentMeasured, StudentPart, StudentRun, drawable
from shoal_labs.words import Words

COLOURS = ("blue", "vermilion", "green", "purple", "orange", "sky", "olive", "brown")


def figures(measured: StudentMeasured) -> dict[str, Draw]:
    """The curves; none where nothing could be trained, or no loss is a number."""
    return {"own": partial(loss_figure, measured)} if measured.drawn else {}


def loss_figure(measured: StudentMeasured, words: Words, font: str | None) -> Drawing:
    """The student's lines are solid, the right ones dashed."""
    axis = words(f"own.axis_{measured.plan.submission.number}")
    loss = words("own.loss_axis", unit=unit_of_loss(measured))
    panel = Panel("", axis, loss, lines_of(measured, words), log_x=False)
    return draw([panel], font=font, width_in=6.4)


def lines_of(measured: StudentMeasured, words: Words) -> list[Line]:
    """The lines from below: the dashed ones are on top, because a solid line hides one that coincides with it."""
    return [*map(_own_line, measured.drawn, cycle(COLOURS)), *_right_lines(measured.drawn, words)]


def _right_lines(parts: Sequence[StudentPart], words: Words) -> list[Line]:
    """What the parts are compared with: one line where that is the same for several."""
    lines: list[Line] = []
    for place, part in enumerate(parts):
        if drawable(part.right) and all(part.right != earlier.right for earlier in parts[:place]):
            alone = all(part.right == other.right for other in parts)
            label = words("own.right_line") if alone else words("own.right_label", part=part.label)
            colour = "black" if alone else COLOURS[place % len(COLOURS)]
            lines.append(_line(Style(label, colour, "dashed", width=1.2), part.x, part.right))
    return lines


def _own_line(part: StudentPart, colour: str) -> Line:
    return _line(Style(part.label, colour), part.x, part.runs)


def _line(style: Style, x: Sequence[float], runs: Sequence[StudentRun]) -> Line:
    """Up to the first loss that is not a number; long curves are smoothed."""
    losses, places = np.array([run.losses for run in runs], dtype=np.float64), np.array(x, dtype=np.float64)
    length = drawable(runs)
    losses, places = losses[:, :length], places[:length]
    if length > FEW:
        kernel = np.ones(LAST) / LAST
        losses = np.array([np.convolve(row, kernel, mode="valid") for row in losses])
        places = places[LAST - 1 :]
    return seeds_line(style, places, losses)
