"""The published formulas agree with what the timeline counts."""

import pytest

from shoal.strategies.pipeline.schedules import FORMULAS, SCHEDULES, build
from shoal.strategies.pipeline.timing import StageTimes, timeline

SIZES = [(stages, microbatches) for stages in (1, 2, 3, 5, 8) for microbatches in (1, 2, 3, 7, 8, 9, 16)]
UNEQUAL = StageTimes(forward=2.0, backward=5.0, backward_input=3.0, backward_weight=2.0)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("times", [StageTimes(), UNEQUAL])
def test_bubbles_are_those_of_the_formula_where_it_is_exact(name, times):
    for stages, microbatches in SIZES:
        counted = timeline(build(name, stages, microbatches).rows, times).bubble
        bubble = FORMULAS[name].bubble_of(stages, microbatches, times)
        if FORMULAS[name].is_exact(stages, microbatches):
            assert counted == pytest.approx(bubble, abs=1e-12)
        else:
            assert counted > bubble


@pytest.mark.parametrize("name", SCHEDULES)
def test_peaks_are_those_of_the_formula(name):
    for stages, microbatches in SIZES:
        line = timeline(build(name, stages, microbatches).rows)
        for stage in range(stages):
            assert line.peak_live(stage) == FORMULAS[name].peak_live_of(stages, microbatches, stage)
