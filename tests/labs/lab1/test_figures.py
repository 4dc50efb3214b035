import numpy as np
import pytest

from shoal.report.finished_runs import Curve, Run
from shoal_labs.lab1.figures import against
from shoal_labs.lab1.measure import Series


def series(*seconds):
    """Seeds whose loss falls by one per step, and which needed these seconds."""
    curves = [
        Curve(np.arange(len(each)), 64.0 * np.arange(len(each)), np.array(each), 10.0 - np.arange(len(each)))
        for each in seconds
    ]
    runs = [Run(None, None, curve, 0, {}, (), np.array([])) for curve in curves]
    return Series("gd", tuple(runs))


def test_against_seconds_seeds_are_compared_at_the_same_moments():
    steady, paused = [0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 9.0, 10.0, 11.0]
    moments, losses = against(series(steady, paused), "seconds")
    assert moments[-1] == 4.0  # no further than the fastest: its loss is not held to the end of the others
    for moment, first, second in zip(moments, *losses, strict=True):
        assert first == pytest.approx(10 - moment)
        assert second == pytest.approx(10 - moment if moment <= 1 else 9 - (moment - 1) / 8)


@pytest.mark.parametrize("axis", ["steps", "samples"])
def test_against_steps_and_samples_seeds_are_compared_step_by_step(axis):
    places, losses = against(series([0.0, 1.0, 2.0], [0.0, 5.0, 6.0]), axis)
    assert len(places) == 3
    assert losses.tolist() == [[10, 9, 8], [10, 9, 8]]
