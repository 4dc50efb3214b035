from shoal.report.svg import COLOURS
from shoal_labs.lab3.figures import LOOKS
from shoal_labs.lab3.plan import DIVISIONS


def test_no_two_divisions_of_one_legend_have_the_same_colour():
    colours = [LOOKS[name][0] for name in DIVISIONS]
    assert len(set(colours)) == len(colours)
    assert "grey" not in colours  # one machine
    assert set(colours) <= set(COLOURS)
