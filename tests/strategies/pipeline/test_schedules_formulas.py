"""The published formulas agree with what the timeline counts."""

import pytest

from shoal.strategies.pipeline.schedules import FORMULAS, SCHEDULES, bubble, build, peak_live
from shoal.strategies.pipeline.timing import StageTimes, timeline

SIZES = [(stages, microbatches) for stages in (1, 2, 3, 5, 8) for microbatches in (1, 2, 3, 7, 8, 9, 16)]
UNEQUAL = StageTimes(forward=2.0, backward=5.0, backward_input=3.0, backward_weight=2.0)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("times", [StageTimes(), UNEQUAL])
def test_bubbles_are_those_of_the_formula_where_it_is_exact(name, times):
    for stages, microbatches in SIZES:
        counted = timeline(build(name, stages, microbatches).rows, times).bubble
        if FORMULAS[name].is_exact(stages, microbatches):
            assert counted == pytest.approx(bubble(name, stages, microbatches, times), abs=1e-12)
        else:
            assert counted > bubble(name, stages, microbatches, times)


@pytest.mark.parametrize("name", SCHEDULES)
def test_peaks_are_those_of_the_formula(name):
    for stages, microbatches in SIZES:
        line = timeline(build(name, stages, microbatches).rows)
        counted = tuple(line.peak_live(stage) for stage in range(stages))
        assert counted == peak_live(name, stages, microbatches)
