import numpy as np

from shoal.compare.comparison import KINDS
from shoal.compare.figures import LOOKS, distinct_colours, turn_dashes
from shoal.labs.page.bars import time_parts
from shoal.labs.words import load_words
from shoal.report.svg import COLOURS


def test_no_run_has_the_colour_of_another_or_of_the_reference():
    for count in (1, 9, 10, 25):
        colours = distinct_colours(count)
        assert len(set(colours)) == len(colours) == count
        assert COLOURS["grey"] not in colours


def test_coinciding_curves_take_turns_so_that_each_is_visible_and_all_cover_the_line():
    count = 8
    positions = np.arange(0.25, 200, 0.5)
    visible = []
    for turn in range(count):
        offset, (on, off) = turn_dashes(turn, count)
        visible.append((positions + offset) % (on + off) < on)
    assert (np.sum(visible, axis=0) == 1).all()
    assert min(np.sum(visible, axis=1)) > 0
    assert turn_dashes(0, 1) == "-"


def test_the_parts_of_a_step_have_the_order_and_the_colours_of_the_labs():
    words = load_words("shoal.labs.lab3", "en")
    labs = [(COLOURS[part.colour], part.hatch) for part in time_parts(words)]
    assert [LOOKS[kind] for kind in KINDS[:3]] == labs
    assert list(LOOKS) == list(KINDS)
