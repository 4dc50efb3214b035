"""The lab's own loop trains as a run does, counts what its loaders deliver, and works with uneven shares."""

from dataclasses import replace

import pytest

from shoal.config.sections.data import SyntheticConfig
from shoal.config.sections.model import MlpConfig
from shoal.launch.run import launch_run
from shoal.training.observer import Silent
from shoal_labs.lab3.own_loop import WAYS, differences_from_same_order, train_own
from shoal_labs.lab3.plan import DIVISIONS, QUICK, Lab3Plan

SIZE = replace(QUICK, epochs=2, equal_steps=4, model=MlpConfig(hidden=(8,)))
PLAN = Lab3Plan((2, 3), SIZE, data=SyntheticConfig(samples=130, validation=0.2))
"""104 samples to train on: among three workers 35, 35 and 34, in steps of 21."""


@pytest.mark.parametrize("workers", [2, 3])
def test_the_right_sampler_trains_as_one_machine_and_wrong_ones_see_less(workers, tmp_path):
    single = PLAN.runs()["single-seed0"]
    single = replace(single, output=replace(single.output, dir=str(tmp_path)))
    alone = launch_run(single, Silent())
    right = train_own("right", PLAN.own(workers, 0))
    assert right.coverage == [1.0, 1.0]
    assert right.overlap == 0.0
    # Adam is ours there and torch's here, and batches of three workers have 63 samples.
    assert right.loss[-1] == pytest.approx(alone.final_loss, rel=1e-3 if workers == 2 else 0.3)
    ranged = train_own("range", PLAN.own(workers, 0))
    assert ranged.coverage == [pytest.approx(1 / workers, abs=0.01)] * 2
    assert ranged.overlap == ranged.coverage[0]
    assert 0.5 < train_own("rank-seed", PLAN.own(workers, 0)).coverage[0] < 0.9


@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("seldom")])
def test_workers_that_agree_once_an_epoch_see_everything(way):
    result = train_own(way, PLAN.own(3, 1))
    assert result.coverage == [1.0, 1.0]
    assert len(result.accuracy) == 2
    assert result.loss[1] < result.loss[0]


def test_a_division_changes_nothing_but_which_samples_meet():
    differences = differences_from_same_order(PLAN)
    assert set(differences) == set(DIVISIONS)
    assert max(differences.values()) < 1e-5
